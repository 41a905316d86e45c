// Plans and choices for compute capability 9.0, where kernels of prefill_sm90 run beside those of prefill_sm80.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/prefill/balance.hpp"
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

Variant variant_of(int family, int head_dim, bool causal = false) {
  return default_variant(family, need_for(Dtype::bf16, head_dim, causal), h200.shared_per_block);
}

bool mentions(const std::vector<std::string>& messages, const std::string& word) {
  return std::ranges::any_of(messages, [&](const std::string& m) { return m.find(word) != std::string::npos; });
}

}  // namespace

TEST_CASE("a plan has a block for each multiprocessor, or for each tile where there are fewer") {
  const Variant variant = variant_of(prefill_sm90, 128);
  Problem problem = problem_of(128);
  PrefillPlan made = plan(variant, problem, h200);
  CHECK(made.q_blocks == 8);
  CHECK(made.grid == Grid{8 * 16, 1, 1});
  CHECK(made.threads == 384);
  CHECK(made.shared_bytes == resources(variant).shared_bytes);
  problem.batch = 3;
  CHECK(plan(variant, problem, h200).grid == Grid{132, 1, 1});
  problem.seqlen_q = 1;
  problem.batch = 1;
  made = plan(variant, problem, h200);
  CHECK(made.q_blocks == 1);
  CHECK(made.grid == Grid{8, 1, 1});
  problem.seqlen_q = 0;
  CHECK(plan(variant, problem, h200).grid.blocks() == 0);
}

TEST_CASE("with the full mask a group is the heads that share keys and values") {
  Variant variant = variant_of(prefill_sm90, 128);
  variant.stream_k = 0;
  for (const int heads_kv : {1, 2, 4, 8}) {
    for (const int seqlen_k : {1, 500, 2000, 16384, 1 << 20}) {
      for (const int batch : {1, 7, 100}) {
        Problem problem = problem_of(128);
        problem.heads_kv = heads_kv;
        problem.seqlen_k = seqlen_k;
        problem.batch = batch;
        CAPTURE(problem.text());
        CHECK(plan(variant, problem, h200).group_heads == 8 / heads_kv);
      }
    }
  }
}

