// Kernels that take turns on one problem.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cli/device_trial.hpp"
#include "runtime/cli/gpu.hpp"
#include "runtime/tune/problems.hpp"

namespace attune::cli {

/// A problem in device memory and kernels that serve it, all planned before anything is timed. The L2 is overwritten
/// before each launch, so that nothing of the problem is in it; kernels take turns, so that none runs on a card that
/// another has heated.
class Contest {
 public:
  /// All sequences of a decode problem have the most keys. `merge` is what merges the parts of decode kernels, null for
  /// prefill. The GPU and the kernels must outlive this.
  Contest(const Gpu& gpu, const tune::AnyProblem& problem, const std::vector<const LoadedKernel*>& kernels,
          const LoadedKernel* merge, std::uint64_t seed);

  /// Seconds of one launch of each of these kernels, numbers into `kernels`, in this order; all are queued before any
  /// is waited for, behind one that is not timed: an idle card would time the launch instead of the kernel.
  std::vector<double> time(std::span<const int> order);

  /// What one launch of a kernel leaves in poisoned outputs.
  [[nodiscard]] Outputs result_of(int kernel);

 private:
  /// A kernel and how it is launched.
  struct Contestant {
    const LoadedKernel* kernel = nullptr;
    PrefillPlan prefill;
    DecodePlan decode;
  };

  void open(const Problem& problem, std::uint64_t seed);
  void open(const DecodeProblem& problem, std::uint64_t seed);
  void launch(int kernel);

  const Gpu* gpu_;
  const LoadedKernel* merge_;
  std::vector<Contestant> contestants_;
  std::size_t flushed_bytes_;
  DeviceBuffer flushed_;                  ///< written before each launch
  std::optional<DeviceProblem> problem_;  ///< of prefill, or ...
  std::optional<DeviceTrial> trial_;      ///< ... of decode
  std::vector<DeviceEvent> events_;
};

}  // namespace attune::cli
