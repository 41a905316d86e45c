// XXH3 as text, for cache keys and checksums: quick and well mixed, no protection against an attacker.
#pragma once

#include <string>
#include <string_view>

namespace attune {

/// The 128-bit XXH3 of the bytes as 32 lower-case hex digits.
std::string xxh3_hex(std::string_view bytes);

}  // namespace attune
