#include "runtime/cli/gpu.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/launch.hpp"

namespace attune::cli {
DeviceBuffer::DeviceBuffer(const Driver& driver, std::size_t bytes)
    : driver_(&driver), data_(driver.allocate(std::max<std::size_t>(bytes, 16))) {}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) driver_->free(data_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : driver_(other.driver_), data_(std::exchange(other.data_, nullptr)) {}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) driver_->destroy_event(event_);
}

DeviceEvent::DeviceEvent(DeviceEvent&& other) noexcept
    : driver_(other.driver_), event_(std::exchange(other.event_, nullptr)) {}

double DeviceEvent::seconds_since(const DeviceEvent& start) const {
  return driver_->elapsed_ms(start.event_, event_) / 1e3;
}

DeviceProblem::DeviceProblem(const Gpu& gpu, const Problem& problem, const HostInputs& inputs)
    : gpu_(&gpu),
      problem_(problem),
      q_(gpu.driver, inputs.q.size() * sizeof(std::uint16_t)),
      k_(gpu.driver, inputs.k.size() * sizeof(std::uint16_t)),
      v_(gpu.driver, inputs.v.size() * sizeof(std::uint16_t)),
      o_(gpu.driver, (output_elements(problem) + Outputs::guard) * sizeof(std::uint16_t)),
      lse_(gpu.driver, (query_rows(problem) + Outputs::guard) * sizeof(float)),
      cu_seqlens_q_(gpu.driver, inputs.sequences.cu_seqlens_q.size() * sizeof(std::int32_t)),
      cu_seqlens_k_(gpu.driver, inputs.sequences.cu_seqlens_k.size() * sizeof(std::int32_t)),
      seqused_k_(gpu.driver, inputs.sequences.seqused_k.size() * sizeof(std::int32_t)),
      block_table_(gpu.driver, inputs.sequences.block_table.size() * sizeof(std::int32_t)),
      executor_(gpu.driver) {
  q_.upload(inputs.q);
  k_.upload(inputs.k);
  v_.upload(inputs.v);
  cu_seqlens_q_.upload(inputs.sequences.cu_seqlens_q);
  cu_seqlens_k_.upload(inputs.sequences.cu_seqlens_k);
  seqused_k_.upload(inputs.sequences.seqused_k);
  block_table_.upload(inputs.sequences.block_table);
  poison();
}

void DeviceProblem::poison() const {
  const Outputs poisoned(problem_);
  o_.upload(poisoned.o);
  lse_.upload(poisoned.lse);
}

void DeviceProblem::make_room(std::size_t workspace_bytes) {
  if (workspace_bytes <= workspace_bytes_) return;
  gpu_->driver.synchronize();
  workspace_.emplace(gpu_->driver, workspace_bytes);
  workspace_->upload(std::vector<float>(workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN()));
  workspace_bytes_ = workspace_bytes;
}

void DeviceProblem::launch(const LoadedKernel& kernel) { launch(kernel, plan(kernel.variant, problem_, gpu_->device)); }

void DeviceProblem::launch(const LoadedKernel& kernel, const PrefillPlan& launch_plan) {
  if (launch_plan.grid.blocks() == 0) return;
  make_room(launch_plan.workspace_bytes);
  attune_prefill_args args =
      contiguous_args(problem_, {.q = q_.data(),
                                 .k = k_.data(),
                                 .v = v_.data(),
                                 .o = o_.data(),
                                 .lse = static_cast<float*>(lse_.data()),
                                 .cu_seqlens_q = static_cast<const std::int32_t*>(cu_seqlens_q_.data()),
                                 .cu_seqlens_k = static_cast<const std::int32_t*>(cu_seqlens_k_.data()),
                                 .seqused_k = static_cast<const std::int32_t*>(seqused_k_.data()),
                                 .block_table = static_cast<const std::int32_t*>(block_table_.data())});
  args.workspace = workspace_ ? workspace_->data() : nullptr;
  args.workspace_bytes = workspace_bytes_;
  run(args, problem_, kernel, launch_plan, executor_, nullptr);
}

Outputs DeviceProblem::fetch() const {
  gpu_->driver.synchronize();
  Outputs outputs(problem_);
  o_.download(outputs.o);
  lse_.download(outputs.lse);
  return outputs;
}

}  // namespace attune::cli
