// The kernel as a foreign function of XLA.
#pragma once

#include "runtime/python/xla_ffi_abi.hpp"

namespace attune::python {

/// An XLA_FFI_Handler for the platform CUDA. Arguments: q, k and v; q and kv; or qkv, (..., seqlen, heads, head_dim)
/// with one or more dimensions of batch and, in kv and qkv, one of 2 or 3 before heads. Results: out, and softmax_lse
/// where it is asked for. Attributes: causal (bool), softcap and softmax_scale (float32), window_left and window_right
/// (int32). All buffers are row-major.
xla::Error* xla_prefill(xla::CallFrame* frame) noexcept;

}  // namespace attune::python
