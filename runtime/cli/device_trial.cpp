#include "runtime/cli/device_trial.hpp"

#include <limits>
#include <vector>

#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/decode/launch.hpp"

namespace attune::cli {

DeviceTrial::DeviceTrial(const Gpu& gpu, const DecodeTrial& trial, const CacheInputs& inputs,
                         std::size_t workspace_bytes)
    : gpu_(&gpu),
      problem_(trial.problem),
      workspace_bytes_(workspace_bytes),
      q_(gpu.driver, inputs.q.size() * sizeof(std::uint16_t)),
      k_(gpu.driver, inputs.k.size() * sizeof(std::uint16_t)),
      v_(gpu.driver, inputs.v.size() * sizeof(std::uint16_t)),
      lengths_(gpu.driver, inputs.lengths.size() * sizeof(std::int32_t)),
      table_(gpu.driver, inputs.table.size() * sizeof(std::int32_t)),
      cu_seqlens_q_(gpu.driver, inputs.cu_seqlens_q.size() * sizeof(std::int32_t)),
      cu_seqlens_k_(gpu.driver, inputs.cu_seqlens_k.size() * sizeof(std::int32_t)),
      cos_(gpu.driver, inputs.angles.cos.size() * sizeof(std::uint16_t)),
      sin_(gpu.driver, inputs.angles.sin.size() * sizeof(std::uint16_t)),
      workspace_(gpu.driver, workspace_bytes),
      poisoned_(outputs_of(trial.problem)),
      o_(gpu.driver, poisoned_.o.size() * sizeof(std::uint16_t)),
      lse_(gpu.driver, poisoned_.lse.size() * sizeof(float)) {
  q_.upload(inputs.q);
  k_.upload(inputs.k);
  v_.upload(inputs.v);
  lengths_.upload(inputs.lengths);
  table_.upload(inputs.table);
  cu_seqlens_q_.upload(inputs.cu_seqlens_q);
  cu_seqlens_k_.upload(inputs.cu_seqlens_k);
  cos_.upload(inputs.angles.cos);
  sin_.upload(inputs.angles.sin);
  workspace_.upload(std::vector<float>(workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN()));
  poison();
}

void DeviceTrial::poison() const {
  o_.upload(poisoned_.o);
  lse_.upload(poisoned_.lse);
}

void DeviceTrial::launch(const LoadedKernel& decode, const LoadedKernel& merge, const DecodePlan& planned) const {
  attune_decode_args args = decode_args(problem_, {.q = q_.data(),
                                                   .k = k_.data(),
                                                   .v = v_.data(),
                                                   .lengths = lengths_.data(),
                                                   .table = table_.data(),
                                                   .cu_seqlens_q = cu_seqlens_q_.data(),
                                                   .cu_seqlens_k = cu_seqlens_k_.data(),
                                                   .cos = cos_.data(),
                                                   .sin = sin_.data(),
                                                   .o = o_.data(),
                                                   .lse = lse_.data(),
                                                   .workspace = workspace_.data(),
                                                   .workspace_bytes = workspace_bytes_});
  if (problem_.equal_lengths) args.seqlens_k = nullptr;
  GpuExecutor executor(gpu_->driver);
  FixedKernels kernels{&decode, &merge};
  run(args, check_arguments(args), decode, planned, {kernels, executor, nullptr}, NewKeys::already_there);
}

Outputs DeviceTrial::fetch() const {
  gpu_->driver.synchronize();
  Outputs outputs = poisoned_;
  o_.download(outputs.o);
  lse_.download(outputs.lse);
  return outputs;
}

}  // namespace attune::cli