TEST_CASE("blocks share the keys of the tiles behind whole rounds evenly, and each gets a tile's keys at least") {
  const Variant variant = variant_of(prefill_sm90, 128);
  REQUIRE(variant.stream_k == 1);
  for (const int batch : {1, 3, 16, 17, 20, 33, 34, 50, 1000}) {
    for (const int seqlen_k : {1, 128, 333, 1000, 2048, 100'000}) {
      Problem problem = problem_of(128);
      problem.batch = batch;
      problem.seqlen_k = seqlen_k;
      CAPTURE(problem.text());
      const PrefillPlan made = plan(variant, problem, h200);
      const auto blocks = static_cast<long long>(made.grid.x);
      const TileShares& shares = made.shares;
      const long long key_blocks = (seqlen_k + variant.B_c - 1) / variant.B_c;
      CHECK(shares.tiles == made.q_blocks * 8 * batch);
      if (made.workspace_bytes == 0) {
        CHECK(shares.whole_tiles == shares.tiles);
        CHECK(shares.share == 0);
        CHECK(shares.longer_shares == 0);
        const long long spared = (blocks - shares.tiles % blocks) % blocks;
        CHECK(spared * seqlen_k < 300 * blocks);
        continue;
      }
      CHECK(shares.whole_tiles % blocks == 0);
      CHECK(shares.share >= key_blocks);
      CHECK(shares.share * blocks + shares.longer_shares == (shares.tiles - shares.whole_tiles) * key_blocks);
      CHECK(shares.longer_shares < blocks);
      // Of each of 8 warps 32 lanes with 64 floats of O and 4 of its rows, and a word.
      CHECK(made.workspace_bytes == static_cast<std::size_t>(blocks) * 8 * (32 * 68 * 4 + 8));
    }
  }
}

TEST_CASE("with the causal mask the group is the balanced one, the second time too") {
  const Variant variant = variant_of(prefill_sm90, 128, true);
  for (const int seqlen : {100, 512, 4096, 512, 100}) {
    Problem problem = problem_of(128, true);
    problem.batch = 16;
    problem.seqlen_q = problem.seqlen_k = seqlen;
    CAPTURE(seqlen);
    const PrefillPlan made = plan(variant, problem, h200);
    const int balanced = choose_group_heads({.q_blocks = made.q_blocks,
                                             .heads = 128,
                                             .gqa_ratio = 4,
                                             .B_r = variant.B_r,
                                             .rows_per_query = 1,
                                             .B_c = variant.B_c,
                                             .seqlen_q = seqlen,
                                             .seqlen_k = seqlen,
                                             .causal = true,
                                             .multiprocessors = static_cast<int>(made.grid.x),
                                             .bytes_per_head = 4LL * seqlen * 128 / 4,
                                             .l2_bytes = h200.l2_bytes});
    CHECK(made.group_heads == balanced);
  }
}

TEST_CASE("a plan of a kernel with a tile list has the list, the same one the second time, and others have none") {
  Variant variant = variant_of(prefill_sm90, 128, true);
  Problem problem = problem_of(128, true);
  problem.seqlen_q = problem.seqlen_k = 4096;
  CHECK(plan(variant, problem, h200).tiles == nullptr);
  variant.tile_list = 1;
  const PrefillPlan made = plan(variant, problem, h200);
  REQUIRE(made.tiles != nullptr);
  const int tiles = made.q_blocks * problem.batch * problem.heads_q;
  CHECK(made.tiles->first[made.grid.x] == tiles);
  CHECK(plan(variant, problem, h200).tiles == made.tiles);
}

TEST_CASE("a ragged batch whose totals make all sequences as long as the longest has the dense one's list") {
  Variant variant = variant_of(prefill_sm90, 128, true);
  variant.tile_list = 1;
  Problem problem = problem_of(128, true);
  problem.seqlen_q = problem.seqlen_k = 4096;
  const PrefillPlan dense = plan(variant, problem, h200);
  variant.ragged = 1;
  problem.ragged = true;
  problem.total_q = problem.total_k = problem.batch * 4096;
  CHECK(refusals(variant, problem, h200).empty());
  const PrefillPlan ragged = plan(variant, problem, h200);
  REQUIRE(ragged.tiles != nullptr);
  CHECK(std::ranges::equal(ragged.tiles->first, dense.tiles->first));
  CHECK(std::ranges::equal(ragged.tiles->tiles, dense.tiles->tiles));
  const auto full = problem.ask();
  for (int Problem::*total : {&Problem::total_q, &Problem::total_k}) {
    Problem shorter = problem;
    --(shorter.*total);
    REQUIRE(refusals(variant, shorter, h200).size() == 1);
    CHECK(refusals(variant, shorter, h200)[0] ==
          "tile_list: a list is balanced for sequences of one length, which the totals deny");
    CHECK(shorter.ask() != full);
  }
}

TEST_CASE("a tile list has room for 8,192 tiles on 160 multiprocessors") {
  Variant variant = variant_of(prefill_sm90, 128, true);
  variant.tile_list = 1;
  Problem problem = problem_of(128, true);
  problem.heads_q = problem.heads_kv = 64;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = 128 * variant.B_r;
  Device large = h200;
  large.multiprocessors = 1000;
  CHECK(refusals(variant, problem, large).empty());
  CHECK(plan(variant, problem, large).grid.x == 160);
  CHECK(plan(variant, problem, large).tiles->first[160] == 8192);
  ++problem.seqlen_q;
  REQUIRE(refusals(variant, problem, large).size() == 1);
  CHECK(refusals(variant, problem, large)[0] == "tile_list: 64 heads of 129 tiles are more than 8192");
}

TEST_CASE("groups of a ragged batch are those of as many of its longest as its queries make") {
  for (const bool causal : {false, true}) {
    Problem dense = problem_of(128, causal);
    dense.batch = 16;
    dense.seqlen_q = dense.seqlen_k = 4096;
    Problem ragged = dense;
    ragged.ragged = true;
    Variant plain = variant_of(prefill_sm90, 128, causal);
    plain.tile_list = plain.stream_k = 0;
    Variant variant = plain;
    variant.ragged = 1;
    for (const int sequences : {16, 3, 1}) {
      ragged.total_q = ragged.total_k = sequences * 4096 + 100;
      dense.batch = sequences;
      const PrefillPlan planned = plan(variant, ragged, h200);
      // 5 heads have 132 tiles, and a third of L2 holds the keys of 10 K/V heads, which 4 query heads share.
      CHECK(planned.group_heads == std::max(causal ? 8 : 40, plan(plain, dense, h200).group_heads));
      CHECK(planned.grid.x == 132);
      CHECK(planned.q_blocks == 32);
    }
    ragged.total_q = ragged.total_k = 0;
    CHECK(plan(variant, ragged, h200).group_heads > 0);
  }
}

TEST_CASE("a group of a ragged batch's heads has tiles for all blocks, or each would look at many groups") {
  Variant variant = variant_of(prefill_sm90, 128, false);
  variant.ragged = 1;
  Problem problem = problem_of(128, false);
  problem.ragged = true;
  problem.batch = 32;
  for (const int seqlen : {16, 500, 1000}) {
    CAPTURE(seqlen);
    problem.seqlen_q = problem.seqlen_k = seqlen;
    problem.total_q = problem.total_k = 32 * seqlen;
    const PrefillPlan planned = plan(variant, problem, h200);
    CHECK(planned.group_heads * planned.q_blocks >= static_cast<int>(planned.grid.x));
  }
}

TEST_CASE("more tiles than the blocks can count are refused in words") {
  Problem problem = problem_of(128);
  problem.batch = std::numeric_limits<int>::max();
  const Variant variant = variant_of(prefill_sm90, 128);
  CHECK(mentions(refusals(variant, problem, h200), "split the batch"));
  CHECK_THROWS_AS(static_cast<void>(plan(variant, problem, h200)), Error);
}

TEST_CASE("what tensor maps cannot express is refused with the reason") {
  const Variant variant = variant_of(prefill_sm90, 128);
  CHECK(refusals(variant, problem_of(128), h200).empty());
  Problem problem = problem_of(128);
  problem.seqlen_k = 0;
  CHECK(mentions(refusals(variant, problem, h200), "a tensor map holds at least one key"));
  problem = problem_of(128);
  problem.mappable_strides = false;
  CHECK(mentions(refusals(variant, problem, h200), "which no tensor map takes"));
  CHECK(refusals(variant_of(prefill_sm80, 128), problem, h200).empty());
}

TEST_CASE("long sequences prefer tiles of 192 queries, short ones those that compute the fewest that do not exist") {
  const auto best = [](int seqlen_q) {
    Problem problem = problem_of(128);
    problem.seqlen_q = seqlen_q;
    return problem.best_B_r();
  };
  for (const int seqlen_q : {1, 64}) CHECK(best(seqlen_q) == 64);
  for (const int seqlen_q : {65, 128, 256, 512, 1024}) CHECK(best(seqlen_q) == 128);
  for (const int seqlen_q : {129, 192, 384, 576, 2048, 4096, 16384, 1 << 30}) CHECK(best(seqlen_q) == 192);
}

TEST_CASE("among tiles of one head_dim the sequence's length chooses") {
  Variant longer = variant_of(prefill_sm90, 128);
  longer.B_r = 192;
  longer.B_c = 80;
  Variant shorter = longer;
  shorter.B_r = 128;
  Problem problem = problem_of(128);
  for (const auto& candidates : {std::vector{longer, shorter}, std::vector{shorter, longer}}) {
    problem.seqlen_q = 512;
    CHECK(choose(candidates, problem, h200) == shorter);
    problem.seqlen_q = 40;
    CHECK(choose(candidates, problem, h200) == shorter);
    problem.seqlen_q = 4096;
    CHECK(choose(candidates, problem, h200) == longer);
  }
}

TEST_CASE("the best number of rows is the same for any number of keys, packed or not") {
  for (const int seqlen_q : {40, 200, 512, 4096}) {
    Problem problem = problem_of(128);
    problem.seqlen_q = seqlen_q;
    const int best = problem.best_B_r();
    const int best_packed = problem.best_B_r(true);
    for (const int seqlen_k : {0, 1, 1000, 2047, 2048, 16384, 1 << 30}) {
      problem.seqlen_k = seqlen_k;
      CHECK(problem.best_B_r() == best);
      CHECK(problem.best_B_r(true) == best_packed);
    }
  }
}

TEST_CASE("among tiles of one head_dim B_r alone chooses: the number of keys has no say, whatever B_c they have") {
  const Variant shorter = variant_of(prefill_sm90, 128);
  Variant longer = shorter;
  longer.B_c = 160;
  Variant lower = shorter;
  lower.B_r = 64;
  lower.ping_pong = 0;
  Problem problem = problem_of(128);
  problem.seqlen_q = 512;
  std::vector<Variant> candidates{lower, longer, shorter};
  std::ranges::sort(candidates);
  do {
    problem.seqlen_k = 1;
    const std::optional<Variant> chosen = choose(candidates, problem, h200);
    REQUIRE(chosen);
    CHECK(chosen->B_r == 128);
    for (const int seqlen_k : {2047, 2048, 16384}) {
      problem.seqlen_k = seqlen_k;
      CHECK(choose(candidates, problem, h200) == chosen);
      CHECK(choose(std::vector{lower, shorter}, problem, h200) == shorter);
      CHECK(choose(std::vector{lower, longer}, problem, h200) == longer);
    }
  } while (std::next_permutation(candidates.begin(), candidates.end()));
}

TEST_CASE("among candidates the newest family comes first, then the least padding") {
  const std::vector<Variant> candidates{variant_of(prefill_sm80, 64),  variant_of(prefill_sm80, 128),
                                        variant_of(prefill_sm90, 256), variant_of(prefill_sm90, 128),
                                        variant_of(prefill_sm80, 256), variant_of(prefill_sm90, 64)};
  CHECK(choose(candidates, problem_of(128), h200) == variant_of(prefill_sm90, 128));
  CHECK(choose(candidates, problem_of(96), h200) == variant_of(prefill_sm90, 128));
  CHECK(choose(candidates, problem_of(64), h200) == variant_of(prefill_sm90, 64));
  CHECK(choose(candidates, problem_of(48), h200) == variant_of(prefill_sm90, 64));
  CHECK(choose(candidates, problem_of(192), h200) == variant_of(prefill_sm90, 256));
  // Up to head_dim 64 the exponentials limit a kernel, which padding does not add to.
  CHECK(choose(candidates, problem_of(32), h200) == variant_of(prefill_sm90, 64));
  CHECK(choose(candidates, problem_of(80), h200) == variant_of(prefill_sm90, 128));
  Problem no_keys = problem_of(128);
  no_keys.seqlen_k = 0;
  CHECK(choose(candidates, no_keys, h200) == variant_of(prefill_sm80, 128));
  Device newer = h200;
  newer.capability = 100;
  CHECK(choose(candidates, problem_of(128), newer) == variant_of(prefill_sm80, 128));
  const std::vector<Variant> wasteful{variant_of(prefill_sm90, 256)};
  CHECK(choose(wasteful, problem_of(64), h200) == wasteful.front());  // better than none
}

TEST_CASE("what is generated comes from the newest family that serves") {
  const auto own = [](const Problem& problem, const Device& device = h200) { return choose_own(problem, device); };
  CHECK(own(problem_of(128)).variant == variant_of(prefill_sm90, 128));
  CHECK(own(problem_of(128)).passed_over.empty());
  for (const bool causal : {false, true}) {
    Problem many_keys = problem_of(128, causal);
    many_keys.seqlen_k = 16384;
    CHECK(own(many_keys).variant == variant_of(prefill_sm90, 128, causal));
  }
  Problem longer = problem_of(80);
  longer.seqlen_q = 4096;
  CHECK(own(longer).variant == variant_of(prefill_sm90, 96));
  CHECK(own(problem_of(80)).variant == default_variant(prefill_sm90, need_for(Dtype::bf16, 96), 227 * 1024, 128));
  CHECK(own(problem_of(160)).variant == variant_of(prefill_sm90, 192));

  longer.head_dim = 40;
  CHECK(own(longer).variant == variant_of(prefill_sm90, 64));
  CHECK(own(problem_of(40)).variant == default_variant(prefill_sm90, need_for(Dtype::bf16, 64), 227 * 1024, 128));
  CHECK(own(problem_of(40)).passed_over.empty());

  Device newer = h200;
  newer.capability = 100;
  CHECK(own(problem_of(128), newer).variant == variant_of(prefill_sm80, 128));
  CHECK(own(problem_of(128), newer).passed_over.empty());
}

TEST_CASE("V and O may have a head_dim of their own, up to the kernel's") {
  const Variant own = default_variant(prefill_sm90, need_for(Dtype::bf16, 192, false, 128), h200.shared_per_block, 128);
  const Variant whole = variant_of(prefill_sm90, 192);
  REQUIRE(own.head_dim_v == 128);
  const auto with_v = [](int head_dim, int head_dim_v) {
    Problem problem = problem_of(head_dim);
    problem.head_dim_v = head_dim_v;
    return problem;
  };
  for (const int head_dim_v : {8, 96, 128}) CHECK(refusals(own, with_v(192, head_dim_v), h200).empty());
  CHECK(refusals(own, with_v(160, 96), h200).empty());
  CHECK(refusals(whole, with_v(64, 192), h200).empty());
  CHECK(
      mentions(refusals(own, with_v(192, 136), h200), "head_dim_v: the kernel serves up to 128, the problem has 136"));
  CHECK(mentions(refusals(own, problem_of(192), h200), "head_dim_v: the kernel serves up to 128, the problem has 192"));
  CHECK(mentions(refusals(variant_of(prefill_sm80, 192), with_v(192, 128), h200),
                 "head_dim_v: prefill_sm80 has no kernels with it, the problem has 128"));
  CHECK(refusals(variant_of(prefill_sm80, 192), with_v(192, 192), h200).empty());
  CHECK(plan(own, with_v(160, 96), h200).head_dim_v == 96);
  CHECK(plan(own, problem_of(96), h200).head_dim_v == 96);

  const std::vector<Variant> candidates{variant_of(prefill_sm90, 256), whole, own, variant_of(prefill_sm90, 128)};
  CHECK(choose(candidates, with_v(192, 128), h200) == own);
  CHECK(choose(candidates, with_v(160, 96), h200) == own);
  CHECK(choose(candidates, with_v(192, 136), h200) == whole);
  CHECK(choose(candidates, problem_of(192), h200) == whole);
  CHECK(choose(candidates, with_v(200, 64), h200) == candidates[0]);
  CHECK(choose(candidates, with_v(128, 64), h200) == candidates[3]);

  CHECK(choose_own(with_v(192, 128), h200).variant == own);
  CHECK(choose_own(with_v(24, 16), h200).variant.head_dim == 64);  // no older family would pad less
  CHECK(choose_own(with_v(24, 16), h200).refusals.empty());
  Device older = h200;
  older.capability = 80;
  CHECK(mentions(choose_own(with_v(192, 128), older).refusals, "head_dim_v: prefill_sm80 has no kernels with it"));
}

TEST_CASE("a problem's text names the head_dim of V where it is another") {
  Problem problem = problem_of(192);
  CHECK(problem.text() == "bf16 d192 b2 hq8 hk2 lq1000 lk2000");
  problem.head_dim_v = 192;
  CHECK(problem.text() == "bf16 d192 b2 hq8 hk2 lq1000 lk2000");
  problem.head_dim_v = 128;
  CHECK(problem.text() == "bf16 d192v128 b2 hq8 hk2 lq1000 lk2000");
}

TEST_CASE("groups of heads count the bytes of keys and of values apart") {
  const Variant variant = variant_of(prefill_sm90, 192, true);
  Problem problem = problem_of(192, true);
  problem.batch = 8;
  problem.seqlen_q = problem.seqlen_k = 4864;
  const int even = plan(variant, problem, h200).group_heads;
  problem.head_dim_v = 128;
  CHECK(plan(variant, problem, h200).group_heads > even);
}

TEST_CASE("emulated calls are served by the kernels that serve an H200") {
  Device gpu = emulator::device();
  gpu.name = "NVIDIA H200";
  for (const int head_dim : {64, 128, 192, 256}) {
    CHECK(choose_own(problem_of(head_dim), emulator::device()).variant ==
          choose_own(problem_of(head_dim), gpu).variant);
  }
  CHECK(choose_own(problem_of(128), gpu).variant.family == prefill_sm90);
}
