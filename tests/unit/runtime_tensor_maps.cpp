// What a kernel with tensor maps is given: extents, strides and boxes, and which strides a map takes.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"
#include "templates/sequence_end.h"
#include "tests/harness/needs.hpp"

using namespace attune;

namespace {

Problem problem_of(int head_dim, int head_dim_v) {
  return {.dtype = Dtype::fp16,
          .batch = 2,
          .heads_q = 12,
          .heads_kv = 3,
          .seqlen_q = 100,
          .seqlen_k = 200,
          .head_dim = head_dim,
          .head_dim_v = head_dim_v};
}

AttunePrefillParams params_of(const Problem& problem) {
  AttunePrefillParams params{};
  params.batch = problem.batch;
  params.heads_q = problem.heads_q;
  params.gqa_ratio = problem.heads_q / problem.heads_kv;
  params.seqlen_q = problem.seqlen_q;
  params.seqlen_k = problem.seqlen_k;
  params.total_q = problem.total_q;
  params.total_k = problem.total_k;
  return params;
}

/// The block of a planned call and what its maps, in the order of q, k, v, o, were made of.
struct Described {
  AttuneTensorPrefillParams block;
  std::vector<TensorDescription> tensors;
};

Described described(const AttunePrefillParams& params, const Problem& problem, const PrefillPlan& plan) {
  std::vector<TensorDescription> seen;
  const AttuneTensorPrefillParams block =
      make_tensor_params(params, shapes_of(problem), plan, [&](const TensorDescription& one) {
        seen.push_back(one);
        AttuneTensorMap map{};
        map.opaque[0] = static_cast<unsigned char>(seen.size());
        return map;
      });
  REQUIRE(seen.size() == 4);
  return {block, seen};
}

}  // namespace

TEST_CASE("a tensor map takes strides of at least a row and below 2^40 bytes, of rows of a ragged batch below 2^34") {
  for (const std::int64_t stride : {-8LL, 0LL, 8LL, 120LL, 1LL << 39, 1LL << 62})
    CHECK_FALSE(is_mappable(stride, 128, Dtype::bf16));
  for (const std::int64_t stride : {128LL, 136LL, (1LL << 39) - 8}) CHECK(is_mappable(stride, 128, Dtype::bf16));
  for (const std::int64_t stride : {120LL, 1LL << 33, 1LL << 39}) CHECK_FALSE(is_spreadable(stride, 128, Dtype::bf16));
  for (const std::int64_t stride : {128LL, (1LL << 33) - 8}) CHECK(is_spreadable(stride, 128, Dtype::bf16));
}

TEST_CASE("a description has extents in elements, strides in bytes and a valid stride for a single element") {
  int memory = 0;
  const AttuneTensor tensor{.data = &memory, .stride_batch = 0, .stride_seq = 640, .stride_head = 80};
  const TensorDescription description = describe(tensor, {1, 100, 8, 72, Dtype::fp16}, 192);
  CHECK(description.base == &memory);
  CHECK(description.dtype == Dtype::fp16);
  CHECK(description.rank == 4);
  CHECK(description.extents == std::array<std::uint64_t, 5>{72, 100, 8, 1, 1});
  CHECK(description.strides == std::array<std::uint64_t, 4>{1280, 160, 144, 0});
  CHECK(description.box == std::array<std::uint32_t, 5>{64, 192, 1, 1, 1});
}

TEST_CASE(
    "of a ragged batch a map begins where its tensor does, and its last dimension leads back to a sequence's rows") {
  int memory = 0;
  const AttuneTensor tensor{.data = &memory, .stride_batch = 0, .stride_seq = 640, .stride_head = 80};
  const TensorDescription ragged = spread(describe(tensor, {1, 1000, 8, 72, Dtype::fp16}, 192));
  constexpr std::uint64_t end = ATTUNE_SEQUENCE_END;
  CHECK(ragged.base == &memory);
  CHECK(ragged.rank == 5);
  CHECK(ragged.extents == std::array<std::uint64_t, 5>{72, end, 8, 1001, end + 1});
  // Row 3 of a sequence of 10 rows from the 500th on.
  const std::array<std::uint64_t, 4> at{end - 10 + 3, 0, 510, end};
  CHECK(std::inner_product(at.begin(), at.end(), ragged.strides.begin(), std::uint64_t{0}) == 503 * 1280);
  CHECK(ragged.box == std::array<std::uint32_t, 5>{64, 192, 1, 1, 1});
}

