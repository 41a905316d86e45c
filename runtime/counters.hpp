// What a registry has done so far, counted by any number of threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "attune/attune.h"

namespace attune {

class Counters {
 public:
  using Count = std::atomic<std::uint64_t>;

  /// A look-up that met a loaded kernel. On the way of every call: threads count apart from one another.
  void hit() noexcept { hits_[stripe()].count.fetch_add(1, std::memory_order_relaxed); }

  void count_compile(double seconds) noexcept {
    constexpr double us_per_second = 1e6;
    ++compiles;
    compile_us += static_cast<std::uint64_t>(seconds * us_per_second);
  }

  Count misses = 0;
  Count ready_loads = 0;
  Count disk_loads = 0;
  Count compiles = 0;
  Count compile_us = 0;
  Count bytes_loaded = 0;
  Count fallbacks = 0;
  Count swaps = 0;
  Count failures = 0;
  Count pending = 0;

  /// All of them, struct_size included; not of one moment while threads count on.
  [[nodiscard]] attune_counters snapshot() const;

 private:
  struct alignas(64) Stripe {
    Count count = 0;
  };
  static constexpr std::size_t stripe_bits = 5;

  /// Of this thread: a hash of where its variables lie.
  static std::size_t stripe() noexcept {
    thread_local const char here = 0;
    return reinterpret_cast<std::uintptr_t>(&here) * 0x9e3779b97f4a7c15 >> (64 - stripe_bits);
  }

  std::array<Stripe, 1U << stripe_bits> hits_;
};

}  // namespace attune
