// Decode's problems, the choice of its kernels, and their launches.
#include <doctest/doctest.h>

#include <array>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "tests/unit/decode_plans.hpp"

namespace {

using namespace attune;
using namespace attune::testing;

std::string complaints(const DecodeProblem& problem) {
  std::string text;
  for (const std::string& line : problems_of(problem)) text += line + "\n";
  return text;
}

TEST_CASE("a decode problem says what it is") {
  CHECK(typical.text() == "decode bf16 d128 b4 hq32 hk8 lq1 lk4096 page16 right0");
  DecodeProblem other = typical;
  other.dtype = Dtype::fp16;
  other.table_width = 1;
  other.splits = 3;
  other.window_left = 128;
  other.softcap = 30;
  other.seqlen_new = 1;
  other.rotary = Rotary::interleaved;
  other.rotary_dim = 64;
  CHECK(other.text() == "decode fp16 d128 b4 hq32 hk8 lq1 lk4096 splits3 left128 right0 softcap30 new1 interleaved64");
  CHECK(other.store().text() == "store_kv fp16 d128 b4 hk8 t1 pages2000 page16 interleaved64");
  CHECK(typical.merge().text() == "combine bf16 d128");
  DecodeProblem ragged = typical;
  ragged.ragged = true;
  ragged.total_q = 7;
  CHECK(ragged.text() == typical.text() + " ragged tq7");
  CHECK(ragged.merge().text() == "combine bf16 d128 ragged");
  ragged.packed_keys = true;
  ragged.total_k = 90;
  ragged.page_size = ragged.table_width = 1;
  CHECK(ragged.text() == "decode bf16 d128 b4 hq32 hk8 lq1 lk4096 right0 ragged tq7 tk90");
}

TEST_CASE("every field of a decode problem is held to what kernels take") {
  CHECK(complaints(typical).empty());
  const auto with = [](auto DecodeProblem::*field, auto value) {
    DecodeProblem problem = typical;
    problem.*field = value;
    return complaints(problem);
  };
  CHECK(with(&DecodeProblem::seqlen_q, 17) == "seqlen_q is 17; it must be from 0 to 16\n");
  CHECK(with(&DecodeProblem::batch, -1) == "batch is -1; it must be at least 0\n");
  CHECK(with(&DecodeProblem::heads_kv, 5) == "heads_kv is 5; it must divide heads_q, which is 32\n");
  CHECK(with(&DecodeProblem::heads_q, 8 * 257) ==
        "heads_q is 2056; it must be at most 256 times heads_kv, which is 8\n");
  CHECK(with(&DecodeProblem::head_dim, 257) == "head_dim is 257; it must be from 1 to 256\n");
  CHECK(with(&DecodeProblem::max_seqlen_k, 4097) ==
        "max_seqlen_k is 4097; it must be at most table_width 256 x page_size 16\n");
  CHECK(with(&DecodeProblem::max_seqlen_k, -1) == "max_seqlen_k is -1; it must be from 0 to 1073741824\n");
  CHECK(with(&DecodeProblem::page_size, 0).starts_with("page_size is 0; it must be from 1"));
  CHECK(with(&DecodeProblem::pages, -1).starts_with("pages is -1; it must be from 0"));
  CHECK(with(&DecodeProblem::table_width, 0).starts_with("table_width is 0; it must be from 1"));
  CHECK(with(&DecodeProblem::splits, 257) == "splits is 257; it must be from 0 to 256\n");
  CHECK(with(&DecodeProblem::window_left, -2).starts_with("window_left is -2; it must be from -1"));
  CHECK(with(&DecodeProblem::window_right, -2).starts_with("window_right is -2; it must be from -1"));
}

TEST_CASE("the kernel has the least padding, then the rows that the problem needs") {
  const auto chosen = [](int head_dim, int seqlen_q, int page_size = 16) {
    DecodeProblem problem = typical;
    problem.head_dim = head_dim;
    problem.seqlen_q = seqlen_q;  // times four heads
    problem.table_width = (problem.max_seqlen_k + page_size - 1) / page_size;
    problem.page_size = page_size;
    return plan_of(problem).variant.name();
  };
  CHECK(chosen(128, 1) == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged_page16");
  CHECK(chosen(128, 4) == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged_page16");
  CHECK(chosen(128, 5) == "decode_sm80_bf16_d128_r32_c64_w4_s2_paged_page16");
  CHECK(chosen(96, 1, 4096) == "decode_sm80_bf16_d128_r16_c64_w4_s3");
  CHECK(chosen(40, 1) == "decode_sm80_bf16_d64_r16_c128_w4_s2_paged_page16");
  CHECK(chosen(160, 16) == "decode_sm80_bf16_d256_r16_c64_w4_s1_paged_page16");
  CHECK(chosen(128, 1, 48) == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged_page16");
  CHECK(chosen(128, 1, 24) == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged");
  CHECK(chosen(128, 1, 1) == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged");
}

TEST_CASE("a tile has the rows of all heads that share keys, where several tiles would read these again") {
  const auto own = [](int head_dim, int rows, int batch = 4) {
    DecodeProblem problem = typical;
    problem.batch = batch;
    problem.max_seqlen_k = 8192;
    problem.head_dim = head_dim;
    problem.heads_q = rows;
    problem.heads_kv = 1;
    problem.table_width = 1;
    const OwnChoice choice = choose_own(problem, h200);
    CHECK(choice.refusals.empty());
    return choice.variant.name();
  };
  CHECK(own(168, 16) == "decode_sm80_bf16_d176_r16_c64_w4_s1");
  CHECK(own(168, 28) == "decode_sm80_bf16_d176_r32_c64_w4_s1");
  CHECK(own(168, 40) == "decode_sm80_bf16_d176_r32_c64_w4_s1");
  CHECK(own(168, 71) == "decode_sm80_bf16_d176_r80_c64_w5_s1_splitrows");
  CHECK(own(128, 71) == "decode_sm80_bf16_d128_r80_c64_w5_s2_splitrows");
  CHECK(own(256, 20) == "decode_sm80_bf16_d256_r32_c64_w2_s1_splitrows");
  CHECK(own(160, 71) == "decode_sm80_bf16_d160_r80_c64_w5_s2_splitrows");
  CHECK(own(256, 71) == "decode_sm80_bf16_d256_r48_c64_w3_s1_splitrows");
  CHECK(own(256, 71, 17) == "decode_sm80_bf16_d256_r80_c64_w5_s1_splitrows");
  CHECK(own(64, 256) == "decode_sm80_bf16_d64_r128_c64_w4_s2_splitrows");
  CHECK(own(192, 128) == "decode_sm80_bf16_d192_r128_c64_w8_s1_splitrows");
}

TEST_CASE("parts of many rows and few keys are merged within clusters, where a GPU has them and a cluster their rows") {
  DecodeProblem problem = typical;
  problem.heads_q = 71;
  problem.heads_kv = 1;
  problem.equal_lengths = true;
  const auto in_cluster = [&](int batch, int seqlen_k, const Device& device = h200) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    const OwnChoice choice = choose_own(problem, device);
    CHECK(choice.refusals.empty());
    return choice.variant.cluster != 0;
  };
  CHECK(in_cluster(29, 4096));
  CHECK_FALSE(in_cluster(29, 4097));
  // In between a second kernel that merges more parts is faster, if lengths are known.
  CHECK_FALSE(in_cluster(30, 513));
  CHECK_FALSE(in_cluster(131, 513));
  CHECK(in_cluster(57, 512));
  problem.equal_lengths = false;
  CHECK(in_cluster(30, 4096));
  problem.equal_lengths = true;
  CHECK(in_cluster(132, 4096));
  CHECK(in_cluster(256, 4096));
  CHECK_FALSE(in_cluster(257, 4096));
  CHECK_FALSE(in_cluster(132, 4097));
  CHECK_FALSE(in_cluster(57, 512, device_of(*find_arch("sm_80"))));
  problem.splits = 9;  // more than a cluster has blocks
  CHECK_FALSE(in_cluster(1, 750));
  problem.splits = 0;
  problem.head_dim = 192;  // whose rows take more than the keys of a step
  CHECK_FALSE(in_cluster(20, 512));
  problem.head_dim = 128;
  problem.heads_q = 65;
  CHECK(in_cluster(20, 512));
  problem.heads_q = 64;
  CHECK_FALSE(in_cluster(20, 512));
  problem.heads_q = 160;  // two tiles
  CHECK(in_cluster(14, 513));
  CHECK_FALSE(in_cluster(15, 513));
}

TEST_CASE("parts of few rows and few keys are merged within clusters, up to as many keys as that is faster for") {
  struct Bound {
    int batch;
    int heads_kv;
    int head_dim;
    int most_keys;
    bool equal_lengths = true;
  };
  constexpr std::array bounds{
      // Clusters of six sequences of heads are 48 blocks, too few to read long ones at memory's speed.
      Bound{3, 2, 128, 4096},
      Bound{1, 7, 128, 16'384},
      Bound{2, 13, 128, 16'384},
      Bound{1, 7, 64, 8192},
      Bound{2, 8, 64, 8192},
      Bound{1, 17, 64, 4096},
      Bound{1, 7, 256, 1024},
      // Parts of more than a fifth of the multiprocessors fill the GPU without clusters.
      Bound{9, 3, 128, 2048},
      Bound{33, 2, 64, 2048},
      // Rows that share lines of L2 are kept in step by other means.
      Bound{3, 8, 96, 4096},
      Bound{7, 1, 96, 16'384},
      // One of several sequences may be long and the others short; the parts of one are alike.
      Bound{4, 8, 128, 4096, false},
      Bound{11, 3, 128, 2048, false},
      Bound{1, 8, 128, 16'384, false},
  };
  const auto in_cluster = [](const Bound& bound, int seqlen_k) {
    DecodeProblem problem = typical;
    set_sizes(problem, bound.batch, bound.heads_kv, bound.head_dim, seqlen_k);
    problem.equal_lengths = bound.equal_lengths;
    return problem.clusters() == Clusters::measured;
  };
  for (const Bound& bound : bounds) {
    CAPTURE(bound.batch);
    CAPTURE(bound.heads_kv);
    CAPTURE(bound.head_dim);
    CHECK(in_cluster(bound, bound.most_keys));
    CHECK_FALSE(in_cluster(bound, bound.most_keys + 1));
    CHECK(in_cluster(bound, 256));
    CHECK_FALSE(in_cluster(bound, 255));
  }
  CHECK_FALSE(in_cluster({67, 1, 64, 0}, 512));  // beyond half of the multiprocessors
}

TEST_CASE("clusters of few rows are for what kernels of theirs ship for, on those GPUs that they were measured on") {
  const auto asks = [](const auto& change) {
    DecodeProblem problem = typical;
    problem.max_seqlen_k = 2048;
    change(problem);
    return problem.clusters() == Clusters::measured;
  };
  CHECK(asks([](DecodeProblem&) {}));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.heads_q = 17 * p.heads_kv; }));  // two tiles of rows
  CHECK(asks([](DecodeProblem& p) { p.heads_q = 8 * p.heads_kv, p.seqlen_q = 2; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.splits = 2; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.softcap = 30; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.rotary = Rotary::halves; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.ragged = true, p.total_q = 7; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.head_dim = 123; }));
  CHECK_FALSE(asks([](DecodeProblem& p) { p.expressions.sink = 1; }));
  CHECK(asks([](DecodeProblem& p) { p.batch = 2, p.max_seqlen_k = 8192, p.equal_lengths = true; }));
  CHECK_FALSE(
      asks([](DecodeProblem& p) { p.batch = 2, p.max_seqlen_k = 8192, p.equal_lengths = true, p.page_size = 8; }));

  const Preference measured{.clusters = Clusters::measured};
  CHECK(prefers_clusters(measured, h200));
  Device other = h200;
  other.multiprocessors = 131;
  CHECK_FALSE(prefers_clusters(measured, other));
  other = h200;
  other.capability = 100;
  CHECK_FALSE(prefers_clusters(measured, other));
  CHECK(prefers_clusters({.clusters = Clusters::anywhere}, other));
  CHECK_FALSE(prefers_clusters({}, h200));
}

TEST_CASE(
    "kernels of clusters ship for each head_dim, element type and kind of pages, and serve before those for any GPU") {
  const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{specs / "decode.yaml", specs / "decode_sm90.yaml"});
  REQUIRE(collected.ok());
  std::vector<Variant> all;
  for (const Wanted& one : collected.value.wanted) all.push_back(one.variant);
  DecodeProblem problem = typical;
  problem.max_seqlen_k = 1000;
  for (const int head_dim : {40, 64, 80, 128, 136, 256}) {
    for (const int page_size : {1000, 16, 1}) {
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
        problem.head_dim = head_dim;
        problem.dtype = dtype;
        problem.page_size = page_size;
        problem.table_width = (1000 + page_size - 1) / page_size;
        const Variant chosen = choose(all, problem, h200).value();
        CHECK(chosen.cluster == 1);
        CHECK(plan(chosen, problem, h200).workspace_bytes == 0);
        Device smaller = h200;
        smaller.multiprocessors = 114;
        CHECK(choose(all, problem, smaller).value().cluster == 0);
        CHECK(choose(all, problem, device_of(*find_arch("sm_80"))).value().cluster == 0);
        CHECK(choose(all, problem, device_of(*find_arch("sm_100"))).value().cluster == 0);
      }
    }
  }
}

TEST_CASE("of ready kernels alike the one with clusters goes first where they are preferred, and last elsewhere") {
  DecodeProblem problem = typical;
  problem.heads_q = 71;
  problem.heads_kv = 1;
  problem.max_seqlen_k = 750;
  const Variant in_cluster = choose_own(problem, h200).variant;
  REQUIRE(in_cluster.cluster != 0);
  Variant alone = in_cluster;
  alone.cluster = 0;
  const auto chosen = [&](const DecodeProblem& one, const Device& device) {
    const std::optional<Variant> first = choose(std::vector{alone, in_cluster}, one, device);
    CHECK(first == choose(std::vector{in_cluster, alone}, one, device));
    return first;
  };
  CHECK(chosen(problem, h200) == in_cluster);
  CHECK(chosen(problem, device_of(*find_arch("sm_80"))) == alone);
  problem.max_seqlen_k = 8192;
  CHECK(chosen(problem, h200) == alone);
}

TEST_CASE("a multiprocessor holds as many blocks of warps with rows of their own as its quarters hold warps") {
  DecodeProblem problem = typical;
  problem.heads_q = 71;
  problem.heads_kv = 1;
  problem.max_seqlen_k = 8192;
  const auto blocks = [&](int head_dim, int rows = 71) {
    problem.head_dim = head_dim;
    problem.heads_q = rows;
    return blocks_per_multiprocessor(choose_own(problem, h200).variant, h200);
  };
  CHECK(blocks(64) == 3);  // 15 warps, four to a quarter, of 128 registers
  CHECK(blocks(112) == 3);
  CHECK(blocks(128) == 2);  // 10 warps, three to a quarter, of 168
  CHECK(blocks(192) == 2);
  CHECK(blocks(256) == 2);       // 6 warps, two to a quarter, of 255
  CHECK(blocks(128, 128) == 2);  // 8 warps of 32 rows
  CHECK(blocks(192, 128) == 1);
}

TEST_CASE("a kernel for one ratio of heads goes before others, and serves one query of its head_dim alone") {
  Variant any = families()[decode_sm80].defaults;
  Variant for_four = any;
  for_four.gqa_ratio = 4;
  for_four.one_query = 1;
  const std::vector<Variant> candidates{any, for_four};
  DecodeProblem problem = typical;
  problem.page_size = problem.max_seqlen_k;
  problem.table_width = 1;
  CHECK(choose(candidates, problem, h200) == for_four);
  CHECK(refusals(for_four, problem, h200).empty());
  const auto other = [&](const std::string& reason) {
    CHECK(choose(candidates, problem, h200) == any);
    CHECK(refusals(for_four, problem, h200) == std::vector{reason});
    CHECK(relaxed(for_four) == any);
  };
  problem.heads_q = 8 * problem.heads_kv;
  other("gqa_ratio: the kernel is for 4 alone, the problem has 8");
  problem.heads_q = 4 * problem.heads_kv;
  problem.seqlen_q = 2;
  other("one_query: the kernel is for true alone, the problem has false");
  problem.seqlen_q = 1;
  problem.head_dim = 120;
  other("head_dim: the kernel has 128, the problem 120");
}

TEST_CASE("a ragged batch is served by kernels for it alone, and they serve no other") {
  DecodeProblem ragged = typical;
  ragged.ragged = true;
  ragged.total_q = 7;
  CHECK_FALSE(choose(shipped(Operation::decode), ragged, h200));
  CHECK_FALSE(choose(shipped(Operation::combine), ragged.merge(), h200));
  const Variant own = variant_to_generate(ragged, h200);
  CHECK(own.name() == "decode_sm80_bf16_d128_r16_c64_w4_s3_paged_page16_ragged");
  CHECK(variant_to_generate(ragged.merge(), h200).name() == "combine_bf16_d128_w8_ragged");
  CHECK(refusals(own, ragged, h200).empty());
  CHECK(refusals(own, typical, h200).size() == 1);
  CHECK(ragged.ask() != typical.ask());
  CHECK(ragged.merge().ask() != typical.merge().ask());
}

TEST_CASE("packed keys are served by the kernels of ragged batches without pages, in parts for as many as there are") {
  DecodeProblem cached = typical;
  cached.ragged = true;
  cached.total_q = 7;
  cached.page_size = cached.max_seqlen_k;
  cached.table_width = 1;
  DecodeProblem packed = cached;
  packed.packed_keys = true;
  packed.total_k = 600;
  packed.page_size = packed.pages = 1;
  CHECK(packed.ask() == cached.ask());
  const Variant own = variant_to_generate(packed, h200);
  CHECK(own == variant_to_generate(cached, h200));
  CHECK(plan(own, packed, h200).parts == 3 * 4);  // of four steps of 64 keys
  CHECK(plan(own, cached, h200).parts == 8 * 4);
  // What is read counts, however long the longest sequence is said to be.
  cached.max_seqlen_k = cached.page_size = packed.max_seqlen_k = 20000;
  CHECK_FALSE(plan(own, cached, h200).evict_first);
  CHECK(plan(own, packed, h200).evict_first);
  packed.total_k = 4 * 20000;
  CHECK_FALSE(plan(own, packed, h200).evict_first);
}

TEST_CASE("no operation is served by another's kernels") {
  const Problem prefill{.head_dim = 128};
  CHECK_FALSE(choose(shipped(Operation::decode), prefill, h200));
  CHECK_FALSE(choose(shipped(Operation::combine), prefill, h200));
  CHECK_FALSE(choose(shipped(Operation::prefill), typical, h200));
  CHECK_FALSE(choose(shipped(Operation::combine), typical, h200));
  CHECK_FALSE(choose(shipped(Operation::decode), typical.merge(), h200));
  CHECK(choose(shipped(Operation::combine), typical.merge(), h200)->name() == "combine_bf16_d128_w8");
  Device old = h200;
  old.capability = 75;
  CHECK_FALSE(choose(shipped(Operation::decode), typical, old));
  CHECK_THROWS_AS(variant_to_generate(typical, old), Error);
}

TEST_CASE("problems that ask for the same have one kernel, shipped or generated") {
  std::map<Ask, std::pair<Variant, Variant>> decode;
  std::map<Ask, std::pair<Variant, Variant>> combining;
  std::vector<Variant> candidates = shipped(Operation::decode);
  for (const int ratio : {1, 4, 7}) {
    Variant& variant = candidates.emplace_back(families()[decode_sm80].defaults);
    variant.gqa_ratio = ratio;
    variant.one_query = 1;
  }
  const std::vector<Variant> merging = shipped(Operation::combine);
  Random random(3);
  const auto below = [&](int bound) { return static_cast<int>(random.below(static_cast<std::uint64_t>(bound))); };
  for (int i = 0; i < 3000; ++i) {
    DecodeProblem problem = typical;
    problem.dtype = static_cast<Dtype>(below(2));
    problem.seqlen_q = below(2) == 0 ? 1 : 1 + below(16);
    problem.heads_q = problem.heads_kv * (1 + below(20));
    problem.head_dim = 8 * (1 + below(32));
    problem.table_width = below(2) * 255 + 1;
    problem.splits = below(3);
    problem.window_left = below(2) - 1;
    if (below(2) == 0) problem.head_dim = 128;
    const std::pair found{choose(candidates, problem, h200).value(), choose_own(problem, h200).variant};
    CHECK(decode.try_emplace(problem.ask(), found).first->second == found);
    const std::pair merge{choose(merging, problem.merge(), h200).value(), choose_own(problem.merge(), h200).variant};
    CHECK(combining.try_emplace(problem.merge().ask(), merge).first->second == merge);
  }
  CHECK(decode.size() > 100);
}

TEST_CASE("what would be generated is feasible for every head_dim, on small GPUs too") {
  for (const Arch& arch : all_archs()) {
    const Device device = device_of(arch);
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      DecodeProblem problem = typical;
      problem.head_dim = head_dim;
      CAPTURE(arch.name);
      CAPTURE(head_dim);
      CHECK(choose_own(problem, device).refusals.empty());
      CHECK(choose_own(problem.merge(), device).refusals.empty());
      CHECK(check(choose_own(problem, device).variant).empty());
      CHECK(blocks_per_multiprocessor(choose_own(problem, device).variant, device) >= 1);
    }
  }
}

TEST_CASE("parts are merged by a warp for each row where they are few or rows are many") {
  DecodeProblem problem = typical;
  const auto by_warps = [&](int batch, int heads_q, int parts) {
    problem.batch = batch;
    problem.heads_q = heads_q;
    problem.splits = parts;
    return plan_of(problem).warp_rows;
  };
  CHECK(by_warps(1, 32, 4));
  CHECK_FALSE(by_warps(1, 32, 5));
  CHECK(by_warps(34, 32, 12));  // 1,088 rows: blocks would take two rounds
  CHECK_FALSE(by_warps(34, 32, 13));
  const DecodePlan planned = plan_of(problem);
  const Variant kernel = families()[combine].defaults;
  CHECK(combine_grid(planned, kernel) == planned.combine_grid);
  CHECK(by_warps(34, 32, 2));
  CHECK(combine_grid(plan_of(problem), kernel) == Grid{34, 4, 1});
}

TEST_CASE("a number of splits is kept, whatever the GPU") {
  DecodeProblem problem = typical;
  problem.seqlen_q = 16;  // 64 rows: two tiles of 32
  problem.splits = 3;
  const DecodePlan planned = plan_of(problem);
  CHECK(planned.grid == Grid{16, 3, 4});
  CHECK(planned.parts == 12);
  CHECK(planned.slots == 12);
  CHECK(planned.workspace_bytes == std::size_t{12} * 8 * 64 * (128 + 1) * 4);
  CHECK(planned.combine_grid == Grid{4, 8, 64});
  problem.splits = 1;
  CHECK(plan_of(problem).grid == Grid{16, 1, 4});
  CHECK(plan_of(problem).workspace_bytes == 0);
  CHECK_FALSE(plan_of(problem).combines());
  problem.batch = 65535;
  problem.splits = 2;
  CHECK(plan_of(problem).grid == Grid{16, 2, 65535});
  problem.batch = 65536;
  CHECK_THROWS_WITH_AS(plan_of(problem), "grid: the sequences are 65536; a launch takes up to 65535", Error);
}

TEST_CASE("the parts of a sequence make a cluster that the GPU holds with all others at once, and need no workspace") {
  DecodeProblem problem = typical;
  Variant variant = choose(shipped(Operation::decode), problem, h200).value();
  variant.cluster = 1;
  const auto planned = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan(variant, problem, h200);
  };
  CHECK(planned(1, 4096).splits == 8);
  CHECK(planned(1, 1 << 20).grid == Grid{8, 8, 1, 8});
  CHECK(planned(2, 4096).grid == Grid{8, 8, 2, 8});
  CHECK(planned(4, 4096).splits == 4);  // in eights 256 of 264 blocks, of which clusters of eight fill 240
  CHECK(planned(8, 4096).splits == 2);
  CHECK(planned(16, 4096).splits == 2);  // pairs find room everywhere
  CHECK(planned(64, 4096).grid == Grid{8, 1, 64, 1});
  CHECK(planned(1, 1024).splits == 8);  // two steps of 64 keys each
  CHECK(planned(1, 192).splits == 1);   // three are too few
  CHECK(planned(1, 1).splits == 1);
  CHECK(planned(8, 4096).workspace_bytes == 0);
  CHECK_FALSE(planned(8, 4096).combines());
  problem.splits = 3;
  CHECK(planned(2, 4096).grid == Grid{8, 3, 2, 3});
  CHECK(refusals(variant, problem, h200).empty());
  problem.splits = 9;
  const std::vector<std::string> reasons = refusals(variant, problem, h200);
  REQUIRE(reasons.size() == 1);
  CHECK(reasons.front() == "splits: a cluster has up to 8 blocks, the problem asks for 9 parts");
  problem.splits = 0;
  Device older = h200;
  older.capability = 80;
  CHECK(refusals(variant, problem, older).front() ==
        "arch: this GPU has compute capability 8.0; decode_sm80 with clusters needs 9.0 or newer");
}

TEST_CASE("keys give way in L2 where each is read once and they are at most four times what L2 keeps") {
  DecodeProblem problem = typical;
  CHECK(plan_of(problem).evict_first);  // 64 MiB, and L2 has 50
  problem.seqlen_q = 8;                 // one tile still
  CHECK(plan_of(problem).evict_first);
  problem.seqlen_q = 9;
  CHECK_FALSE(plan_of(problem).evict_first);
  problem = typical;
  problem.max_seqlen_k = 300;
  CHECK(plan_of(problem).evict_first);
  problem.max_seqlen_k = 4 * 4096;
  CHECK_FALSE(plan_of(problem).evict_first);
}

}  // namespace
