// Which kernels serve a registry's problems on GPUs, and what is loaded and compiled for that. For any problem type
// with what runtime/choice/choice.hpp asks of one.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/background.hpp"
#include "runtime/base/counters.hpp"
#include "runtime/base/log.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/registry/kernel_loader.hpp"
#include "runtime/registry/kernel_table.hpp"

namespace attune {

/// Thread-safe. Once a problem's kernel is loaded, finding it takes no lock and allocates nothing.
class GpuKernels {
 public:
  /// What is ready, the tables, the cache and the counters outlive it. Throws Error{ATTUNE_NO_DEVICE} without a driver.
  GpuKernels(attune_compile_policy policy, const ReadyKernels& ready, TunedDevices& tuned, const Cache& cache,
             Counters& counters, Log log);

  [[nodiscard]] const Driver& driver() const { return driver_; }

  /// What serves a problem on the device of the current context: what is loaded, else what the policy says. Throws
  /// Error.
  template <class AnyProblem>
  const LoadedKernel& kernel_for(const AnyProblem& problem) {
    return *row_for(problem).kernel;
  }

  /// The same, and what is to take over from it.
  template <class AnyProblem>
  const KernelTable::Row& row_for(const AnyProblem& problem);

  /// The row as it is now; null where the problem has not been served yet. Throws Error{ATTUNE_NO_DEVICE}.
  template <class AnyProblem>
  const KernelTable::Row* find_row(const AnyProblem& problem);

  /// The same as kernel_for(), but where another kernel is to take over it waits for that one; and the current context
  /// holds its code.
  template <class AnyProblem>
  const LoadedKernel& prepare(const AnyProblem& problem);

  /// The background's part of attune_registry_finish().
  void stop_background();

 private:
  /// Whether a kernel that is to take over is waited for.
  enum class Wait { no, yes };

  /// What is to serve, now and later.
  struct Provided {
    const LoadedKernel* kernel;
    std::shared_ptr<const Variant> coming = nullptr;  ///< as KernelTable::Row has it
    bool fallback = false;                            ///< in the place of a better one
  };

  /// A problem on a device.
  struct Located {
    const TunedRow* tuned;  ///< that answers for it, or null
    KernelKey key;
  };

  [[nodiscard]] int current_device() const;
  template <class AnyProblem>
  Located locate(const AnyProblem& problem);
  const Device& device(int ordinal);
  [[nodiscard]] KernelTable& table_of(Operation operation) { return tables_[static_cast<std::size_t>(operation)]; }

  template <class AnyProblem>
  const KernelTable::Row& load(const AnyProblem& problem, const Located& located, Wait wait);
  template <class AnyProblem>
  Provided serve(const AnyProblem& problem, const Device& device, const TunedRow* tuned, Wait wait);
  /// Of exactly this variant, from the disk. Throws Error naming the nearest that is ready.
  template <class AnyProblem>
  const LoadedKernel& load_frozen(const AnyProblem& problem, const Variant& own, const Device& device);
  /// The best of what is ready or loaded, whatever it pads; null when there is none.
  template <class AnyProblem>
  const LoadedKernel* stand_in(const AnyProblem& problem, const Device& device);

  // Of a row for which something is coming: has that compiled in the background, in this thread's context; compiles it
  // now and puts it there; leaves the row as it is for good; take_over() within a call.
  void compile_later(Operation operation, const KernelTable::Row& row, const Device& device);
  void take_over(Operation operation, const KernelTable::Row& row, const Device& device);
  void give_up(Operation operation, const KernelTable::Row& row, const Device& device, const std::string& reason);
  void wait_for(Operation operation, const KernelTable::Row& row, const Device& device);
  bool has_failed(const Variant& variant, int ordinal);

  const attune_compile_policy policy_;
  const ReadyKernels& ready_;
  TunedDevices& tuned_;
  const Cache& cache_;
  Counters& counters_;
  const Log log_;
  const Driver driver_;
  KernelLoader loader_;
  std::array<KernelTable, operation_count> tables_;
  std::mutex mutex_;                            ///< of what is below; held for no load and no compilation
  std::map<int, Device> devices_;               ///< by ordinal
  std::set<std::pair<int, Variant>> failed_;    ///< what could not be compiled in the background, by ordinal
  std::optional<BackgroundThread> background_;  // the last: its jobs use the others
};

}  // namespace attune
