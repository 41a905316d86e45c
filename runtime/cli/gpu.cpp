#include "runtime/cli/gpu.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "generator/check.hpp"
#include "runtime/arguments.hpp"

namespace attune::cli {
namespace {

/// Elements after the end of O and of LSE that must keep their poison.
constexpr std::size_t guard = 256;
constexpr std::uint16_t poisoned_element = 0x7fff;  // a NaN in fp16 and in bf16
constexpr float poisoned_lse = std::numeric_limits<float>::quiet_NaN();

std::size_t rows_of(const Problem& problem) {
  return static_cast<std::size_t>(problem.batch) * problem.heads_q * problem.seqlen_q;
}

attune_tensor tensor(const DeviceBuffer& buffer, const Problem& problem, int seqlen, int heads) {
  const long long dim = problem.head_dim;
  return {.data = buffer.data(), .stride_batch = dim * heads * seqlen, .stride_seq = dim * heads, .stride_head = dim};
}

}  // namespace

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

LoadedKernel::LoadedKernel(const Gpu& gpu, std::string_view image, const Variant& variant, const std::string& name)
    : driver_(&gpu.driver),
      variant_(variant),
      handle_(gpu.driver.load(image, name, resources(variant).shared_bytes, gpu.device.ordinal)) {}

LoadedKernel::~LoadedKernel() {
  if (handle_.library != nullptr) driver_->unload(handle_);
}

LoadedKernel::LoadedKernel(LoadedKernel&& other) noexcept
    : driver_(other.driver_), variant_(other.variant_), handle_(std::exchange(other.handle_, {})) {}

DeviceProblem::DeviceProblem(const Gpu& gpu, const Problem& problem, const HostInputs& inputs)
    : gpu_(&gpu),
      problem_(problem),
      q_(gpu.driver, inputs.q.size() * sizeof(std::uint16_t)),
      k_(gpu.driver, inputs.k.size() * sizeof(std::uint16_t)),
      v_(gpu.driver, inputs.v.size() * sizeof(std::uint16_t)),
      o_(gpu.driver, (query_elements(problem) + guard) * sizeof(std::uint16_t)),
      lse_(gpu.driver, (rows_of(problem) + guard) * sizeof(float)) {
  q_.upload(inputs.q);
  k_.upload(inputs.k);
  v_.upload(inputs.v);
  poison();
}

void DeviceProblem::poison() const {
  o_.upload(std::vector<std::uint16_t>(query_elements(problem_) + guard, poisoned_element));
  lse_.upload(std::vector<float>(rows_of(problem_) + guard, poisoned_lse));
}

void DeviceProblem::launch(const LoadedKernel& kernel) const {
  const Plan launch_plan = plan(kernel.variant(), problem_, gpu_->device);
  if (launch_plan.grid.blocks() == 0) return;
  const attune_prefill_args args{
      .struct_size = sizeof(attune_prefill_args),
      .dtype = static_cast<attune_dtype>(problem_.dtype),
      .q = tensor(q_, problem_, problem_.seqlen_q, problem_.heads_q),
      .k = tensor(k_, problem_, problem_.seqlen_k, problem_.heads_kv),
      .v = tensor(v_, problem_, problem_.seqlen_k, problem_.heads_kv),
      .o = tensor(o_, problem_, problem_.seqlen_q, problem_.heads_q),
      .lse = static_cast<float*>(lse_.data()),
      .batch = problem_.batch,
      .seqlen_q = problem_.seqlen_q,
      .seqlen_k = problem_.seqlen_k,
      .heads_q = problem_.heads_q,
      .heads_kv = problem_.heads_kv,
      .head_dim = problem_.head_dim,
      .softmax_scale = static_cast<float>(usual_scale(problem_)),
      .causal = problem_.causal ? 1 : 0,
  };
  const AttunePrefillParams params = make_params(args, problem_);
  gpu_->driver.launch(kernel.handle(), launch_plan.grid, launch_plan.threads, launch_plan.shared_bytes, nullptr,
                      &params);
}

DeviceProblem::Output DeviceProblem::fetch() const {
  gpu_->driver.synchronize();
  Output output;
  output.o.resize(query_elements(problem_) + guard);
  output.lse.resize(rows_of(problem_) + guard);
  o_.download(output.o);
  lse_.download(output.lse);
  const auto untouched = [](const auto& values, std::size_t used, auto poisoned) {
    return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(used), values.end(), poisoned);
  };
  output.guards_intact =
      untouched(output.o, query_elements(problem_), [](std::uint16_t bits) { return bits == poisoned_element; }) &&
      untouched(output.lse, rows_of(problem_), [](float value) { return value != value; });
  output.o.resize(query_elements(problem_));
  output.lse.resize(rows_of(problem_));
  return output;
}

std::size_t DeviceProblem::bytes(const Problem& problem) {
  return sizeof(std::uint16_t) * 2 * (query_elements(problem) + key_elements(problem)) +
         sizeof(float) * rows_of(problem);
}

}  // namespace attune::cli
