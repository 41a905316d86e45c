#include "runtime/operations/prefill/tensor_maps.hpp"

#include <bit>
#include <cstdint>
#include <numeric>
#include <utility>

namespace attune {
namespace {

AttunePagedRows rows_of(const AttuneTensor& tensor, int columns) {
  constexpr std::int64_t chunk = 8;  // elements of 16 bytes, of which every stride is a multiple
  const auto chunks = [](std::int64_t stride) { return static_cast<unsigned>(stride / chunk); };
  return {.data = tensor.data,
          .page_chunks = chunks(tensor.stride_batch),
          .row_chunks = chunks(tensor.stride_seq),
          .head_chunks = chunks(tensor.stride_head),
          .columns = columns};
}

}  // namespace

TensorDescription pack(const TensorDescription& tensor, int ratio) {
  TensorDescription packed = tensor;
  std::swap(packed.extents[1], packed.extents[2]);
  std::swap(packed.strides[0], packed.strides[1]);
  const auto heads = static_cast<std::uint32_t>(ratio);
  packed.box = {tensor.box[0], heads, tensor.box[1] / heads, tensor.box[3], 1};
  return packed;
}

bool stacks_heads(const Variant& variant) {
  return family_of(variant).tensor_maps && variant.ragged != 0 && variant.paged == 0 && variant.tile_list == 0 &&
         variant.score == 0 && variant.mask == 0 && variant.sink == 0 && variant.dropout == 0;
}

int stack_rows(int gqa_ratio) {
  return gqa_ratio > output_box_rows
             ? 0
             : output_box_rows / static_cast<int>(std::bit_ceil(static_cast<unsigned>(gqa_ratio)));
}

TensorDescription stack(const TensorDescription& ragged, int rows, int heads) {
  TensorDescription stacked = ragged;
  stacked.box = {ragged.box[0], static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(heads), 1, 1};
  return stacked;
}

int page_box_rows(const Variant& variant, int page_size) { return std::gcd(variant.B_c, page_size); }

AttunePages make_pages(const AttunePrefillParams& params, const PrefillPlan& plan) {
  return {.block_table = params.block_table,
          .table_width = params.table_width,
          .pages = params.pages,
          .page_size = params.page_size,
          .page_multiplier = params.page_multiplier,
          .page_shift = params.page_shift,
          .box_rows = page_box_rows(plan.variant, params.page_size),
          .k_page_rows = page_rows(params.k),
          .v_page_rows = page_rows(params.v),
          .k = rows_of(params.k, params.key_columns),
          .v = rows_of(params.v, plan.head_dim_v)};
}

AttuneSharedPrefillParams make_shared_params(const AttuneTensorPrefillParams& block, const PrefillPlan& plan,
                                             const Workspace& workspace) {
  AttuneSharedPrefillParams shared{block, 0, 0, 0, nullptr, nullptr, workspace.launch};
  if (plan.workspace_bytes == 0 || workspace.data == nullptr || workspace.bytes < plan.workspace_bytes) {
    shared.whole_tiles = plan.shares.tiles;
    return shared;
  }
  // The words stand after the partials, whose sizes are multiples of theirs.
  const std::size_t words = static_cast<std::size_t>(plan.sharing_warps()) * sizeof(std::uint64_t);
  auto* const partials = static_cast<std::byte*>(workspace.data);
  shared.whole_tiles = plan.shares.whole_tiles;
  shared.share = plan.shares.share;
  shared.longer_shares = plan.shares.longer_shares;
  shared.partials = reinterpret_cast<float*>(partials);
  shared.signals = reinterpret_cast<unsigned long long*>(partials + plan.workspace_bytes - words);
  return shared;
}

}  // namespace attune
