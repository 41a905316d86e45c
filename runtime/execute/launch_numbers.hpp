// Numbers by which launches know what they wrote themselves into memory that nobody has initialised.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>

#include "runtime/base/random.hpp"

namespace attune {

/// Odd numbers of 64 bits, drawn at random, that memory is not to be expected to hold. Thread-safe.
class LaunchNumbers {
 public:
  std::uint64_t next() { return Random(drawn_++)() | 1; }

 private:
  static std::uint64_t seed() {
    std::random_device device;
    return static_cast<std::uint64_t>(device()) << 32 | device();
  }

  std::atomic<std::uint64_t> drawn_{seed()};
};

}  // namespace attune
