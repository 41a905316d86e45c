// How much a cache folder may hold.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/log.hpp"

namespace attune {

/// Bytes that a cache holds at most where nothing else is said.
inline constexpr long long default_cache_bytes = 1LL << 30;

/// "2G", "512M", "64K" (powers of 1024; a B or iB after them changes nothing) or plain bytes; nothing for other words.
std::optional<long long> parse_bytes(std::string_view text);

/// What $ATTUNE_CACHE_BYTES says, 0 for no limit, else the default. A value that is no size is said through `log`.
long long cache_limit(const LineLog& log);

}  // namespace attune
