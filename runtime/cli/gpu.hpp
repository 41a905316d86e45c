// What it takes to run a kernel on its own: device memory, events, a loaded kernel, a problem in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/cli/machine.hpp"
#include "runtime/cli/outputs.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/execute/gpu_executor.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune::cli {

/// Device memory that goes when this goes.
class DeviceBuffer {
 public:
  DeviceBuffer(const Driver& driver, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  DeviceBuffer(const DeviceBuffer&) = delete;

  [[nodiscard]] void* data() const { return data_; }

  template <class T>
  void upload(const std::vector<T>& values) const {
    if (!values.empty()) driver_->copy_to_device(data_, values.data(), values.size() * sizeof(T));
  }
  template <class T>
  void download(std::vector<T>& values) const {
    if (!values.empty()) driver_->copy_to_host(values.data(), data_, values.size() * sizeof(T));
  }

 private:
  const Driver* driver_;
  void* data_;
};

class DeviceEvent {
 public:
  explicit DeviceEvent(const Driver& driver) : driver_(&driver), event_(driver.create_event()) {}
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&& other) noexcept;
  DeviceEvent& operator=(DeviceEvent&&) = delete;
  DeviceEvent(const DeviceEvent&) = delete;

  void record() const { driver_->record(event_, nullptr); }
  [[nodiscard]] double seconds_since(const DeviceEvent& start) const;

 private:
  const Driver* driver_;
  void* event_;
};

/// Q, K, V, O and LSE of one problem in device memory, batch x seqlen x heads x head_dim. O and LSE start poisoned
/// and end in guards that no kernel may touch; so does the workspace start.
class DeviceProblem {
 public:
  DeviceProblem(const Gpu& gpu, const Problem& problem, const HostInputs& inputs);

  /// Overwrites O, LSE and their guards with NaN.
  void poison() const;

  /// Makes room for a workspace of so many bytes, where there is less; launches do as they need it.
  void make_room(std::size_t workspace_bytes);

  /// Queues one launch on the default stream; nothing when the problem has no rows.
  void launch(const LoadedKernel& kernel);

  /// The same with a plan that was made before, for this kernel and problem.
  void launch(const LoadedKernel& kernel, const PrefillPlan& launch_plan);

  /// Waits for the GPU and fetches O and LSE.
  [[nodiscard]] Outputs fetch() const;

 private:
  const Gpu* gpu_;
  Problem problem_;
  DeviceBuffer q_;
  DeviceBuffer k_;
  DeviceBuffer v_;
  DeviceBuffer o_;
  DeviceBuffer lse_;
  DeviceBuffer cu_seqlens_q_;
  DeviceBuffer cu_seqlens_k_;
  DeviceBuffer seqused_k_;
  DeviceBuffer block_table_;
  std::optional<DeviceBuffer> workspace_;
  std::size_t workspace_bytes_ = 0;
  GpuExecutor executor_;
};

}  // namespace attune::cli
