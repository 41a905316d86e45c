#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "tests/harness/needs.hpp"

using namespace attune;

namespace {

const Device h200 = device_of(*find_arch("sm_90"));

Problem problem_of(int head_dim, bool causal = false) {
  return {.dtype = Dtype::bf16,
          .batch = 2,
          .heads_q = 8,
          .heads_kv = 2,
          .seqlen_q = 1000,
          .seqlen_k = 2000,
          .head_dim = head_dim,
          .causal = causal};
}

Variant variant_of(int head_dim, bool causal = false) {
  return default_variant(prefill_sm80, need_for(Dtype::bf16, head_dim, causal), 99 * 1024);
}

bool mentions(const std::vector<std::string>& messages, const std::string& word) {
  return std::ranges::any_of(messages, [&](const std::string& m) { return m.find(word) != std::string::npos; });
}

}  // namespace

TEST_CASE("problems_of names each bad field and its value") {
  CHECK(problems_of(problem_of(128)).empty());
  for (const int head_dim : {1, 8, 59, 256}) CHECK(problems_of(problem_of(head_dim)).empty());
  Problem p = problem_of(128);
  p.batch = 0;
  p.seqlen_q = 0;
  p.seqlen_k = 0;
  CHECK(problems_of(p).empty());

  for (const int head_dim : {-8, 0, 257, 264}) {
    CAPTURE(head_dim);
    const auto found = problems_of(problem_of(head_dim));
    REQUIRE(found.size() == 1);
    CHECK(mentions(found, "head_dim is " + std::to_string(head_dim)));
    CHECK(mentions(found, "it must be from 1 to 256"));
  }
  p = problem_of(128);
  p.heads_kv = 3;
  CHECK(mentions(problems_of(p), "heads_kv is 3; it must divide heads_q, which is 8"));
  p = {.dtype = static_cast<Dtype>(7),
       .batch = -1,
       .heads_q = 0,
       .heads_kv = -2,
       .seqlen_q = -3,
       .seqlen_k = -4,
       .head_dim = 300,
       .causal = false};
  const auto all = problems_of(p);
  CHECK(all.size() == 7);
  for (const char* text : {"dtype is 7", "batch is -1", "heads_q is 0", "heads_kv is -2", "seqlen_q is -3",
                           "seqlen_k is -4", "head_dim is 300"}) {
    CHECK_MESSAGE(mentions(all, text), text);
  }
}

TEST_CASE("a problem reads in one line") {
  CHECK(problem_of(128, true).text() == "bf16 d128 b2 hq8 hk2 lq1000 lk2000 causal");
}

TEST_CASE("a variant is refused for each thing it cannot serve") {
  const Variant variant = variant_of(128);
  CHECK(refusals(variant, problem_of(128), h200).empty());
  CHECK(refusals(variant, problem_of(72), h200).empty());
  CHECK(mentions(refusals(variant, problem_of(136), h200), "head_dim"));
  CHECK(mentions(refusals(variant, problem_of(128, true), h200), "causal"));

  Problem fp16 = problem_of(128);
  fp16.dtype = Dtype::fp16;
  CHECK(mentions(refusals(variant, fp16, h200), "dtype"));

  Variant fixed = variant;
  fixed.gqa_ratio = 4;
  CHECK(refusals(fixed, problem_of(128), h200).empty());
  fixed.gqa_ratio = 2;
  CHECK(mentions(refusals(fixed, problem_of(128), h200), "gqa_ratio"));

  Device old = h200;
  old.capability = 75;
  CHECK(mentions(refusals(variant, problem_of(128), old), "7.5"));
  Device small = h200;
  small.shared_per_block = 1024;
  CHECK(mentions(refusals(variant, problem_of(128), small), "shared memory"));
}

TEST_CASE("a variant meant for other GPUs is refused, on a GPU that no table knows it is not") {
  Variant variant = variant_of(128);
  const auto archs = all_archs();
  const auto sm_80 = std::ranges::find(archs, 80, &Arch::capability) - archs.begin();
  variant.arch = 1U << sm_80;
  CHECK(mentions(refusals(variant, problem_of(128), h200), "arch"));
  Device ampere = h200;
  ampere.capability = 80;
  CHECK(refusals(variant, problem_of(128), ampere).empty());
  Device future = h200;
  future.capability = 990;
  CHECK(refusals(variant, problem_of(128), future).empty());
}

