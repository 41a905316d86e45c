#include "runtime/call/tensor_maps.hpp"

#include <limits>

#include "runtime/call/field_checks.hpp"
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

TensorDescription describe(const AttuneTensor& tensor, const Extents& extents, int rows) {
  // The stride of a single element is never used, but has to be a valid one.
  const auto bytes = [&](std::int64_t stride, std::int64_t extent) {
    return static_cast<std::uint64_t>((extent > 1 ? stride : padded_head_dim(extents.head_dim)) *
                                      bytes_of(extents.dtype));
  };
  return {.base = tensor.data,
          .dtype = extents.dtype,
          .extents = {static_cast<std::uint64_t>(extents.head_dim), static_cast<std::uint64_t>(extents.seq),
                      static_cast<std::uint64_t>(extents.heads), static_cast<std::uint64_t>(extents.batch), 1},
          .strides = {bytes(tensor.stride_seq, extents.seq), bytes(tensor.stride_head, extents.heads),
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

TensorDescription describe_pages(const AttuneTensor& tensor, const Extents& extents, int rows) {
  const std::int64_t all_rows = (extents.batch - 1) * page_rows(tensor) + extents.seq;
  return spread(describe(tensor, {1, all_rows, extents.heads, extents.head_dim, extents.dtype}, rows));
}

int page_rows(const AttuneTensor& tensor) {
  return tensor.stride_seq == 0 ? 0 : static_cast<int>(tensor.stride_batch / tensor.stride_seq);
}

bool has_mappable_pages(const attune_tensor& tensor, const Extents& extents) {
  constexpr std::int64_t most_rows = std::numeric_limits<std::int32_t>::max();
  const auto head_dim = static_cast<int>(extents.head_dim);
  if (extents.seq > 1 && !is_spreadable(tensor.stride_seq, head_dim, extents.dtype)) return false;
  if (extents.heads > 1 && !is_mappable(tensor.stride_head, head_dim, extents.dtype)) return false;
  if (extents.batch <= 1) return true;
  if (extents.seq <= 1 || tensor.stride_batch < 0 || tensor.stride_batch % tensor.stride_seq != 0) return false;
  return (tensor.stride_batch / tensor.stride_seq) <= (most_rows - extents.seq) / extents.batch;
}

bool has_near_pages(const attune_tensor& tensor, const Extents& extents) {
  constexpr std::int64_t chunk = 8;            // elements of 16 bytes
  constexpr std::int64_t most = 0xffffffffLL;  // which stands for no row
  const auto reach = [](std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride * (extent - 1) : 0; };
  const std::int64_t head_reach = reach(tensor.stride_head, extents.heads);
  const std::int64_t row_reach = reach(tensor.stride_batch, extents.batch) + reach(tensor.stride_seq, extents.seq);
  return (head_reach + extents.head_dim) / chunk <= most && row_reach / chunk < most;
}

bool has_mappable_strides(const attune_tensor& tensor, const Extents& extents, bool ragged) {
  const auto head_dim = static_cast<int>(extents.head_dim);
  if (ragged && extents.seq > 1 && !is_spreadable(tensor.stride_seq, head_dim, extents.dtype)) return false;
  const auto passes = [&](std::int64_t stride, std::int64_t extent) {
    return extent <= 1 || is_mappable(stride, head_dim, extents.dtype);
  };
  return passes(tensor.stride_batch, extents.batch) && passes(tensor.stride_seq, extents.seq) &&
         passes(tensor.stride_head, extents.heads);
}

}  // namespace attune
