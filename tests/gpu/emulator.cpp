// The emulator and the GPU on the same inputs: what the one shows holds for the other.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "runtime/choice/explain.hpp"
#include "tests/gpu/harness.hpp"

namespace attune::gpu_tests {
namespace {

/// The storage type's values in order, as consecutive integers.
int ordinal(std::uint16_t bits) { return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : bits; }

/// How far apart two outputs are. An element near 0 is a sum that nearly cancels: it is measured in ulps of the
/// output's typical size instead of its own.
struct Distance {
  int ulps = 0;
  double differing = 0;  ///< part of the elements
  double lse = 0;
};

Distance distance(const Problem& problem, const Outputs& a, const Outputs& b) {
  Distance result;
  double sum = 0;
  for (const std::uint16_t bits : a.o) sum += std::abs(from_storage(problem.dtype, bits));
  const auto typical = static_cast<float>(sum / static_cast<double>(std::max<std::size_t>(1, a.o.size())));
  const int smallest = ordinal(to_storage(problem.dtype, typical));
  const float ulp = from_storage(problem.dtype, static_cast<std::uint16_t>(smallest + 1)) -
                    from_storage(problem.dtype, static_cast<std::uint16_t>(smallest));
  long long differing = 0;
  for (std::size_t i = 0; i < a.o.size(); ++i) {
    if (a.o[i] == b.o[i]) continue;
    ++differing;
    const float difference = from_storage(problem.dtype, a.o[i]) - from_storage(problem.dtype, b.o[i]);
    const int own = std::abs(ordinal(a.o[i]) - ordinal(b.o[i]));
    const int in_typical_ulps = static_cast<int>(std::ceil(std::abs(difference) / ulp));
    result.ulps = std::max(result.ulps, std::min(own, in_typical_ulps));
  }
  result.differing = static_cast<double>(differing) / static_cast<double>(std::max<std::size_t>(1, a.o.size()));
  for (std::size_t i = 0; i < a.lse.size(); ++i) {
    if (a.lse[i] != b.lse[i]) result.lse = std::max(result.lse, std::abs(double{a.lse[i]} - b.lse[i]));
  }
  return result;
}

Outputs emulate(const TestRegistry& registry, const CallImage& image) {
  Memory memory = image.memory();
  const attune_prefill_args args = image.args(memory.data());
  const attune_status status = attune_prefill(registry.get(), &args, nullptr);
  REQUIRE_MESSAGE(status == ATTUNE_OK, attune_last_error());
  return image.outputs(std::move(memory));
}

}  // namespace

TEST_CASE("GPU and emulator agree within two ulps of the storage type on 64 problems, run by the same kernels") {
  const TestRegistry on_gpu;
  const TestRegistry on_emulator(ATTUNE_COMPILE_MISSING, ATTUNE_DEVICE_EMULATOR);
  constexpr std::array<std::pair<int, int>, 8> lengths{
      {{1, 1}, {127, 129}, {131, 131}, {64, 320}, {200, 77}, {128, 128}, {33, 511}, {193, 193}}};
  constexpr std::array<Layout, 4> layouts{Layout::bshd, Layout::bhsd, Layout::gaps, Layout::bshd};
  constexpr std::array<int, 8> head_dims{64, 128, 96, 40, 256, 192, 80, 120};
  Distance worst;
  double differing = 0;
  int other_kernels = 0;
  for (unsigned i = 0; i < 64; ++i) {
    const auto [seqlen_q, seqlen_k] = lengths[i % lengths.size()];
    const Problem problem{.dtype = i / 2 % 2 == 0 ? Dtype::bf16 : Dtype::fp16,
                          .batch = 1 + static_cast<int>(i % 2),
                          .heads_q = 4,
                          .heads_kv = std::array{4, 2, 1}[i % 3],
                          .seqlen_q = seqlen_q,
                          .seqlen_k = seqlen_k,
                          .head_dim = head_dims[(i + i / 8) % head_dims.size()],
                          .causal = i / 4 % 2 == 0};
    CAPTURE(problem.text());
    if (explain(problem, gpu().device).serving.variant != explain_emulated(problem).serving.variant) {
      ++other_kernels;
      continue;
    }
    const TestCall call(problem, layouts[i % layouts.size()], i + 1);
    REQUIRE_MESSAGE(call.run(on_gpu) == ATTUNE_OK, attune_last_error());
    const Outputs emulated = emulate(on_emulator, call.image());
    call.image().check(emulated, call.args.softmax_scale);
    const Distance apart = distance(problem, call.fetch(), emulated);
    CHECK(apart.ulps <= 2);
    CHECK(apart.lse <= 1e-5);
    worst.ulps = std::max(worst.ulps, apart.ulps);
    worst.lse = std::max(worst.lse, apart.lse);
    differing += apart.differing;
  }
  if (other_kernels > 0) MESSAGE(other_kernels << " problems skipped: GPU and emulator serve them by other kernels");
  REQUIRE(other_kernels < 64);
  differing /= 64 - other_kernels;
  MESSAGE("GPU and emulator: at most " << worst.ulps << " ulps apart in O, " << 100 * differing
                                       << "% of the elements differ at all; LSE at most " << worst.lse << " apart");
}

}  // namespace attune::gpu_tests
