// Kernels with expressions on the emulator against the float64 reference that evaluates the same text.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "generator/check.hpp"
#include "generator/condition.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/trial.hpp"
#include "tests/harness/expressed_image.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::emulator_tests {
namespace {

using Texts = testing::ExpressedTexts;
using Drawn = testing::ExpressedCase;
using Kind = testing::KeyStorage;
using testing::ExpressedImage;
using testing::once_in;
using testing::one_of;
using testing::up_to;

const Device a100 = device_of(*find_arch("sm_80"));
const Device h200 = device_of(*find_arch("sm_90"));

/// Runs an image's calls on the emulator and CHECKs what they leave.
class ExpressedCall : public ExpressedImage {
 public:
  using ExpressedImage::ExpressedImage;

  void check_prefill(const EmulatedKernel& kernel, std::uint64_t seed) const {
    CAPTURE(kernel.variant.name());
    CAPTURE(problem().text());
    Memory after = memory();
    attune_prefill_args args = prefill_args(after.data());
    const Problem checked = check_arguments(args);
    CHECK(checked.expressions == problem().expressions);
    const std::size_t bytes = plan(kernel.variant, checked, kernel.device).workspace_bytes;
    std::vector<float> workspace(bytes / sizeof(float) + 4);
    FixedKernels found{&kernel};
    if (kernels_ != nullptr && bytes > 0) {
      args.workspace = workspace.data();
      args.workspace_bytes = bytes;
      found.add((*kernels_)[choose_own(MaskBlocksProblem{checked.expressions.mask}, kernel.device).variant]);
    }
    const emulator::Report report = run_emulated(found, args, checked, {.seed = seed});
    REQUIRE_MESSAGE(report.ok(), report.fault);
    CHECK(wrong(std::move(after)) == "");
  }

  /// The same of a kernel that is told which blocks its mask leaves, on a GPU of so few multiprocessors that each has
  /// many tiles. What the workspace holds before is another call's.
  void check_told_prefill(const EmulatedKernel& kernel, int multiprocessors, std::uint64_t seed) const {
    CAPTURE(kernel.variant.name());
    CAPTURE(problem().text());
    CAPTURE(multiprocessors);
    Device device = kernel.device;
    device.multiprocessors = multiprocessors;
    Memory after = memory();
    attune_prefill_args args = prefill_args(after.data());
    const Problem checked = check_arguments(args);
    const PrefillPlan planned = plan(kernel.variant, checked, device);
    REQUIRE(planned.mask_blocks.bytes() > 0);
    std::vector<std::uint64_t> workspace(planned.workspace_bytes / sizeof(std::uint64_t) + 1, 0x7fffffff7fffffff);
    args.workspace = workspace.data();
    args.workspace_bytes = planned.workspace_bytes;
    const ServingKernel& teller =
        (*kernels_)[choose_own(MaskBlocksProblem{checked.expressions.mask}, kernel.device).variant];
    FixedKernels found{&kernel, &teller};
    const emulator::Report report = emulate(found, {.seed = seed}, [&](const Backend& backend) {
      attune::run(args, checked, kernel, planned, backend.executor, nullptr, &teller);
    });
    REQUIRE_MESSAGE(report.ok(), report.fault);
    CHECK(wrong(std::move(after)) == "");
  }

  /// Has a kernel tell which blocks a mask leaves, where what it looks up says so.
  void tell_blocks(HostKernels& kernels) { kernels_ = &kernels; }

  void check_decode(HostKernels& kernels, const Device& device, int splits, std::uint64_t seed,
                    const std::function<void(Variant&)>& change = {}) const {
    const DecodeProblem problem = decode_problem(splits);
    OwnChoice own = choose_own(problem, device);
    REQUIRE(own.refusals.empty());
    if (change) change(own.variant);
    REQUIRE(check(own.variant).empty());
    CAPTURE(own.variant.name());
    CAPTURE(problem.text());
    Memory after = memory();
    attune_decode_args args = decode_args(after.data(), splits);
    const EmulatedKernel& kernel = kernels[own.variant];
    FixedKernels found{&kernel};
    for (const Variant& other : companions_of(own.variant, device)) found.add(kernels[other]);
    const DecodePlan planned = plan(kernel.variant, problem, kernel.device);
    std::vector<float> workspace(planned.workspace_bytes / sizeof(float) + 4);
    args.workspace = workspace.data();
    args.workspace_bytes = planned.workspace_bytes;
    const emulator::Report report = run_emulated(found, args, check_arguments(args), {.seed = seed});
    REQUIRE_MESSAGE(report.ok(), report.fault);
    CHECK(wrong(std::move(after)) == "");
  }

