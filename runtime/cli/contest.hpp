// Kernels that take turns on one problem.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cli/machine.hpp"
#include "runtime/lab/device_trial.hpp"

namespace attune::cli {

/// A trial in device memory and kernels that serve it, all planned before anything is timed. The L2 is overwritten
/// before each launch, so that nothing of the problem is in it; kernels take turns, so that none runs on a card that
/// another has heated.
class Contest {
 public:
  /// Each contestant is a kernel and those that go with it. The GPU and the kernels must outlive this.
  Contest(const Gpu& gpu, std::unique_ptr<const Trial> trial, const std::vector<FixedKernels>& contestants);

  /// Seconds of one launch of each of these contestants, by number, in this order; all are queued before any is waited
  /// for, after one that is not timed: an idle card would time the launch instead of the kernel.
  std::vector<double> time(std::span<const int> order);

  /// What one launch of a contestant leaves in poisoned outputs.
  [[nodiscard]] Outputs result_of(int contestant);

  [[nodiscard]] const Trial& trial() const { return *trial_; }

 private:
  void launch(int contestant) { on_device_->launch(plans_[static_cast<std::size_t>(contestant)]); }

  const Gpu* gpu_;
  std::unique_ptr<const Trial> trial_;
  std::vector<TrialPlan> plans_;
  std::size_t flushed_bytes_;
  DeviceBuffer flushed_;  ///< written before each launch
  std::optional<DeviceTrial> on_device_;
  std::vector<DeviceEvent> events_;
};

}  // namespace attune::cli
