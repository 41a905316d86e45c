// A trial in device memory.
#pragma once

#include <cstddef>

#include "runtime/execute/gpu_executor.hpp"
#include "runtime/lab/device_memory.hpp"
#include "runtime/lab/trial.hpp"

namespace attune {

class DeviceTrial {
 public:
  /// With inputs that the trial drew, and room for the largest workspace that a launch will need. The driver and the
  /// trial outlive it.
  DeviceTrial(const Driver& driver, const Trial& trial, const Memory& inputs, std::size_t workspace_bytes);

  /// Overwrites the results, their guards and the workspace, once the launches before are done.
  void poison() const;

  /// Queues the launches of one of the trial's plans on the default stream.
  void launch(const TrialPlan& plan) { plan.run(memory_.data(), executor_); }

  /// Waits for the GPU and fetches the results.
  [[nodiscard]] Outputs fetch() const;

 private:
  const Driver* driver_;
  const Trial* trial_;
  std::size_t inputs_bytes_;
  Memory poisoned_;
  DeviceBuffer memory_;
  GpuExecutor executor_;
};

}  // namespace attune