 private:
  HostKernels* kernels_ = nullptr;
};

/// Tries one pair of expressions on a family.
void try_prefill(HostKernels& kernels, Random& random, const Device& device, Kind kind, const Texts& texts,
                 std::uint64_t seed) {
  const Drawn drawn = testing::random_expressed_case(random, kind, 150, 250);
  ExpressedCall call({drawn.problem, drawn.sequences, texts}, seed);
  const OwnChoice own = choose_own(call.problem(), device);
  REQUIRE(own.refusals.empty());
  if (once_in(random, 2)) call.tell_blocks(kernels);
  call.check_prefill(kernels[own.variant], seed);
}

}  // namespace

TEST_CASE("what models use agrees with the reference: slopes, documents, prefixes, windows with first tokens, trees") {
  const std::array<Texts, 7> named{{
      {"s + slope[h] * (k - p) where slope: fp32[head]", ""},
      {"s - slope[b, h] * abs(p - k) where slope: fp32[batch, head]", "k <= p"},
      {"", "k <= p and document[b, p] == document[b, k] where document: int32[batch, position]"},
      {"", "k <= p or k < prefix[b] where prefix: int32[batch]"},
      {"", "k <= p and (p - k < 130 or k < 4)"},
      {"", "k <= p - q or tree[b, q, k - (p - q)] % 2 == 1 where tree: int32[batch, query, 150]"},
      {"20 * tanh(s / 20) + bias[h, max(p - k, 0)] where bias: fp32[head, 100]", "(k // 64 + p // 64) % 3 != 0"},
  }};
  HostKernels kernels;
  Random random(47);
  std::uint64_t seed = 1;
  for (const Texts& texts : named) {
    CAPTURE(texts.score);
    CAPTURE(texts.mask);
    for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
      for (const Device& device : {a100, h200}) {
        ++seed;
        Drawn drawn = testing::random_expressed_case(random, kind, 140, 700);
        drawn.problem.window_left = drawn.problem.window_right = -1;
        ExpressedCall call({drawn.problem, drawn.sequences, texts}, seed);
        const OwnChoice own = choose_own(call.problem(), device);
        REQUIRE(own.refusals.empty());
        call.check_prefill(kernels[own.variant], seed);
        call.tell_blocks(kernels);
        call.check_prefill(kernels[own.variant], seed);
        if (kind != Kind::paged) continue;
        drawn.problem.seqlen_q = 1 + up_to(random, 5);
        ExpressedCall few({drawn.problem, drawn.sequences, texts}, seed);
        few.check_decode(kernels, device, up_to(random, 4), seed);
      }
    }
  }
}

TEST_CASE("a row without keys has O = 0 and LSE = -inf, however steep the slope that its scores would have") {
  constexpr int queries = 90;
  constexpr int keys = 40;  // those that the last 40 queries see, or some of these
  HostKernels kernels;
  Random random(51);
  for (const std::string mask : {"k <= p", "k <= p and q % 3 != 0"}) {
    Drawn drawn = testing::random_expressed_case(random, Kind::dense, queries, keys);
    Problem& problem = drawn.problem;
    problem.batch = problem.heads_kv = problem.heads_q = 1;
    problem.causal = false;
    problem.softcap = 0;
    problem.window_left = problem.window_right = -1;
    problem.seqlen_q = queries;
    problem.seqlen_k = keys;
    const ExpressedImage image({problem, {}, {"s + slope[h] * (k - p) where slope: fp32[head]", mask}}, 3);
    const Variant own = choose_own(image.problem(), h200).variant;
    REQUIRE(own.family == prefill_sm90);
    REQUIRE(tilts_scores(own));
    for (const float slope : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      Memory memory = image.memory();
      const attune_prefill_args args = image.prefill_args(memory.data());
      *static_cast<float*>(const_cast<void*>(args.params[0].data)) = slope;
      const emulator::Report report = run_emulated({&kernels[own]}, args, check_arguments(args), {.seed = 1});
      REQUIRE_MESSAGE(report.ok(), report.fault);
      const bool every_third = mask.size() > 6;
      for (int q = 0; q < queries; ++q) {
        CAPTURE(q);
        if (q >= queries - keys && !(every_third && q % 3 == 0)) {
          CHECK(std::isnan(args.lse[q]));  // infinity times the distance of 0
          continue;
        }
        CHECK(args.lse[q] == -std::numeric_limits<float>::infinity());
        const auto* const row = static_cast<const std::uint16_t*>(args.o.data) + q * args.o.stride_seq;
        CHECK(std::ranges::all_of(row, row + 64, [](std::uint16_t element) { return (element & 0x7fff) == 0; }));
      }
    }
  }
}

