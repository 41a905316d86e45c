// Which kernels serve a registry's problems on GPUs, and what is loaded and compiled for that.
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
#include "runtime/registry/kernels.hpp"

namespace attune {

/// Thread-safe. Once a problem's kernel is loaded, finding it takes no lock and allocates nothing.
class GpuKernels : public Kernels {
 public:
  /// What is ready, the tables, the cache and the counters outlive it. Throws Error{ATTUNE_NO_DEVICE} without a driver.
  GpuKernels(attune_compile_policy policy, const ReadyKernels& ready, TunedDevices& tuned, const Cache& cache,
             Counters& counters, Log log);

  [[nodiscard]] const Driver& driver() const { return driver_; }

  /// What serves a problem on the device of the current context: what is loaded, else what the policy says. Throws
  /// Error.
  const LoadedKernel& kernel_for(const ProblemView& problem) override { return *row_for(problem).kernel; }

  /// What was found to be lacking is looked for once.
  const LoadedKernel* optional_kernel_for(const ProblemView& problem) override;

  /// What was expected once is remembered.
  std::optional<Variant> optional_variant_for(const ProblemView& problem) override;

  /// As kernel_for(), but the current context holds its code then.
  const LoadedKernel& prepare(const ProblemView& problem, Needed needed) override;

  ServingNames serving(const ProblemView& problem) override;
  std::size_t most_bytes(const ProblemView& problem, FunctionRef<std::size_t(const Variant&, const Device&)> bytes,
                         Needed needed) override;

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

  /// What serves a problem and what is to take over from it.
  const KernelTable::Row& row_for(const ProblemView& problem);

  /// The same of a problem that a call may do without; null where nothing serves it.
  const KernelTable::Row* optional_row_for(const ProblemView& problem);

  [[nodiscard]] int current_device() const;
  Located locate(const ProblemView& problem);
  const Device& device(int ordinal);
  [[nodiscard]] KernelTable& table_of(Operation operation) { return tables_[static_cast<std::size_t>(operation)]; }

  /// What serve() would give in the end, the first time, also where that has yet to be compiled; null where no kernel
  /// could be made.
  [[nodiscard]] std::shared_ptr<const Variant> expected(const ProblemView& problem, const Located& located);

  const KernelTable::Row& load(const ProblemView& problem, const Located& located, Wait wait, Needed needed);
  Provided serve(const ProblemView& problem, const Device& device, const TunedRow* tuned, Wait wait);
  /// Of exactly this variant, from the disk. Throws Error naming the nearest that is ready.
  const LoadedKernel& load_frozen(const ProblemView& problem, const Variant& own, const Device& device);
  /// The best of what is ready or loaded, whatever it pads; null when there is none.
  const LoadedKernel* stand_in(const ProblemView& problem, const Device& device);

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
  std::array<KernelTable, operation_count> lacking_;   ///< rows without kernels: what calls did without
  std::array<KernelTable, operation_count> expected_;  ///< rows without kernels: what is to come for optional calls
  std::mutex mutex_;                                   ///< of what is below; held for no load and no compilation
  std::map<int, Device> devices_;                      ///< by ordinal
  std::set<std::pair<int, Variant>> failed_;           ///< what could not be compiled in the background, by ordinal
  std::optional<BackgroundThread> background_;         // the last: its jobs use the others
};

}  // namespace attune
