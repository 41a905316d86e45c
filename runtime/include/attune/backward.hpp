// Calls of the backward pass.
#ifndef ATTUNE_BACKWARD_HPP
#define ATTUNE_BACKWARD_HPP

#include <cstddef>
#include <optional>

#include "attune/attune.h"
#include "attune/tensors.hpp"

namespace attune::api {

/// One call of the backward pass: the gradients of Prefill's O, and of its LSE, by q, k and v.
struct Backward {
  Shape shape;  ///< that of the Prefill; any head_dim_v is served
  Tensor q{};
  Tensor k{};
  Tensor v{};
  Tensor o{};                                         ///< as the Prefill wrote it
  Tensor dout{};                                      ///< the gradient of o
  Tensor dq{};                                        ///< written, as dk and dv; apart from all other tensors
  Tensor dk{};                                        ///< summed over the heads of q that share a head of k and v
  Tensor dv{};                                        ///< likewise
  const float* lse = nullptr;                         ///< as the Prefill wrote it
  const float* dlse = nullptr;                        ///< the gradient of lse; null: zeros
  std::optional<float> softmax_scale = std::nullopt;  ///< 1 / sqrt(head_dim) when not given
  std::optional<Ragged> ragged = std::nullopt;        ///< rows that no sequence has or uses are not written
  bool any_order = false;     ///< the fastest kernels, which may add to dq in any order; else the same bits every time
  void* workspace = nullptr;  ///< Attention::workspace() bytes, 16-byte aligned
  std::size_t workspace_bytes = 0;
  Dropout dropout = {};  ///< as the Prefill had it

  /// The same for the C ABI.
  [[nodiscard]] attune_backward_args args() const {
    attune_backward_args result{};
    result.struct_size = sizeof(result);
    result.dtype = static_cast<attune_dtype>(shape.dtype);
    result.q = q;
    result.k = k;
    result.v = v;
    result.o = o;
    result.dout = dout;
    result.dq = dq;
    result.dk = dk;
    result.dv = dv;
    result.lse = lse;
    result.dlse = dlse;
    result.workspace = workspace;
    result.workspace_bytes = workspace_bytes;
    result.batch = shape.batch;
    result.seqlen_q = shape.seqlen_q;
    result.seqlen_k = shape.seqlen_k;
    result.heads_q = shape.heads_q;
    result.heads_kv = shape.heads_kv;
    result.head_dim = shape.head_dim;
    result.head_dim_v = shape.head_dim_v;
    result.softmax_scale = softmax_scale.value_or(usual_scale(shape.head_dim));
    result.causal = shape.causal ? 1 : 0;
    result.window = 1;
    result.window_left = shape.window_left;
    result.window_right = shape.window_right;
    result.softcap = shape.softcap;
    if (ragged) {
      result.cu_seqlens_q = ragged->cu_seqlens_q;
      result.cu_seqlens_k = ragged->cu_seqlens_k;
      result.seqused_q = ragged->seqused_q;
      result.seqused_k = ragged->seqused_k;
      result.total_q = ragged->total_q;
      result.total_k = ragged->total_k;
    }
    result.any_order = any_order ? 1 : 0;
    result.dropout = dropout;
    return result;
  }
};

}  // namespace attune::api

#endif