TEST_CASE(
    "pages are rows of one sequence, of which a box leads to any page and what follows a sequence's last key is none") {
  int memory = 0;
  // 30 pages of 16 tokens, each page with as many rows of something else behind it.
  const AttuneTensor cache{.data = &memory, .stride_batch = 32 * 640, .stride_seq = 640, .stride_head = 80};
  CHECK(page_rows(cache) == 32);
  const TensorDescription pages = describe_pages(cache, {30, 16, 8, 72, Dtype::fp16}, 16);
  constexpr std::uint64_t end = ATTUNE_SEQUENCE_END;
  CHECK(pages.base == &memory);
  CHECK(pages.extents == std::array<std::uint64_t, 5>{72, end, 8, 29 * 32 + 16 + 1, end + 1});
  CHECK(pages.box == std::array<std::uint32_t, 5>{64, 16, 1, 1, 1});
  // Token 3 of page 7, of which ten tokens are keys.
  const std::array<std::uint64_t, 4> at{end - 10 + 3, 0, 7 * 32 + 10, end};
  CHECK(std::inner_product(at.begin(), at.end(), pages.strides.begin(), std::uint64_t{0}) == (7 * 32 + 3) * 1280);
  CHECK(page_box_rows(Variant{.B_c = 96}, 128) == 32);
  CHECK(page_box_rows(Variant{.B_c = 128}, 256) == 128);
  CHECK(page_box_rows(Variant{.B_c = 112}, 16) == 16);
}

TEST_CASE("a map takes pages that begin whole rows apart, and 32 bits count rows or 16 bytes") {
  const Extents extents{30, 16, 8, 72, Dtype::fp16};
  const auto tensor = [](std::int64_t batch, std::int64_t seq, std::int64_t head) {
    return attune_tensor{.data = nullptr, .stride_batch = batch, .stride_seq = seq, .stride_head = head};
  };
  CHECK(has_mappable_pages(tensor(16 * 640, 640, 80), extents));
  CHECK(has_mappable_pages(tensor(16 * 640, 80, 16 * 80), extents));  // heads before tokens
  CHECK_FALSE(has_mappable_pages(tensor(16 * 640 + 8, 640, 80), extents));
  CHECK_FALSE(has_mappable_pages(tensor(16 * 640, 0, 80), extents));
  CHECK_FALSE(has_mappable_pages(tensor(16 * 640, 640, 8), extents));
  CHECK_FALSE(has_mappable_pages(tensor(640LL << 27, 640, 80), extents));  // 2^31 rows and more
  CHECK(has_near_pages(tensor(16 * 640 + 8, 640, 80), extents));
  CHECK(has_near_pages(tensor((8LL << 32) / 32, 640, 80), extents));
  CHECK_FALSE(has_near_pages(tensor((8LL << 32) / 29, 640, 80), extents));
}

TEST_CASE("a ragged kernel is told no longest sequence that is longer than all rows") {
  PrefillPlan plan;
  plan.variant = default_variant(prefill_sm90, asking(need_for(Dtype::fp16, 64), {&Need::ragged}), 227 << 10);
  plan.head_dim_v = 64;
  Problem problem = problem_of(64, 64);
  problem.ragged = true;
  problem.total_q = 60;
  problem.total_k = 500;
  AttunePrefillParams params = params_of(problem);
  const int lengths[3] = {};
  params.cu_seqlens_q = params.cu_seqlens_k = params.seqused_q = params.seqused_k = lengths;
  const auto [block, seen] = described(params, problem, plan);
  constexpr std::uint64_t end = ATTUNE_SEQUENCE_END;
  CHECK(seen[0].extents == std::array<std::uint64_t, 5>{64, end, 12, 61, end + 1});
  CHECK(seen[1].extents == std::array<std::uint64_t, 5>{64, end, 3, 501, end + 1});
  CHECK(seen[2].extents == seen[1].extents);
  CHECK(seen[3].extents == seen[0].extents);
  CHECK(block.seqlen_q == 60);
  CHECK(block.seqlen_k == 200);
  CHECK(block.total_q == 60);
  CHECK(block.total_k == 500);
  CHECK(block.cu_seqlens_q == lengths);
  CHECK(block.seqused_q == lengths);
  CHECK(block.seqused_k == lengths);
}

TEST_CASE(
    "rows of heads that share keys are one box of a ragged batch, as many as a warpgroup has, O's of these alone") {
  for (const auto& [ratio, rows] : {std::pair{1, 64}, {2, 32}, {3, 16}, {4, 16}, {7, 8}, {8, 8}, {64, 1}, {65, 0}}) {
    CHECK(stack_rows(ratio) == rows);
  }
  PrefillPlan plan;
  plan.variant = default_variant(prefill_sm90, asking(need_for(Dtype::fp16, 64), {&Need::ragged}), 227 << 10);
  plan.head_dim_v = 64;
  CHECK(stacks_heads(plan.variant));
  Problem problem = problem_of(64, 64);
  problem.ragged = true;
  problem.heads_kv = 4;  // three heads share keys
  problem.total_q = problem.total_k = 500;
  std::vector<TensorDescription> seen;
  const AttuneStackedPrefillParams block =
      make_stacked_params(params_of(problem), shapes_of(problem), plan, [&](const TensorDescription& one) {
        seen.push_back(one);
        return AttuneTensorMap{};
      });
  REQUIRE(seen.size() == 6);
  CHECK(block.stack_rows == 16);
  CHECK(block.stack_shift == 4);
  CHECK(seen[4].box == std::array<std::uint32_t, 5>{64, 16, 4, 1, 1});
  CHECK(seen[5].box == std::array<std::uint32_t, 5>{64, 16, 3, 1, 1});
  for (const std::size_t i : {0U, 3U}) {
    CHECK(seen[i == 0 ? 4 : 5].extents == seen[i].extents);
    CHECK(seen[i == 0 ? 4 : 5].strides == seen[i].strides);
  }
}

