// The tables of tuned problems that a process has, and the one for each of its GPUs.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/tuned_distance.hpp"

namespace attune {

/// One table for each GPU. ATTUNE_TUNED says of which rows: the path of one file, or `off` for none; unset or empty, of
/// all tables that came with the kernels, of which the first one that knows a problem counts. A table that cannot be
/// used is said once through `log`, and is not used.
std::vector<TunedTable> default_tuned_tables(const ReadyKernels& ready, const LineLog& log = log_to_stderr);

/// The table that was measured on such a GPU, or why there is none. A GPU that no table names takes that of one of its
/// compute capability and number of multiprocessors: what fits one fits the other, and only their memories differ.
struct TunedSource {
  const TunedTable* table = nullptr;
  std::string reason;  ///< empty where there is a table
};
TunedSource tuned_table_for(std::span<const TunedTable> tables, const Device& device);

/// The same for the devices of a registry, each looked up once. Thread-safe.
class TunedDevices {
 public:
  explicit TunedDevices(std::vector<TunedTable> tables) : tables_(std::move(tables)) {}

  /// The rows for the device of this ordinal; null where there are none. `find_device(ordinal)` is called for the
  /// first time alone, and for ordinals beyond 63, which have no rows, never.
  template <class FindDevice>
  [[nodiscard]] const TunedRows* rows(int ordinal, const FindDevice& find_device) {
    if (tables_.empty() || ordinal < 0 || ordinal >= most_devices) return nullptr;
    const TunedRows* rows = known_[static_cast<std::size_t>(ordinal)].load(std::memory_order_acquire);
    if (rows == nullptr) rows = add(ordinal, find_device(ordinal));
    return rows;
  }

 private:
  static constexpr int most_devices = 64;

  const TunedRows* add(int ordinal, const Device& device);

  const std::vector<TunedTable> tables_;
  const TunedTable none_;
  std::array<std::atomic<const TunedRows*>, most_devices> known_{};
  std::mutex mutex_;
  std::vector<std::unique_ptr<const TunedRows>> owned_;  ///< changed under the lock only
};

}  // namespace attune