TEST_CASE(
    "blocks so far down a slope that no key has a weight leave nothing in O, by P's residual or dropout neither") {
  HostKernels kernels;
  Random random(53);
  std::uint64_t seed = 0;
  for (const int head_dim : {64, 128}) {
    for (const std::string score : {"s + 0.5 * (k - p)", "s - 0.5 * (k - p)"}) {
      Drawn drawn = testing::random_expressed_case(random, Kind::dense, 1, 1);
      Problem& problem = drawn.problem;
      problem.batch = problem.heads_kv = problem.heads_q = 1;
      problem.head_dim = problem.head_dim_v = head_dim;
      problem.causal = true;
      problem.softcap = 0;
      problem.window_left = problem.window_right = -1;
      problem.seqlen_q = problem.seqlen_k = 700;
      for (const bool dropout : {false, true}) {
        problem.dropout = dropout;
        const ExpressedCall call({problem, {}, {score, ""}}, ++seed);
        const Variant own = choose_own(call.problem(), h200).variant;
        REQUIRE(tilts_scores(own));
        CHECK((own.P_residual_keys > 0) == (head_dim == 128));
        call.check_prefill(kernels[own], seed);
      }
    }
  }
}

TEST_CASE("packed heads know which head a row is of") {
  HostKernels kernels;
  Random random(48);
  const Texts texts{"s + slope[h] * (k - p) - 0.01 * hk where slope: fp32[head]", "k <= p + h and q % 3 != h"};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Drawn drawn = testing::random_expressed_case(random, Kind::dense, 60, 300);
    drawn.problem.window_left = drawn.problem.window_right = -1;
    drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
    ExpressedCall call({drawn.problem, {}, texts}, seed);
    Variant packed = choose_own(call.problem(), h200).variant;
    packed.gqa_ratio = 4;
    packed.pack_gqa = 1;
    REQUIRE(check(packed).empty());
    call.check_prefill(kernels[packed], seed);
  }
}

TEST_CASE("weights that expressions made are dropped as others are") {
  HostKernels kernels;
  Random random(50);
  const Texts texts{"s + slope[b, h] * (k - p) where slope: fp32[batch, head]", "k <= p + h and (p - k) % 200 < 90"};
  std::uint64_t seed = 0;
  for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
    for (const Device& device : {a100, h200}) {
      ++seed;
      Drawn drawn = testing::random_expressed_case(random, kind, 150, 400);
      drawn.problem.dropout = true;
      ExpressedCall call({drawn.problem, drawn.sequences, texts}, seed);
      const OwnChoice own = choose_own(call.problem(), device);
      REQUIRE(own.refusals.empty());
      REQUIRE(own.variant.dropout == 1);
      call.check_prefill(kernels[own.variant], seed);
    }
  }
}

