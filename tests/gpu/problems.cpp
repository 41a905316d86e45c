// The C ABI against the reference over many problems.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/lab/device_trial.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/needs.hpp"

namespace attune::gpu_tests {
namespace {

struct Planned {
  Problem problem;
  Layout layout;
};

/// Every head_dim multiple of 8, with everything else varied along: lengths (1, odd, prime, around tile edges, longer
/// K than Q and the reverse), GQA ratios 1 to 16, dtypes, masks and layouts.
std::vector<Planned> problems_by_head_dim() {
  constexpr std::array<std::pair<int, int>, 12> lengths{{{1, 1},
                                                         {1, 257},
                                                         {127, 129},
                                                         {131, 131},
                                                         {64, 640},
                                                         {300, 77},
                                                         {193, 193},
                                                         {128, 128},
                                                         {257, 511},
                                                         {2, 3},
                                                         {95, 33},
                                                         {384, 384}}};
  constexpr std::array<int, 8> ratios{1, 2, 3, 4, 6, 8, 12, 16};
  constexpr std::array<Layout, 4> layouts{Layout::bshd, Layout::bhsd, Layout::packed, Layout::gaps};
  std::vector<Planned> planned;
  unsigned i = 0;
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const bool causal : {false, true}) {
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
        for (int repeat = 0; repeat < 2; ++repeat, ++i) {
          const auto [seqlen_q, seqlen_k] = lengths[(i * 5 + i / 12) % lengths.size()];
          const int ratio = ratios[(i + i / 8) % ratios.size()];
          const int heads_kv = 1 + static_cast<int>(i % 2);
          Layout layout = layouts[(i + i / 4) % layouts.size()];
          if (layout == Layout::packed && seqlen_q != seqlen_k) layout = Layout::gaps;
          planned.push_back({{.dtype = dtype,
                              .batch = 1 + static_cast<int>(i % 3),
                              .heads_q = ratio * heads_kv,
                              .heads_kv = heads_kv,
                              .seqlen_q = seqlen_q,
                              .seqlen_k = seqlen_k,
                              .head_dim = head_dim,
                              .causal = causal},
                             layout});
        }
      }
    }
  }
  return planned;
}

}  // namespace

TEST_CASE("256 problems over every head_dim, length, GQA ratio and layout agree with the reference") {
  const TestRegistry registry;
  const std::vector<Planned> planned = problems_by_head_dim();
  REQUIRE(planned.size() == 256);
  std::vector<attune_prefill_args> calls;
  for (const Planned& one : planned) calls.push_back(CallImage(one.problem, one.layout, 1).args(no_memory()));
  prepare_ahead(registry, ATTUNE_PREFILL, calls);
  std::uint64_t seed = 1;
  for (const Planned& one : planned) check_call(registry, one.problem, one.layout, seed++);
}

TEST_CASE("every length around the tile edges agrees with the reference") {
  const TestRegistry registry;
  for (const int seqlen : {15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 255, 256, 257}) {
    for (const bool causal : {false, true}) {
      const Problem square{
          .heads_q = 2, .heads_kv = 1, .seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = 64, .causal = causal};
      check_call(registry, square, Layout::bshd, 7);
      Problem longer = square;
      longer.seqlen_k = 2 * seqlen + 1;
      longer.head_dim = 128;
      check_call(registry, longer, Layout::gaps, 8);
    }
  }
}

TEST_CASE("where head_dim is no multiple of 8, nothing beyond it in rows of K and V reaches a result") {
  const TestRegistry registry;
  std::uint64_t seed = 1;
  for (const auto& [head_dim, head_dim_v] :
       {std::pair{1, 0}, {7, 0}, {59, 0}, {111, 0}, {190, 0}, {255, 0}, {187, 123}}) {
    for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::packed, Layout::gaps}) {
      for (const bool causal : {false, true}) {
        const Problem problem{.dtype = causal ? Dtype::fp16 : Dtype::bf16,
                              .batch = 2,
                              .heads_q = 6,
                              .heads_kv = 2,
                              .seqlen_q = 150,
                              .seqlen_k = 150,
                              .head_dim = head_dim,
                              .head_dim_v = head_dim_v,
                              .causal = causal};
        if (head_dim_v != 0 && gpu().device.capability < 90) continue;  // nothing serves it
        check_call(registry, problem, layout, seed++);
      }
    }
  }
}

