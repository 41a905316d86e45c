// Which sequences of a ragged batch are decode's, by what the host knows, and what follows from it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/call/device.hpp"
#include "runtime/choice/explain.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"
#include "runtime/record/workload.hpp"

using namespace attune;

namespace {

const Device h200 = find_gpu_device("h200").value();

/// Chunks of as many queries and sequences of one, in a cache.
RaggedSizes mixed(int chunks, int queries, int others, int gqa_ratio = 4) {
  return {.batch = chunks + others,
          .longest = queries,
          .total = chunks * queries + others,
          .more_keys = true,
          .gqa_ratio = gqa_ratio};
}

/// As `among` of the benchmark: no sequence has more keys than queries.
RaggedSizes among(int longest, int others, int queries) {
  return {.batch = 1 + others, .longest = longest, .total = longest + others * queries, .gqa_ratio = 4};
}

Problem problem_of(const RaggedSizes& sizes) {
  return {.batch = sizes.batch,
          .heads_q = 32,
          .heads_kv = 8,
          .seqlen_q = sizes.longest,
          .seqlen_k = 4096,
          .causal = true,
          .ragged = true,
          .total_q = sizes.total,
          .paged = true,
          .page_size = 64,
          .pages = 4096,
          .table_width = 64};
}

}  // namespace

TEST_CASE("chunks of queries leave sequences of few to decode, as many as a tile's rows have room for") {
  for (const auto& [chunks, queries, others] :
       {std::array{1, 2048, 64}, {1, 512, 64}, {4, 2048, 32}, {4, 2048, 8}, {1, 8192, 256}, {1, 2048, 1}}) {
    CAPTURE(chunks);
    CAPTURE(others);
    CHECK(short_queries(mixed(chunks, queries, others)) == 4);
  }
  CHECK(short_queries(mixed(1, 2048, 64, 1)) == 16);
  CHECK(short_queries(mixed(1, 2048, 64, 8)) == 2);
  CHECK(short_queries(mixed(1, 2048, 64, 7)) == 2);
  CHECK(short_queries(mixed(1, 2048, 64, 64)) == 1);
  CHECK(short_queries(mixed(1, 2048, 64, 257)) == 0);  // decode has no kernel
}

TEST_CASE("sequences of no more keys than queries are decode's where there are many") {
  CHECK(short_queries(among(8192, 256, 1)) == 4);
  CHECK(short_queries(among(8192, 80, 1)) == 4);
  CHECK(short_queries(among(8192, 60, 1)) == 0);
  CHECK(short_queries(among(8192, 256, 16)) == 0);  // decode would take them as long as prefill
}

TEST_CASE("where the totals tell of no short sequences, all are prefill's") {
  // All as long, half as long on average, one alone, none.
  CHECK(short_queries({.batch = 8, .longest = 512, .total = 8 * 512, .more_keys = true}) == 0);
  CHECK(short_queries({.batch = 64, .longest = 2048, .total = 64 * 1024, .more_keys = true}) == 0);
  CHECK(short_queries({.batch = 1, .longest = 512, .total = 512, .more_keys = true}) == 0);
  CHECK(short_queries({.batch = 4, .longest = 512, .total = 0, .more_keys = true}) == 0);
  // Lengths of a training set, packed; a batch that decode serves as a whole.
  CHECK(short_queries({.batch = 54, .longest = 2000, .total = 16384}) == 0);
  CHECK(short_queries({.batch = 64, .longest = 16, .total = 80, .more_keys = true}) == 0);
  // A longest that no sequence can have says nothing of the others.
  CHECK(short_queries({.batch = 2, .longest = 8192, .total = 600, .more_keys = true}) == 0);
}

TEST_CASE("the part that decode has is the same attention, and none where decode has no such kernels") {
  const Problem problem = problem_of(mixed(1, 2048, 64));
  const std::optional<DecodeProblem> part = short_sequences(problem);
  REQUIRE(part);
  CHECK(part->text() == "decode bf16 d128 b65 hq32 hk8 lq4 lk4096 page64 right0 ragged tq2112");
  CHECK(part->longest_q == 2048);
  Problem packed = problem;
  packed.paged = false, packed.page_size = packed.pages = packed.table_width = 0;
  packed.total_k = 65 * 4096, packed.causal = false, packed.window_left = 100, packed.softcap = 30;
  REQUIRE(short_sequences(packed));
  CHECK(short_sequences(packed)->text() ==
        "decode bf16 d128 b65 hq32 hk8 lq4 lk4096 left100 softcap30 ragged tq2112 tk266240");

  const auto without = [&](const auto& change) {
    Problem changed = problem;
    change(changed);
    return !short_sequences(changed);
  };
  CHECK(without([](Problem& p) { p.head_dim_v = 64; }));
  CHECK(without([](Problem& p) { p.dropout = true; }));
  CHECK(without([](Problem& p) { p.expressions.score = 1; }));
  CHECK(without([](Problem& p) { p.expressions.mask = 1; }));
  CHECK(without([](Problem& p) { p.seqlen_k = 0; }));
  CHECK(without([](Problem& p) { p.ragged = false; }));
  CHECK(!without([](Problem& p) { p.expressions.sink = 1; }));
}

TEST_CASE("explain says whose the short sequences are, and a workload's kernels are for both") {
  const Problem problem = problem_of(mixed(1, 2048, 64));
  const Explanation explained = explain(problem, h200);
  REQUIRE(explained.short_sequences.size() == 1);
  const Explanation& few = explained.short_sequences.front();
  REQUIRE(few.others.size() == 1);
  const std::string text = explained.text("");
  CAPTURE(text);
  CHECK(text.find(fmt::format("  given a workspace of {}, sequences of up to 4 queries by ",
                              bytes_text(static_cast<double>(few.workspace_bytes)))) != std::string::npos);
  CHECK(text.find(few.serving.variant.name() + ", grid ") != std::string::npos);
  CHECK(text.find(", merged by NVRTC, at first use: " + few.others.front().serving.variant.name()) !=
        std::string::npos);
  CHECK(explain(problem_of({.batch = 8, .longest = 512, .total = 4096}), h200).short_sequences.empty());

  const std::vector<Recorded> workload{{.problem = problem, .calls = 1}};
  const std::vector<Variant> kernels =
      kernels_for(workload, std::span(&h200, 1), ReadyKernels(std::span<const ReadyKernel>{})).variants();
  const auto is_for = [&](Operation operation) {
    return std::ranges::count_if(kernels, [&](const Variant& one) { return family_of(one).operation == operation; });
  };
  CHECK(is_for(Operation::prefill) == 1);
  CHECK(is_for(Operation::decode) == 1);
  CHECK(is_for(Operation::combine) == 1);
}