TEST_CASE("sinks are in the softmax of every row, one that sees nothing too, once however its keys are divided") {
  HostKernels kernels;
  Random random(51);
  const std::array<Texts, 3> texts{{{"", "", true},
                                    {"s + slope[h] * (k - p) where slope: fp32[head]", "", true},
                                    {"", "k % 97 < 80 and p - k < 300 + h", true}}};
  std::uint64_t seed = 0;
  const auto told = [&](Texts one) {
    one.sink_like_q = seed / 2 % 2 == 1;
    return one;
  };
  for (const Texts& one : texts) {
    for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
      for (const Device& device : {a100, h200}) {
        ++seed;
        Drawn drawn = testing::random_expressed_case(random, kind, 150, 400);
        drawn.problem.dropout = kind == Kind::dense && one.mask.empty();
        ExpressedCall call({drawn.problem, drawn.sequences, told(one)}, seed);
        const OwnChoice own = choose_own(call.problem(), device);
        REQUIRE(own.refusals.empty());
        REQUIRE(own.variant.sink == 1);
        REQUIRE(family_of(own.variant).tensor_maps == (device.capability == 90));
        call.check_prefill(kernels[own.variant], seed);
      }
    }
    for (int splits = 0; splits <= 3; ++splits) {
      ++seed;
      Drawn drawn = testing::random_expressed_case(random, Kind::paged, 4, 700);
      drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
      drawn.sequences.seqused_k[0] = splits == 2 ? 0 : drawn.sequences.seqused_k[0];
      ExpressedCall call({drawn.problem, drawn.sequences, told(one)}, seed);
      call.check_decode(kernels, a100, splits, seed);
      if (splits == 0) continue;
      call.check_decode(kernels, h200, splits, seed, [&](Variant& variant) {
        variant.cluster = 1;
        variant.interleave = splits % 2;
      });
      call.check_decode(kernels, h200, splits, seed, [](Variant& variant) {
        variant.interleave = 1;
        variant.gqa_ratio = 4;
      });
    }
  }
}

TEST_CASE("packed rows have the sinks of their own heads") {
  HostKernels kernels;
  Random random(52);
  Drawn drawn = testing::random_expressed_case(random, Kind::dense, 60, 300);
  drawn.problem.window_left = drawn.problem.window_right = -1;
  drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
  ExpressedCall call({drawn.problem, {}, {"", "", true}}, 3);
  Variant packed = choose_own(call.problem(), h200).variant;
  packed.gqa_ratio = 4;
  packed.pack_gqa = 1;
  REQUIRE(check(packed).empty());
  call.check_prefill(kernels[packed], 3);
}

TEST_CASE("decode's schedules and fixed sizes change nothing about where a score stands") {
  HostKernels kernels;
  Random random(49);
  const Texts texts{"s + slope[h] * (k - p) - 0.01 * hk where slope: fp32[head]", "k % 97 < 80 and p - k < 300 + h"};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Drawn drawn = testing::random_expressed_case(random, Kind::paged, 3, 700);
    drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
    const int splits = 1 + static_cast<int>(seed % 3);
    ExpressedCall call({drawn.problem, drawn.sequences, texts}, seed);
    call.check_decode(kernels, h200, splits, seed, [&](Variant& variant) {
      variant.cluster = 1;
      variant.interleave = static_cast<int>(seed % 2);
    });
    call.check_decode(kernels, h200, splits, seed, [](Variant& variant) {
      variant.interleave = 1;
      variant.gqa_ratio = 4;
    });
  }
}

TEST_CASE("blocks that belong to other documents are not read, whichever kernel is told so") {
  HostKernels kernels;
  const Texts texts{"", "document[b, p] == document[b, k] and k <= p where document: int32[batch, position]"};
  // Two documents: the first has 256 keys, and queries are all of the second.
  const Problem problem{.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 90, .seqlen_k = 700, .head_dim = 64};
  for (const Device& device : {a100, h200}) {
    ExpressedCall call({problem, {}, texts}, 5);
    call.set_array("document", [](int i) { return i % 700 < 256 ? 3 : 4; });
    call.tell_blocks(kernels);
    call.poison_keys(0, 256);
    Variant variant = choose_own(call.problem(), device).variant;
    call.check_prefill(kernels[variant], 5);
    if (!family_of(variant).tensor_maps) continue;
    variant.pack_gqa = 1;
    variant.gqa_ratio = 2;
    call.check_prefill(kernels[variant], 6);
  }
}

TEST_CASE("a mask that looks things up leaves many tiles of several sequences and heads their blocks") {
  HostKernels kernels;
  const std::array<Texts, 2> masks{{
      {"", "document[b, p] == document[b, k] and k <= p where document: int32[batch, position]"},
      {"", "k <= p and flag[h, k // 64] != 0 where flag: int32[head, 12]"},
  }};
  Problem problem{.batch = 2, .heads_q = 2, .heads_kv = 2, .seqlen_q = 700, .seqlen_k = 700, .head_dim = 64};
  for (const Texts& texts : masks) {
    ExpressedCall call({problem, {}, texts}, 8);
    call.set_array("document", [](int i) { return i % 700 < 450 ? i % 700 / 200 : i; });
    call.tell_blocks(kernels);
    const EmulatedKernel& kernel = kernels[choose_own(call.problem(), h200).variant];
    call.check_prefill(kernel, 8);
    for (const int multiprocessors : {1, 3}) call.check_told_prefill(kernel, multiprocessors, 9);
  }
}

