// Kernels that multiply V by what rounding took from P, too (P_residual_keys), on the emulator.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

/// The share of the elements of O that are not the nearest to the float64 reference.
double share_off_nearest(Variant variant, int P_residual_keys, int seqlen_k) {
  variant.P_residual_keys = P_residual_keys;
  CAPTURE(variant.name());
  REQUIRE(check(variant).empty());
  HostKernels kernels;
  const Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                        .batch = 1,
                        .heads_q = 2,
                        .heads_kv = 1,
                        .seqlen_q = 70,
                        .seqlen_k = seqlen_k,
                        .head_dim = variant.head_dim,
                        .causal = variant.causal != 0};
  const testing::CallImage image(problem, testing::Layout::gaps, 3);
  Memory memory = image.memory();
  const attune_prefill_args args = image.args(memory.data());
  const emulator::Report report = run_emulated(FixedKernels{&kernels[variant]}, args, problem, {.seed = 1});
  REQUIRE_MESSAGE(report.ok(), report.fault);
  const Outputs output = image.outputs(memory);
  image.check(output, args.softmax_scale);
  const auto host = [](const attune_tensor& tensor) {
    return HostTensor{static_cast<const std::uint16_t*>(tensor.data), tensor.stride_batch, tensor.stride_seq,
                      tensor.stride_head};
  };
  const ReferenceOutput reference =
      reference_attention(problem, host(args.q), host(args.k), host(args.v), args.softmax_scale);
  int off = 0;
  for (std::size_t i = 0; i < output.o.size(); ++i) {
    const auto nearest = to_storage(problem.dtype, static_cast<float>(reference.o[i]));
    if (from_storage(problem.dtype, output.o[i]) != from_storage(problem.dtype, nearest)) ++off;
  }
  return static_cast<double>(off) / static_cast<double>(output.o.size());
}

}  // namespace

TEST_CASE("weights of the first P_residual_keys keys are as good as exact, others are rounded") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int causal : {0, 1}) {
      Variant variant = families()[prefill_sm90].defaults;
      variant.dtype = static_cast<int>(dtype);
      variant.head_dim = 64;
      variant.B_r = variant.B_c = 64;
      variant.ping_pong = 0;
      variant.causal = causal;
      CHECK(share_off_nearest(variant, 32, 32) < 0.01);
      CHECK(share_off_nearest(variant, 16, 16) < 0.01);
      CHECK(share_off_nearest(variant, 16, 32) > 0.02);
      CHECK(share_off_nearest(variant, 0, 32) > 0.1);
    }
  }
}

}  // namespace attune::emulator_tests
