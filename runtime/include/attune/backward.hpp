// Calls of the backward pass.
#ifndef ATTUNE_BACKWARD_HPP
#define ATTUNE_BACKWARD_HPP

#include <cstddef>
#include <optional>

#include "attune/attune.h"
#include "attune/expressions.hpp"
#include "attune/tensors.hpp"

namespace attune::api {

/// One call of the backward pass: the gradients of Prefill's O, and of its LSE, by q, k and v.
struct Backward {
  Shape shape;  ///< that of the Prefill; head_dim and head_dim_v are multiples of 8
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
  std::optional<Ragged> ragged = std::nullopt;        ///< rows that no sequence has or uses become zeros
  bool any_order = false;     ///< the fastest kernels, which may add to dq in any order; else the same bits every time
  void* workspace = nullptr;  ///< Attention::backward_workspace() bytes, 16-byte aligned
  std::size_t workspace_bytes = 0;
  Dropout dropout = {};          ///< as the Prefill had it
  Expressions expressions = {};  ///< likewise; the score only adds to s, and has no softcap beside it; lse has the sink

  /// The same for the C ABI.
  [[nodiscard]] attune_backward_args args() const {
    attune_backward_args result{};
    result.struct_size = sizeof(result);
    shape.set(result);
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
    result.softmax_scale = softmax_scale.value_or(usual_scale(shape.head_dim));
    if (ragged) ragged->set(result);
    result.any_order = any_order ? 1 : 0;
    result.dropout = dropout;
    expressions.set(result);
    return result;
  }
};

}  // namespace attune::api

#endif
