// The problems of store_kv and merge_states, the choice of their kernels, and their launches.
#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "generator/collect.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/merge/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"

namespace {

using namespace attune;

const Device h200 = emulator::device();

const StoreProblem typical{.batch = 2,
                           .tokens = 5,
                           .heads_kv = 8,
                           .head_dim = 128,
                           .page_size = 16,
                           .pages = 100,
                           .table_width = 40,
                           .rotary = Rotary::halves,
                           .rotary_dim = 64,
                           .rotations = 4096};

const MergeProblem plain{.batch = 2, .seqlen = 1000, .heads = 32, .head_dim = 64};

std::vector<Variant> shipped() {
  const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{specs / "prefill_sm80.yaml", specs / "combine.yaml",
                                                           specs / "merge_states.yaml", specs / "store_kv.yaml"});
  REQUIRE(collected.ok());
  std::vector<Variant> variants;
  for (const Wanted& one : collected.value.wanted) variants.push_back(one.variant);
  return variants;
}

template <class AnyProblem>
std::string complaints(const AnyProblem& problem) {
  std::string text;
  for (const std::string& line : problems_of(problem)) text += line + "\n";
  return text;
}

/// The typical problem with one thing changed.
template <class Change>
StoreProblem with(const Change& change) {
  StoreProblem problem = typical;
  change(problem);
  return problem;
}

}  // namespace

TEST_CASE("problems of stores and merges say what they are") {
  CHECK(typical.text() == "store_kv bf16 d128 b2 hk8 t5 pages100 page16 halves64");
  CHECK(with([](auto& p) { p.rotary = Rotary::none; }).text() == "store_kv bf16 d128 b2 hk8 t5 pages100 page16");
  CHECK(plain.text() == "merge_states bf16 d64 b2 h32 l1000");
}

TEST_CASE("what no kernel could store is named") {
  CHECK(complaints(typical).empty());
  CHECK(complaints(with([](auto& p) { p.rotary_dim = 24; })) ==
        "rotary_dim is 24; it must be a multiple of 16, and at most head_dim, which is 128\n");
  CHECK(complaints(with([](auto& p) { p.rotary_dim = 144; })) ==
        "rotary_dim is 144; it must be a multiple of 16, and at most head_dim, which is 128\n");
  CHECK_FALSE(complaints(with([](auto& p) { p.rotary_dim = 0; })).empty());
  CHECK_FALSE(complaints(with([](auto& p) { p.rotary_dim = -16; })).empty());
  CHECK_FALSE(complaints(with([](auto& p) { p.rotations = 0; })).empty());
  CHECK(complaints(with([](auto& p) { p.rotary = Rotary::none, p.rotary_dim = 7, p.rotations = -1; })).empty());
  CHECK(complaints(with([](auto& p) { p.rotary = static_cast<Rotary>(3); })).starts_with("rotary is 3; "));
  CHECK(complaints(with([](auto& p) { p.dtype = static_cast<Dtype>(9); })).starts_with("dtype is 9"));
  CHECK(complaints(with([](auto& p) { p.page_size = 0, p.table_width = 0; })) ==
        "page_size is 0; it must be from 1 to 1073741824\ntable_width is 0; it must be from 1 to 1073741824\n");
  CHECK(complaints(with([](auto& p) { p.head_dim = 12, p.heads_kv = 0, p.tokens = -1, p.batch = -1; })).size() > 100);
  MergeProblem merge = plain;
  CHECK(complaints(merge).empty());
  merge.heads = 0;
  merge.head_dim = 264;
  CHECK(complaints(merge) ==
        "heads is 0; it must be at least 1\nhead_dim is 264; it must be a multiple of 8 from 8 to 256\n");
}

TEST_CASE("what has no rows is empty") {
  CHECK_FALSE(is_empty(typical));
  CHECK(is_empty(with([](auto& p) { p.batch = 0; })));
  CHECK(is_empty(with([](auto& p) { p.tokens = 0; })));
  CHECK(is_empty(with([](auto& p) { p.pages = 0; })));
  MergeProblem merge = plain;
  CHECK_FALSE(is_empty(merge));
  merge.seqlen = 0;
  CHECK(is_empty(merge));
}

TEST_CASE("the kernel of a problem has its element type and rotation, and what is asked tells them apart") {
  const std::vector<Variant> candidates = shipped();
  std::set<Ask> asks;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const Rotary rotary : {Rotary::none, Rotary::interleaved, Rotary::halves}) {
      const StoreProblem problem = with([&](auto& p) { p.dtype = dtype, p.rotary = rotary; });
      const Variant variant = choose(candidates, problem, h200).value();
      CHECK(variant.family == store_kv);
      CHECK(variant.dtype == static_cast<int>(dtype));
      CHECK(variant.rotary == static_cast<int>(rotary));
      CHECK(variant == choose_own(problem, h200).variant);
      CHECK(refusals(variant, problem, h200).empty());
      CHECK(asks.insert(problem.ask()).second);
    }
    MergeProblem merge = plain;
    merge.dtype = dtype;
    const Variant variant = choose(candidates, merge, h200).value();
    CHECK(variant.family == merge_states);
    CHECK(variant.dtype == static_cast<int>(dtype));
    CHECK(variant == choose_own(merge, h200).variant);
  }
  CHECK_FALSE(choose(std::vector<Variant>{families()[store_kv].defaults}, plain, h200).has_value());
  CHECK(refusals(families()[store_kv].defaults, typical, h200) ==
        std::vector<std::string>{"rotary: the kernel has none, the problem halves"});
}

TEST_CASE("a launch has a thread for each eight elements, and numbers them in 32 bits") {
  const Launch store = plan(choose_own(typical, h200).variant, typical);
  CHECK(store.threads == 128);
  CHECK(store.grid == Grid{10, 1, 1});  // 2 x 5 x 8 rows of 16 chunks
  const Launch uneven = plan(choose_own(typical, h200).variant, with([](auto& p) { p.head_dim = 136; }));
  CHECK(uneven.grid == Grid{11, 1, 1});
  const Launch merge = plan(choose_own(plain, h200).variant, plain);
  CHECK(merge.grid == Grid{4000, 1, 1});
  // The most, and one token more.
  const auto of_tokens = [](int tokens) {
    return with([&](auto& p) { p.batch = 1, p.tokens = tokens, p.heads_kv = 8; });
  };
  CHECK(plan(choose_own(typical, h200).variant, of_tokens(1 << 24)).grid == Grid{1U << 24U, 1, 1});
  CHECK_THROWS_AS(plan(choose_own(typical, h200).variant, of_tokens((1 << 24) + 1)), Error);
  const MergeProblem huge{.batch = 1 << 30, .seqlen = 1 << 30, .heads = 1 << 30, .head_dim = 256};
  CHECK_THROWS_AS(plan(choose_own(huge, h200).variant, huge), Error);
}