TEST_CASE("groups of heads that the heads do not fill are computed whole, and nothing beyond them") {
  const TestRegistry registry;
  // How many heads a group has follows from the L2 of the GPU; seven heads are no multiple of 2 to 6.
  for (const Problem& problem :
       {Problem{.heads_q = 14, .heads_kv = 7, .seqlen_q = 70, .seqlen_k = 5000, .head_dim = 256},
        Problem{.heads_q = 71, .heads_kv = 71, .seqlen_q = 33, .seqlen_k = 4000, .head_dim = 64, .causal = true}}) {
    check_call(registry, problem, Layout::bshd, 4);
    const Device& device = gpu().device;
    const Grid grid = plan(default_variant(prefill_sm80, need_for(problem.dtype, problem.head_dim, problem.causal),
                                           device.shared_per_block),
                           problem, device)
                          .grid;
    CHECK(grid.z > 1);
    CHECK(grid.x * grid.z > static_cast<unsigned>(problem.heads_q));
  }
}

TEST_CASE("blocks that stay compute every tile once, in groups that the heads do not fill") {
  const TestRegistry registry;
  const Device& device = gpu().device;
  if (!families()[prefill_sm90].runs_on(device.capability)) {
    MESSAGE("skipped: " << device.name << " runs no kernels of prefill_sm90");
    return;
  }
  for (const bool causal : {false, true}) {
    // K and V of a head are 6 MiB, so a group has some heads; 3 tiles a head make whole pairs of rounds rare.
    for (const auto& [heads, seqlen_q, seqlen_k] :
         {std::array{71, 300, 12000}, {29, 130, 12000}, {300, 64, 700}, {133, 1, 40}, {140, 129, 500}}) {
      const Problem problem{.heads_q = heads,
                            .heads_kv = heads,
                            .seqlen_q = seqlen_q,
                            .seqlen_k = seqlen_k,
                            .head_dim = 128,
                            .causal = causal};
      check_call(registry, problem, Layout::bshd, 4);
    }
  }
}

TEST_CASE("V and O of a head_dim of their own agree with the reference") {
  const TestRegistry registry;
  const Device& device = gpu().device;
  if (!families()[prefill_sm90].runs_on(device.capability)) {
    MESSAGE("skipped: " << device.name << " runs no kernels of prefill_sm90");
    return;
  }
  std::uint64_t seed = 1;
  for (const auto& [head_dim, head_dim_v] :
       {std::pair{192, 128}, {192, 64}, {160, 96}, {192, 8}, {136, 128}, {256, 64}, {128, 64}, {64, 128}, {24, 16}}) {
    for (const bool causal : {false, true}) {
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
        const Problem problem{.dtype = dtype,
                              .batch = 2,
                              .heads_q = 6,
                              .heads_kv = 3,
                              .seqlen_q = 300,
                              .seqlen_k = 300,
                              .head_dim = head_dim,
                              .head_dim_v = head_dim_v,
                              .causal = causal};
        check_call(registry, problem, Layout::packed, seed++);
        Problem longer = problem;
        longer.seqlen_q = 129;
        longer.seqlen_k = 1111;
        check_call(registry, longer, Layout::gaps, seed++);
        longer.batch = 40;  // several tiles for each block that stays
        longer.seqlen_k = 257;
        check_call(registry, longer, Layout::bhsd, seed++);
      }
    }
  }
}

TEST_CASE("every embedded kernel agrees with the reference when it is launched itself") {
  const auto kernels = embedded_kernels();
  REQUIRE(!kernels.empty());
  for (const ReadyKernel& embedded : kernels) {
    CAPTURE(embedded.name);
    if (family_of(embedded.variant).operation != Operation::prefill) continue;
    if (!check_arch(embedded.variant, arch_of(gpu().device)).empty()) continue;
    const LoadedKernel kernel(gpu().driver, embedded.variant, gpu().device, embedded.fatbin,
                              std::string(embedded.name));
    for (const auto& trial : small_trials(embedded.variant, 11)) {
      CAPTURE(trial->problem().text());
      const Memory inputs = trial->inputs();
      const TrialPlan planned = trial->plan_with({&kernel});
      DeviceTrial on_device(gpu().driver, *trial, inputs, planned.workspace_bytes);
      on_device.launch(planned);
      const Outputs output = on_device.fetch();
      const Expected expected = trial->expected(inputs);
      const Comparison comparison =
          compare(trial->attention(), output.o.data(), output.lse.data(), expected.reference, expected.naive);
      CHECK(comparison.agrees);
      CHECK(output.guards_intact);
    }
  }
}

}  // namespace attune::gpu_tests
