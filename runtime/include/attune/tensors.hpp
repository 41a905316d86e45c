// What calls of several operations share: element types, tensors, shapes, ragged batches, pages.
#ifndef ATTUNE_TENSORS_HPP
#define ATTUNE_TENSORS_HPP

#include <cmath>
#include <cstdint>

#include "attune/attune.h"

namespace attune::api {

enum class Dtype { fp16 = ATTUNE_FP16, bf16 = ATTUNE_BF16 };

/// A tensor batch x seqlen x heads x head_dim in device memory (host memory for the emulator), 16-byte aligned. Strides
/// in elements, multiples of 8; the last dimension is contiguous. Where attention's head_dim is no multiple of 8,
/// nothing beyond it is read of k and v, nor written to a cache; the rows of q, o and new keys and values go on to the
/// next multiple: what q has there is finite, what o has there is written.
using Tensor = attune_tensor;

/// batch x seqlen x heads x head_dim, contiguous.
[[nodiscard]] constexpr Tensor bshd(void* data, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  return {data, seqlen * heads * head_dim, heads * head_dim, head_dim};
}

/// batch x heads x seqlen x head_dim, contiguous.
[[nodiscard]] constexpr Tensor bhsd(void* data, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  return {data, heads * seqlen * head_dim, head_dim, seqlen * head_dim};
}

/// One operand of a contiguous batch x seqlen x all_heads x head_dim buffer that packs Q, K and V along its
/// heads: the operand whose heads start at `first_head`.
[[nodiscard]] inline Tensor packed(void* data, std::int64_t seqlen, std::int64_t all_heads, std::int64_t head_dim,
                                   std::int64_t first_head) {
  constexpr std::int64_t bytes_per_element = 2;
  Tensor tensor = bshd(data, seqlen, all_heads, head_dim);
  if (data != nullptr) tensor.data = static_cast<char*>(data) + first_head * head_dim * bytes_per_element;
  return tensor;
}

/// 1 / sqrt(head_dim), and 1 where the call will be refused for its head_dim.
[[nodiscard]] inline float usual_scale(std::int32_t head_dim) {
  return head_dim > 0 ? 1 / std::sqrt(static_cast<float>(head_dim)) : 1;
}

/// What is computed, pointers apart.
struct Shape {
  Dtype dtype = Dtype::bf16;
  std::int32_t batch = 1;
  std::int32_t seqlen_q = 1;
  std::int32_t seqlen_k = 1;
  std::int32_t heads_q = 1;
  std::int32_t heads_kv = 1;    ///< divides heads_q
  std::int32_t head_dim = 128;  ///< at most 256; see Tensor
  bool causal = false;          ///< query i sees keys j <= i + seqlen_k - seqlen_q
  std::int32_t head_dim_v = 0;  ///< of V and O, as head_dim; 0: the same. Another one needs compute capability 9.0

  /// Query i, at position i + seqlen_k - seqlen_q, sees keys from `window_left` before it to `window_right` after it
  /// (none where causal); -1: all.
  std::int32_t window_left = -1;
  std::int32_t window_right = -1;

  float softcap = 0;  ///< scores x, scaled, become softcap * tanh(x / softcap); 0: they stay

  /// Sets the arguments of a call.
  template <class Args>
  void set(Args& args) const {
    args.dtype = static_cast<attune_dtype>(dtype);
    args.batch = batch;
    args.seqlen_q = seqlen_q;
    args.seqlen_k = seqlen_k;
    args.heads_q = heads_q;
    args.heads_kv = heads_kv;
    args.head_dim = head_dim;
    args.head_dim_v = head_dim_v;
    args.causal = causal ? 1 : 0;
    args.window = 1;
    args.window_left = window_left;
    args.window_right = window_right;
    args.softcap = softcap;
  }
};

/// A ragged batch: sequences of any lengths, one after the other. Sequence i has the rows from cu_seqlens_q[i] up to
/// cu_seqlens_q[i + 1] of q and o, total_q x heads_q x head_dim, and likewise of k and v; stride_batch does not count,
/// and LSE is heads_q x total_q. The shape's seqlen_q and seqlen_k are the longest lengths. All arrays are device
/// memory.
struct Ragged {
  const std::int32_t* cu_seqlens_q = nullptr;  ///< batch + 1
  const std::int32_t* cu_seqlens_k = nullptr;  ///< batch + 1
  const std::int32_t* seqused_k = nullptr;     ///< batch: how many of a sequence's keys count; may be null
  std::int32_t total_q = 0;
  std::int32_t total_k = 0;
  /// batch: how many of a sequence's rows of q count, to the last of which masks are aligned, and those of o and LSE
  /// after them are not written; may be null.
  const std::int32_t* seqused_q = nullptr;

  /// Sets the arguments of a call.
  template <class Args>
  void set(Args& args) const {
    args.cu_seqlens_q = cu_seqlens_q;
    args.cu_seqlens_k = cu_seqlens_k;
    args.seqused_q = seqused_q;
    args.seqused_k = seqused_k;
    args.total_q = total_q;
    args.total_k = total_k;
  }
};

/// Keys and values in pages of a cache, pages x page_size x heads_kv x head_dim: bshd() or bhsd() with page_size for
/// seqlen. Sequence i has the first seqused_k[i] tokens, at most the shape's seqlen_k, of the pages that row i of the
/// table names. All arrays are device memory.
struct Pages {
  const std::int32_t* block_table = nullptr;  ///< batch x table_width
  const std::int32_t* seqused_k = nullptr;    ///< batch
  std::int32_t table_width = 0;               ///< table_width * page_size is at least seqlen_k
  std::int32_t pages = 0;
  std::int32_t page_size = 0;
};

/// Dropout of attention's weights; see attune_dropout, which it is.
using Dropout = attune_dropout;

}  // namespace attune::api

#endif
