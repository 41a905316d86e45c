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

  /// A look-up that met a loaded kernel. On the way of every call: a thread counts where no other does, so that it
  /// needs no locked instruction (2 instead of 5 ns) unless it finds all places taken.
  void hit() noexcept {
    const std::size_t place = place_of_thread();
    Count& hits = hits_[place].count;
    if (place < own_places) {
      hits.store(hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else {
      hits.fetch_add(1, std::memory_order_relaxed);
    }
  }

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
  struct alignas(64) ThreadCount {
    Count count = 0;
  };
  static constexpr std::size_t own_places = 64;

  /// This thread's own place as long as it lives, or `own_places`, which the others share.
  static std::size_t place_of_thread() noexcept;

  std::array<ThreadCount, own_places + 1> hits_;
};

}  // namespace attune
