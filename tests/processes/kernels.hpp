// Kernels that cost nothing to make: bytes that follow from a number.
#pragma once

#include <string>

#include "runtime/cache/cache.hpp"

namespace attune::process_tests {

inline constexpr int kernel_count = 20;

inline Source source_of(int number) {
  const std::string name = "kernel_" + std::to_string(number);
  return {Variant{}, name, "// " + name + "\n"};
}

inline CacheKey key_of(int number) { return cache_key(source_of(number), "sm_90", {}, "13.0"); }

/// Of 2,000 to 40,000 bytes.
inline Compiled compiled_of(int number) {
  Compiled compiled;
  compiled.image.resize(static_cast<std::size_t>(2000 * (number + 1)));
  unsigned state = static_cast<unsigned>(number) + 1;
  for (char& byte : compiled.image) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return compiled;
}

}  // namespace attune::process_tests
