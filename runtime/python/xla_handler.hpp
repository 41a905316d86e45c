// The kernels as foreign functions of XLA, for the platform CUDA. All buffers are row-major.
#pragma once

#include "runtime/python/xla_ffi_abi.hpp"

namespace attune::python {

/// An XLA_FFI_Handler. Arguments: q, k and v; q and kv; or qkv, (..., seqlen, heads, head_dim) with one or more
/// dimensions of batch and, in kv and qkv, one of 2 or 3 before heads; then the sink where there is one, (heads,),
/// float32 or of q's dtype; then, with dropout, seed and offset, (4,), int32, each one's lower half first; then the
/// arrays that expressions look up. Results: out, and softmax_lse where it is asked for. Attributes: causal (bool),
/// dropout_p, softcap and softmax_scale (float32), window_left and window_right (int32), score and mask (texts; empty:
/// none), params (the names of those arrays, with blanks between them), sink (bool).
xla::Error* xla_prefill(xla::CallFrame* frame) noexcept;

/// An XLA_FFI_Handler of the gradients. Arguments: q, k and v as in xla_prefill, its results (both), the gradient of
/// out, that of softmax_lse where there is one, seed and offset as there, and the arrays of expressions. Results: the
/// gradients of q, k and v, like them. The attributes are the same, without sink, which softmax_lse has.
xla::Error* xla_backward(xla::CallFrame* frame) noexcept;

}  // namespace attune::python