TEST_CASE("tiles come from a list beside slopes and sinks, too") {
  HostKernels kernels;
  Problem problem{.batch = 2, .heads_q = 3, .heads_kv = 3, .seqlen_q = 300, .seqlen_k = 400, .head_dim = 64};
  problem.causal = true;
  for (const Texts& texts : {Texts{"s + slope[h] * (k - p) where slope: fp32[head]", ""}, Texts{"s * 0.5 - h", ""}}) {
    ExpressedCall call({problem, {}, texts}, 9);
    Variant variant = choose_own(call.problem(), h200).variant;
    variant.tile_list = 1;
    REQUIRE(check(variant).empty());
    call.check_prefill(kernels[variant], 9);
  }
}

TEST_CASE("words of a mask's blocks are as many as its tiles, of heads where it depends on them") {
  Problem problem{.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 300, .seqlen_k = 5000, .head_dim = 64};
  problem.expressions = Texts{"", "flag[h, k // 1000] <= p where flag: int32[head, 5]"}.numbers();
  const Variant variant = choose_own(problem, h200).variant;
  const MaskBlocksPlan planned = plan_mask_blocks(variant, problem);
  CHECK(planned.heads == 2);
  CHECK(planned.tile_words == (5000 / variant.B_c + 32) / 32);
  CHECK(planned.drawn);  // so that a count stands behind them
  CHECK(planned.bytes() == (static_cast<std::size_t>(planned.tiles) * planned.tile_words * 2 + 1) * 8);
  problem.expressions = Texts{"", "flag[k // 1000] <= p where flag: int32[5]"}.numbers();
  CHECK(plan_mask_blocks(variant, problem).heads == 1);
  problem.expressions = Texts{"", "k <= p"}.numbers();
  CHECK(plan_mask_blocks(variant, problem).bytes() == 0);
}

TEST_CASE("blocks that a mask hides from all rows of a tile are not read") {
  HostKernels kernels;
  const Texts texts{"", "k < 16 or p - k < 100"};
  Problem problem{.batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 60, .seqlen_k = 700, .head_dim = 64};
  for (const Device& device : {a100, h200}) {
    ExpressedCall call({problem, {}, texts}, 5);
    call.poison_keys(128, 512);
    call.check_prefill(kernels[choose_own(call.problem(), device).variant], 5);
  }
  problem.paged = true;  // a page is as a sequence here
  problem.page_size = 700;
  problem.pages = 2;
  problem.table_width = 1;
  Sequences sequences;
  sequences.seqused_k = {700, 700};
  sequences.block_table = {0, 1};
  ExpressedCall paged({problem, sequences, texts}, 5);
  paged.poison_keys(128, 512);
  paged.check_prefill(kernels[choose_own(paged.problem(), a100).variant], 5);
  problem.seqlen_q = 3;
  for (const int splits : {0, 1}) {  // more parts might have dead blocks alone, of which one stays
    ExpressedCall call({problem, sequences, texts}, 6);
    call.poison_keys(128, 512);
    call.check_decode(kernels, a100, splits, 6);
  }
}

TEST_CASE("random expressions agree with the reference in prefill, dense, ragged and paged, and in decode") {
  HostKernels kernels;
  Random random(46);
  for (int i = 0; i < testing::expression_count(); ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + 1;
    CAPTURE(i);
    const Texts texts = testing::random_texts(random);
    CAPTURE(texts.score);
    CAPTURE(texts.mask);
    switch (i % 4) {
      case 0:
        try_prefill(kernels, random, a100, one_of(random, std::array{Kind::dense, Kind::ragged}), texts, seed);
        break;
      case 1:
        try_prefill(kernels, random, h200, one_of(random, std::array{Kind::dense, Kind::ragged}), texts, seed);
        break;
      case 2:
        try_prefill(kernels, random, a100, Kind::paged, texts, seed);
        break;
      default: {
        const Drawn drawn = testing::random_expressed_case(random, Kind::paged, 4, 400);
        ExpressedCall call({drawn.problem, drawn.sequences, texts}, seed);
        call.check_decode(kernels, i % 8 == 3 ? a100 : h200, up_to(random, 3), seed);
      }
    }
  }
}

}  // namespace attune::emulator_tests
