#include "runtime/cache/limit.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "runtime/base/environment.hpp"
#include "runtime/base/text.hpp"

namespace attune {

std::optional<long long> parse_bytes(std::string_view text) {
  long long count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  int shift = 0;
  for (const auto& [letter, bits] : {std::pair('K', 10), std::pair('M', 20), std::pair('G', 30), std::pair('T', 40)}) {
    if (unit.empty() || (unit.front() != letter && unit.front() != letter - 'A' + 'a')) continue;
    shift = bits;
    unit.remove_prefix(1);
    if (unit.starts_with('i') && unit.size() > 1) unit.remove_prefix(1);
    break;
  }
  if (!unit.empty() && unit != "B") return std::nullopt;
  if (count > std::numeric_limits<long long>::max() >> shift) return std::nullopt;
  return count << shift;
}

long long cache_limit(const LineLog& log) {
  const std::string value = environment("ATTUNE_CACHE_BYTES");
  if (value.empty()) return default_cache_bytes;
  if (const auto bytes = parse_bytes(value)) return *bytes;
  log(fmt::format("ATTUNE_CACHE_BYTES is {}; it must be a size such as 512M or 2G, or 0 for no limit; {} it is", value,
                  bytes_text(static_cast<double>(default_cache_bytes))));
  return default_cache_bytes;
}

}  // namespace attune
