// Plans and choices for kernels with pack_gqa, beside those without.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/operations/prefill/balance.hpp"
#include "runtime/operations/prefill/plan.hpp"

using namespace attune;

namespace {

const Device h200 = device_of(*find_arch("sm_90"));

Problem problem_of(int seqlen_q, int ratio, bool causal = false) {
  return {.dtype = Dtype::bf16,
          .batch = 3,
          .heads_q = 2 * ratio,
          .heads_kv = 2,
          .seqlen_q = seqlen_q,
          .seqlen_k = 2000,
          .head_dim = 128,
          .causal = causal};
}

Variant tile_of(int B_r) {
  Variant variant = families()[prefill_sm90].defaults;
  variant.B_r = B_r;
  variant.B_c = 64;
  variant.ping_pong = B_r > 64 ? 1 : 0;
  return variant;
}

Variant packed(Variant variant, int ratio) {
  variant.gqa_ratio = ratio;
  variant.pack_gqa = 1;
  return variant;
}

bool mentions(const std::vector<std::string>& messages, const std::string& word) {
  return std::ranges::any_of(messages, [&](const std::string& m) { return m.find(word) != std::string::npos; });
}

/// Those of 64, 128 and 192 whose bits are set.
std::vector<Variant> tiles_in(unsigned set) {
  std::vector<Variant> result;
  for (unsigned i = 0; i < tile_rows.size(); ++i) {
    if ((set >> i & 1U) != 0) result.push_back(tile_of(tile_rows.at(i)));
  }
  return result;
}

}  // namespace

TEST_CASE("packed, a tile's rows are queries of all heads of a group, and K/V heads take the place of query heads") {
  const Variant variant = packed(tile_of(128), 8);
  REQUIRE(check(variant).empty());
  for (const auto& [seqlen_q, tiles] : {std::pair{1, 1}, {16, 1}, {17, 2}, {130, 9}}) {
    const PrefillPlan made = plan(variant, problem_of(seqlen_q, 8), h200);
    CHECK(made.q_blocks == tiles);
    CHECK(made.grid == Grid{static_cast<unsigned>(6 * tiles), 1, 1});
    CHECK(made.group_heads == 1);
  }
  CHECK(plan(variant, problem_of(0, 8), h200).grid.blocks() == 0);
}

TEST_CASE("packed, a group has K/V heads, with all their bytes") {
  Problem problem = problem_of(100, 8);
  problem.batch = 50;
  problem.causal = true;
  Variant causal = packed(tile_of(128), 8);
  causal.causal = 1;
  const PrefillPlan made = plan(causal, problem, h200);
  CHECK(made.group_heads == choose_group_heads({.q_blocks = 7,
                                                .heads = 100,
                                                .gqa_ratio = 1,
                                                .B_r = 128,
                                                .rows_per_query = 8,
                                                .B_c = 64,
                                                .seqlen_q = 100,
                                                .seqlen_k = 2000,
                                                .causal = true,
                                                .multiprocessors = 132,
                                                .bytes_per_head = 2000 * 512,
                                                .l2_bytes = h200.l2_bytes}));
}

TEST_CASE("packed rows that an int cannot count are refused in words") {
  const Variant variant = packed(tile_of(128), 64);
  Problem problem = problem_of(1 << 24, 64);
  problem.batch = 1;
  CHECK(refusals(variant, problem, h200).empty());
  CHECK(problem.is_packable());
  ++problem.seqlen_q;
  CHECK(mentions(refusals(variant, problem, h200), "kernels with pack_gqa take up to 16777216 of 64 heads"));
  CHECK_FALSE(problem.is_packable());
  CHECK(refusals(tile_of(128), problem, h200).empty());
}

TEST_CASE("a packed kernel serves its own ratio alone, and is chosen where it computes fewer rows") {
  for (const auto& candidates :
       {std::vector{tile_of(128), packed(tile_of(128), 8)}, std::vector{packed(tile_of(128), 8), tile_of(128)}}) {
    const auto takes_packed = [&](int seqlen_q, int ratio) {
      return choose(candidates, problem_of(seqlen_q, ratio), h200)->pack_gqa != 0;
    };
    for (const int seqlen_q : {1, 3, 40, 112, 130, 240, 1000}) CHECK(takes_packed(seqlen_q, 8));
    for (const int seqlen_q : {113, 128, 256, 255, 1024}) CHECK_FALSE(takes_packed(seqlen_q, 8));
    for (const int ratio : {1, 2, 4, 6, 16}) CHECK_FALSE(takes_packed(1, ratio));
  }
  // Neither a newer family nor a narrower tile is given up for it.
  Variant wide = packed(tile_of(128), 8);
  wide.head_dim = 192;
  CHECK(choose(std::vector{wide, tile_of(128)}, problem_of(1, 8), h200) == tile_of(128));
  Variant narrow = tile_of(128);
  narrow.head_dim = 192;
  CHECK(choose(std::vector{narrow, packed(tile_of(128), 8)}, problem_of(1024, 8), h200)->pack_gqa == 1);
  CHECK(choose(std::vector{Variant{}, packed(tile_of(128), 8)}, problem_of(1024, 8), h200)->pack_gqa == 1);
}

TEST_CASE("of packed tiles the number of packed rows chooses") {
  const std::vector<Variant> candidates{packed(tile_of(192), 4), packed(tile_of(64), 4), packed(tile_of(128), 4)};
  CHECK(choose(candidates, problem_of(1, 4), h200)->B_r == 64);
  CHECK(choose(candidates, problem_of(17, 4), h200)->B_r == 128);
  CHECK(choose(candidates, problem_of(48, 4), h200)->B_r == 192);
}

TEST_CASE("problems that ask for the same choose the same kernel, whatever tiles there are") {
  for (unsigned plain_set = 1; plain_set < 8; ++plain_set) {
    for (unsigned packed_set = 1; packed_set < 8; ++packed_set) {
      for (const int ratio : {2, 8, 64}) {
        std::vector<Variant> candidates = tiles_in(plain_set);
        for (const Variant& variant : tiles_in(packed_set)) candidates.push_back(packed(variant, ratio));
        for (std::size_t i = candidates.size(); i-- > 0;) {
          candidates[i].stages = 1;
          candidates[i].B_c = 112;
          candidates.push_back(candidates[i]);
          candidates.back().B_c = 160;
        }
        std::map<Ask, Variant> known;
        bool same = true;
        for (int seqlen_q = 1; seqlen_q < 600; ++seqlen_q) {
          Problem problem = problem_of(seqlen_q, ratio);
          problem.seqlen_k = 1900 + seqlen_q;
          const Variant chosen = choose(candidates, problem, h200).value();
          const auto [entry, is_new] = known.try_emplace(problem.ask(), chosen);
          same = same && entry->second == chosen;
        }
        CHECK(same);
      }
    }
  }
  for (const int ratio : {1, 3, 12, 128}) CHECK(problem_of(1, ratio).packing() == 0);
}
