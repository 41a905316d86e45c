// A problem of decoding in device memory.
#pragma once

#include <cstddef>

#include "runtime/cli/decode_trial.hpp"
#include "runtime/cli/gpu.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune::cli {

/// Q, a cache, O, LSE and a workspace. O and LSE start poisoned and end in guards; so does the workspace start.
class DeviceTrial {
 public:
  /// `workspace_bytes` is the most that a launch will need.
  DeviceTrial(const Gpu& gpu, const DecodeTrial& trial, const CacheInputs& inputs, std::size_t workspace_bytes);

  /// Overwrites O, LSE and their guards with NaN.
  void poison() const;

  /// Queues the launches of a plan on the default stream, as the library does; `merge` is for plans that combine.
  void launch(const LoadedKernel& decode, const LoadedKernel& merge, const DecodePlan& planned) const;

  /// Waits for the GPU and fetches O and LSE.
  [[nodiscard]] Outputs fetch() const;

 private:
  const Gpu* gpu_;
  DecodeProblem problem_;
  std::size_t workspace_bytes_;
  DeviceBuffer q_;
  DeviceBuffer k_;
  DeviceBuffer v_;
  DeviceBuffer lengths_;
  DeviceBuffer table_;
  DeviceBuffer cu_seqlens_q_;
  DeviceBuffer cu_seqlens_k_;
  DeviceBuffer cos_;
  DeviceBuffer sin_;
  DeviceBuffer workspace_;
  Outputs poisoned_;
  DeviceBuffer o_;
  DeviceBuffer lse_;
};

}  // namespace attune::cli
