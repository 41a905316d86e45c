#include "runtime/base/counters.hpp"

#include <bit>
#include <mutex>

namespace attune {
namespace {

/// The smallest number that no other living thread has; `most` where all below are taken.
class ThreadNumber {
 public:
  static constexpr std::size_t most = 64;

  ThreadNumber() {
    const std::lock_guard lock(numbers().mutex);
    value_ = static_cast<std::size_t>(std::countr_one(numbers().taken));
    if (value_ < most) numbers().taken |= std::uint64_t{1} << value_;
  }
  ~ThreadNumber() {
    if (value_ == most) return;
    const std::lock_guard lock(numbers().mutex);
    numbers().taken &= ~(std::uint64_t{1} << value_);
  }
  ThreadNumber(const ThreadNumber&) = delete;
  ThreadNumber& operator=(const ThreadNumber&) = delete;

  [[nodiscard]] std::size_t value() const { return value_; }

 private:
  /// Of the process, as its threads are.
  struct Numbers {
    std::mutex mutex;
    std::uint64_t taken = 0;  ///< a bit for each
  };
  static Numbers& numbers() {
    static Numbers all;
    return all;
  }

  std::size_t value_ = most;
};

}  // namespace

std::size_t Counters::place_of_thread() noexcept {
  static_assert(own_places == ThreadNumber::most);
  thread_local const ThreadNumber number;
  return number.value();
}

attune_counters Counters::snapshot() const {
  constexpr double us_per_ms = 1e3;
  attune_counters result{};
  result.struct_size = sizeof(result);
  for (const ThreadCount& place : hits_) result.hits += place.count;
  result.misses = misses;
  result.ready_loads = ready_loads;
  result.disk_loads = disk_loads;
  result.compiles = compiles;
  result.compile_ms = static_cast<double>(compile_us) / us_per_ms;
  result.bytes_loaded = bytes_loaded;
  result.fallbacks = fallbacks;
  result.swaps = swaps;
  result.failures = failures;
  result.pending = pending;
  return result;
}

}  // namespace attune