TEST_CASE("choose takes the least padding, then the order given") {
  Variant first = variant_of(128);
  Variant second = first;
  second.rescale = static_cast<int>(Rescale::always);
  const std::vector<Variant> candidates = {variant_of(256), first, second, variant_of(64), variant_of(128, true)};
  CHECK(choose(candidates, problem_of(128), h200) == first);
  CHECK(choose(candidates, problem_of(72), h200) == first);
  CHECK(choose(candidates, problem_of(64), h200) == variant_of(64));
  CHECK(choose(candidates, problem_of(136), h200) == variant_of(256));
  CHECK(choose(candidates, problem_of(40, true), h200) == variant_of(128, true));
  CHECK_FALSE(choose(candidates, problem_of(136, true), h200).has_value());
  CHECK_FALSE(choose({}, problem_of(64), h200).has_value());

  const auto considered = consider(candidates, problem_of(72), h200);
  REQUIRE(considered.size() == candidates.size());
  CHECK(considered[1].refusals.empty());
  CHECK_FALSE(considered[3].refusals.empty());
}

TEST_CASE("plan covers every query row of every head") {
  const Variant variant = variant_of(128);
  Problem p = problem_of(128);
  const PrefillPlan made = plan(variant, p, h200);
  CHECK(made.grid.y == static_cast<unsigned>((1000 + variant.B_r - 1) / variant.B_r));
  CHECK(made.grid.x * made.grid.z >= 8 * 2);
  CHECK(made.grid.x * (made.grid.z - 1) < 8 * 2);  // no group without a head
  CHECK(made.threads == 32 * variant.warps);
  CHECK(made.shared_bytes == resources(variant).shared_bytes);

  p.seqlen_q = 1;
  CHECK(plan(variant, p, h200).grid.y == 1);
  p.seqlen_q = variant.B_r;
  CHECK(plan(variant, p, h200).grid.y == 1);
  p.seqlen_q = variant.B_r + 1;
  CHECK(plan(variant, p, h200).grid.y == 2);
  p.seqlen_q = 0;
  CHECK(plan(variant, p, h200).grid.blocks() == 0);
  p.seqlen_q = 1;
  p.batch = 0;
  CHECK(plan(variant, p, h200).grid.blocks() == 0);
}

TEST_CASE("a grid that no launch can have is refused in words") {
  const Variant variant = variant_of(128);
  const auto refused = [&](const Problem& problem, const std::string& words) {
    CHECK(mentions(refusals(variant, problem, h200), words));
    try {
      static_cast<void>(plan(variant, problem, h200));
      FAIL("planned");
    } catch (const Error& error) {
      CHECK(error.status() == ATTUNE_UNSUPPORTED);
      CHECK(std::string(error.what()).find(words) != std::string::npos);
    }
  };
  constexpr int longest = std::numeric_limits<int>::max();
  Problem p = problem_of(128);
  p.batch = longest;
  refused(p, "batch 2147483647");
  p.seqlen_q = longest;
  refused(p, "seqlen_q is 2147483647");
  p = problem_of(128);
  p.seqlen_q = 65535 * variant.B_r;
  CHECK(plan(variant, p, h200).grid.y == 65535);
  p.seqlen_q += 1;
  refused(p, "seqlen_q is");
}

TEST_CASE("a group is whole K/V heads whose K and V fit L2, or one; groups fit the grid") {
  const Variant variant = variant_of(128);
  const Variant causal_variant = variant_of(128, true);
  for (const bool causal : {false, true}) {
    for (const int batch : {1, 3, 64, 1'000'000}) {
      for (const int seqlen_k : {0, 1, 2000, 1 << 20, std::numeric_limits<int>::max()}) {
        for (const int heads_kv : {1, 2, 8}) {
          Problem p = problem_of(128, causal);
          p.batch = batch;
          p.seqlen_k = seqlen_k;
          p.heads_kv = heads_kv;
          CAPTURE(p.text());
          const Grid grid = plan(causal ? causal_variant : variant, p, h200).grid;
          const long long heads = 8LL * batch;
          const long long ratio = 8 / heads_kv;
          CHECK(grid.x % ratio == 0);
          CHECK(grid.x <= heads);
          CHECK(grid.z <= 65535);
          CHECK(1LL * grid.x * grid.z >= heads);
          const long long bytes = grid.x / ratio * 2LL * seqlen_k * 128 * 2;
          const bool forced = grid.z > 65535 / 2;  // wider than L2 likes, for the grid's sake
          if (!causal && grid.x > ratio && !forced) CHECK(bytes <= h200.l2_bytes);
        }
      }
    }
  }
}