TEST_CASE("packed, a query's heads are neighbouring rows of a box") {
  int memory = 0;
  const AttuneTensor tensor{.data = &memory, .stride_batch = 96000, .stride_seq = 960, .stride_head = 80};
  const TensorDescription plain = describe(tensor, {2, 100, 12, 72, Dtype::fp16}, 192);
  const TensorDescription packed = pack(plain, 4);
  CHECK(packed.base == &memory);
  CHECK(packed.dtype == Dtype::fp16);
  CHECK(packed.extents == std::array<std::uint64_t, 5>{72, 12, 100, 2, 1});
  CHECK(packed.strides == std::array<std::uint64_t, 4>{160, 1920, 192000, 0});
  CHECK(packed.box == std::array<std::uint32_t, 5>{64, 4, 48, 1, 1});
}

TEST_CASE("with pack_gqa Q and O are packed, K and V are not") {
  PrefillPlan plan;
  plan.variant = default_variant(prefill_sm90, need_for(Dtype::fp16, 64), 227 << 10);
  plan.variant.gqa_ratio = 4;
  plan.variant.pack_gqa = 1;
  plan.head_dim_v = 64;
  const Problem problem = problem_of(64, 64);
  const auto seen = described(params_of(problem), problem, plan).tensors;
  CHECK(seen[0].box == std::array<std::uint32_t, 5>{64, 4, 48, 1, 1});
  CHECK(seen[1].box == std::array<std::uint32_t, 5>{64, 128, 1, 1, 1});
  CHECK(seen[2].box == seen[1].box);
  CHECK(seen[3].box == std::array<std::uint32_t, 5>{64, 4, 16, 1, 1});
  CHECK(seen[3].extents == std::array<std::uint64_t, 5>{64, 12, 100, 2, 1});
}

TEST_CASE(
    "maps of K and V end at head_dim, those of Q and O, and strides of single elements, at the next multiple of 8") {
  PrefillPlan plan;
  plan.variant = default_variant(prefill_sm90, need_for(Dtype::fp16, 64), 227 << 10);
  plan.head_dim_v = 43;
  Problem problem = problem_of(59, 43);
  problem.batch = 1;
  const auto seen = described(params_of(problem), problem, plan).tensors;
  const std::array<std::uint64_t, 4> columns{64, 59, 43, 48};
  const std::array<std::uint64_t, 4> single{128, 128, 96, 96};  // bytes
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].extents[0] == columns[i]);
    CHECK(seen[i].strides[2] == single[i]);
  }
}

TEST_CASE(
    "Q is read in tiles of B_r rows, K and V in blocks of B_c rows of their own heads; O is written by 64 rows, V's "
    "wide") {
  PrefillPlan plan;
  plan.variant = default_variant(prefill_sm90, need_for(Dtype::fp16, 64), 227 << 10);
  plan.q_blocks = 7;
  plan.head_dim_v = 40;
  plan.group_heads = 5;
  const Problem problem = problem_of(64, 40);
  const auto [block, seen] = described(params_of(problem), problem, plan);
  CHECK(seen[0].box[1] == 192);
  CHECK(seen[0].extents == std::array<std::uint64_t, 5>{64, 100, 12, 2, 1});
  for (const std::size_t i : {1U, 2U}) {
    CHECK(seen[i].box[1] == 128);
    CHECK(seen[i].extents == std::array<std::uint64_t, 5>{i == 1 ? 64U : 40U, 200, 3, 2, 1});
    CHECK(seen[i].dtype == Dtype::fp16);
  }
  CHECK(seen[3].box[1] == 64);
  CHECK(seen[3].extents == std::array<std::uint64_t, 5>{40, 100, 12, 2, 1});
  CHECK(block.q.opaque[0] == 1);
  CHECK(block.k.opaque[0] == 2);
  CHECK(block.v.opaque[0] == 3);
  CHECK(block.o.opaque[0] == 4);
  CHECK(block.q_blocks == 7);
  CHECK(block.group_heads == 5);
  CHECK(block.seqlen_k == 200);
}
