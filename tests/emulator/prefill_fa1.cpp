// FlashAttention-1's order of loops on the emulator.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

std::vector<Variant> variants() {
  std::vector<Variant> result;
  const auto add = [&](int head_dim, int B_r, int B_c) -> Variant& {
    Variant& variant = result.emplace_back(families()[prefill_fa1_sm80].defaults);
    variant.head_dim = head_dim;
    variant.B_r = B_r;
    variant.B_c = B_c;
    return variant;
  };
  add(64, 64, 64);
  add(128, 64, 32).causal = 1;
  Variant& two_tiles = add(32, 64, 48);  // of 16 rows a warp
  two_tiles.warps = 2;
  two_tiles.causal = two_tiles.softcap = 1;
  add(64, 128, 64).dtype = static_cast<int>(Dtype::fp16);
  return result;
}

/// The call in a workspace of which so many bytes are missing.
std::string run(const EmulatedKernel& kernel, const testing::CallImage& image, std::size_t missing = 0) {
  Memory memory = image.memory();
  attune_prefill_args args = image.args(memory.data());
  const PrefillPlan planned = plan(kernel.variant, image.problem(), emulator::device());
  std::vector<std::uint64_t> workspace(planned.workspace_bytes / sizeof(std::uint64_t), ~std::uint64_t{0});
  args.workspace = workspace.data();
  args.workspace_bytes = planned.workspace_bytes - missing;
  FixedKernels kernels{&kernel};
  const std::string fault = emulate(kernels, {.seed = 3, .jobs = 2}, [&](const Backend& backend) {
                              attune::run(args, image.problem(), kernel, planned, backend.executor, nullptr);
                            }).fault;
  if (fault.empty()) image.check(image.outputs(std::move(memory)), args.softmax_scale);
  return fault;
}

}  // namespace

TEST_CASE("FlashAttention-1's loops agree with the reference, and no access of them is unsafe") {
  HostKernels kernels;
  std::uint64_t seed = 1;
  for (const Variant& variant : variants()) {
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    for (const auto& [seqlen_q, seqlen_k] : {std::pair{1, 1}, {150, 130}, {64, 64}, {130, 40}, {40, 200}, {33, 0}}) {
      const Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                            .batch = 2,
                            .heads_q = 2,
                            .heads_kv = 1,
                            .seqlen_q = seqlen_q,
                            .seqlen_k = seqlen_k,
                            .head_dim = variant.head_dim - 8,
                            .causal = variant.causal != 0,
                            .softcap = variant.softcap != 0 ? 3.0f : 0.0f};
      CAPTURE(problem.text());
      const std::string fault = run(kernels[variant], testing::CallImage(problem, testing::Layout::gaps, seed++));
      CHECK_MESSAGE(fault.empty(), fault);
    }
  }
}

TEST_CASE("FlashAttention-1's loops need their workspace, and say how much") {
  HostKernels kernels;
  const Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 70, .seqlen_k = 70, .head_dim = 64};
  const EmulatedKernel& kernel = kernels[variants().front()];
  // Two heads of two tiles of 64 rows: O in fp32, and 32 bytes of m and l a row.
  CHECK_THROWS_WITH_AS(static_cast<void>(run(kernel, testing::CallImage(problem, testing::Layout::bshd, 1), 8)),
                       "workspace_bytes is 73720; this kernel needs at least 73728, as attune_prefill_workspace says",
                       Error);
}

TEST_CASE("FlashAttention-1's loops serve no problem that another kernel serves, and are made for none") {
  const Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 70, .seqlen_k = 70, .head_dim = 64};
  Device device = emulator::device();
  const Variant fa1 = variants().front();
  const std::vector both{fa1, default_variant(prefill_sm80, problem.ask().need, device.shared_per_block)};
  CHECK(choose_prefill(both, problem, device)->family == prefill_sm80);
  CHECK(choose_prefill(std::span(both).first(1), problem, device) == fa1);
  for (const int capability : {80, 90}) {
    device.capability = capability;
    CHECK(!family_of(choose_own(problem, device).variant).named_only);
  }
}

}  // namespace attune::emulator_tests
