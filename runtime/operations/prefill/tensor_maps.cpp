#include "runtime/operations/prefill/tensor_maps.hpp"

#include <cstdint>
#include <utility>

#include "templates/sequence_end.h"

namespace attune {
namespace {

constexpr std::int64_t stride_limit = 1LL << 40;  // bytes
constexpr std::int64_t spread_limit = 1LL << 34;  // bytes: ATTUNE_SEQUENCE_END of them are 2^64
constexpr std::uint32_t panel_columns = 64;       // 128 bytes (templates/blocks/panels.cuh)

}  // namespace

bool is_mappable(std::int64_t stride, int head_dim, Dtype dtype) {
  return stride >= head_dim && stride < stride_limit / bytes_of(dtype);
}

bool is_spreadable(std::int64_t stride, int head_dim, Dtype dtype) {
  return is_mappable(stride, head_dim, dtype) && stride < spread_limit / bytes_of(dtype);
}

TensorDescription describe(const AttuneTensor& tensor, const TensorExtents& extents, Dtype dtype, int rows) {
  // The stride of a single element is never used, but has to be a valid one.
  const auto bytes = [&](std::int64_t stride, int extent) {
    return static_cast<std::uint64_t>(extent > 1 ? stride : padded_head_dim(extents.head_dim)) *
           static_cast<std::uint64_t>(bytes_of(dtype));
  };
  return {.base = tensor.data,
          .dtype = dtype,
          .extents = {static_cast<std::uint64_t>(extents.head_dim), static_cast<std::uint64_t>(extents.seqlen),
                      static_cast<std::uint64_t>(extents.heads), static_cast<std::uint64_t>(extents.batch), 1},
          .strides = {bytes(tensor.stride_seq, extents.seqlen), bytes(tensor.stride_head, extents.heads),
                      bytes(tensor.stride_batch, extents.batch), 0},
          .box = {panel_columns, static_cast<std::uint32_t>(rows), 1, 1, 1}};
}

TensorDescription spread(const TensorDescription& tensor) {
  TensorDescription ragged = tensor;
  const std::uint64_t stride = tensor.strides[0];
  ragged.rank = 5;
  ragged.extents = {tensor.extents[0], ATTUNE_SEQUENCE_END, tensor.extents[2], tensor.extents[1] + 1,
                    ATTUNE_SEQUENCE_END + 1};
  // Addresses wrap around: ATTUNE_SEQUENCE_END of the last stride are that many of `stride` less.
  ragged.strides = {stride, tensor.strides[1], stride, static_cast<std::uint64_t>(spread_limit) - stride};
  return ragged;
}

TensorDescription pack(const TensorDescription& tensor, int ratio) {
  TensorDescription packed = tensor;
  std::swap(packed.extents[1], packed.extents[2]);
  std::swap(packed.strides[0], packed.strides[1]);
  const auto heads = static_cast<std::uint32_t>(ratio);
  packed.box = {tensor.box[0], heads, tensor.box[1] / heads, tensor.box[3], 1};
  return packed;
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
