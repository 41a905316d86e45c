// The parameter block of kernels that leave reading Q, K and V and writing O to the copy engine: their tensors as
// tensor maps need them, and the block from the maps.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/call/field_checks.hpp"
#include "runtime/call/tensor_maps.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "templates/paged_params.h"
#include "templates/params.h"
#include "templates/shared_tiles.h"
#include "templates/stacked_params.h"
#include "templates/tensor_params.h"

namespace attune {

/// Rows of O that one copy writes: those of a warpgroup.
constexpr int output_box_rows = 64;

/// The same rows as pack_gqa has them (templates/blocks/packed_rows.cuh): dimensions in the order head_dim, heads,
/// seqlen, batch, and boxes of as many rows as before, `ratio` heads of a query after each other.
TensorDescription pack(const TensorDescription& tensor, int ratio);

/// Whether a kernel's tiles have the rows of all heads that share keys, where a sequence has few
/// (templates/blocks/stacked_rows.cuh).
bool stacks_heads(const Variant& variant);

/// Up to how many queries a sequence then has, a power of two; 0: one query of so many heads is more than a warpgroup's
/// rows.
int stack_rows(int gqa_ratio);

/// A ragged batch's rows as such tiles have them: boxes of `rows` rows of so many heads.
TensorDescription stack(const TensorDescription& ragged, int rows, int heads);

/// The extents of a call's tensors: of its operands and of the maps of them.
struct PrefillShapes {
  Extents q;
  Extents k;  ///< of a cache in pages, pages x page_size in place of batch x seqlen_k
  Extents v;
  Extents o;
};
PrefillShapes shapes_of(const Problem& problem);

/// Memory that a launch may use besides its tensors.
struct Workspace {
  void* data = nullptr;      ///< 16-byte aligned device memory, not initialised
  std::size_t bytes = 0;     ///< fewer than PrefillPlan::workspace_bytes are not used
  std::uint64_t launch = 0;  ///< a number, not 0, that this memory cannot be expected to hold
};

/// Keys that one copy fetches from a page: the most that divide both a page and a kernel's block of keys.
int page_box_rows(const Variant& variant, int page_size);

/// What a planned call's kernel is told of pages.
AttunePages make_pages(const AttunePrefillParams& params, const PrefillPlan& plan);

/// The block of a planned call; `encode` makes an AttuneTensorMap of a TensorDescription.
template <class Encode>
AttuneTensorPrefillParams make_tensor_params(const AttunePrefillParams& params, const PrefillShapes& shapes,
                                             const PrefillPlan& plan, const Encode& encode) {
  const bool ragged = plan.variant.ragged != 0;
  // No sequence has more rows than there are, whatever the longest is said to be.
  const int seqlen_q = ragged ? std::min(params.seqlen_q, params.total_q) : params.seqlen_q;
  const bool paged = plan.variant.paged != 0;
  const int seqlen_k = ragged && !paged ? std::min(params.seqlen_k, params.total_k) : params.seqlen_k;
  const auto of_queries = [&](const AttuneTensor& tensor, const Extents& extents, int rows) {
    const TensorDescription plain = describe(tensor, extents, rows);
    if (ragged) return encode(spread(plain));
    return encode(plan.variant.pack_gqa != 0 ? pack(plain, params.gqa_ratio) : plain);
  };
  const auto of_keys = [&](const AttuneTensor& tensor, const Extents& extents) {
    if (paged && plan.variant.page_multiple == 1) return AttuneTensorMap{};  // their rows are gathered
    if (paged) return encode(describe_pages(tensor, extents, page_box_rows(plan.variant, params.page_size)));
    const TensorDescription plain = describe(tensor, extents, plan.variant.B_c);
    return encode(ragged ? spread(plain) : plain);
  };
  return {.q = of_queries(params.q, shapes.q, plan.variant.B_r),
          .k = of_keys(params.k, shapes.k),
          .v = of_keys(params.v, shapes.v),
          .o = of_queries(params.o, shapes.o, output_box_rows),
          .lse = params.lse,
          .scale_log2 = params.scale_log2,
          .batch = params.batch,
          .heads_q = params.heads_q,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .gqa_ratio = params.gqa_ratio,
          .q_blocks = plan.q_blocks,
          .group_heads = plan.group_heads,
          .window_left = params.window_left,
          .window_right = params.window_right,
          .cap_scale = params.cap_scale,
          .total_q = params.total_q,
          .total_k = params.total_k,
          .cu_seqlens_q = params.cu_seqlens_q,
          .cu_seqlens_k = params.cu_seqlens_k,
          .seqused_q = params.seqused_q,
          .seqused_k = params.seqused_k,
          .fewest_queries = params.fewest_queries,
          .stack_rows = 0,
          .stack_shift = 0};
}

/// The same with the maps of short sequences' rows.
template <class Encode>
AttuneStackedPrefillParams make_stacked_params(const AttunePrefillParams& params, const PrefillShapes& shapes,
                                               const PrefillPlan& plan, const Encode& encode) {
  AttuneStackedPrefillParams stacked{make_tensor_params(params, shapes, plan, encode), {}, {}};
  const int rows = stack_rows(params.gqa_ratio);
  if (rows == 0) return stacked;
  stacked.stack_rows = rows;
  stacked.stack_shift = std::countr_zero(static_cast<unsigned>(rows));
  const auto map = [&](const AttuneTensor& tensor, const Extents& extents, int heads) {
    return encode(stack(spread(describe(tensor, extents, rows)), rows, heads));
  };
  stacked.q_stacks = map(params.q, shapes.q, output_box_rows / rows);
  stacked.o_stacks = map(params.o, shapes.o, params.gqa_ratio);
  return stacked;
}

/// The same with how thread blocks share the last tiles of a planned call: not at all where the workspace does not do.
AttuneSharedPrefillParams make_shared_params(const AttuneTensorPrefillParams& block, const PrefillPlan& plan,
                                             const Workspace& workspace);

}  // namespace attune
