// One call of attention to a cache from Python: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "runtime/python/expressions.hpp"
#include "runtime/python/operands.hpp"

namespace attune::python {

/// Each as the caller passed it.
struct DecodeArguments {
  nanobind::handle q;
  nanobind::handle k_cache;
  nanobind::handle v_cache;
  nanobind::handle k;  ///< an array or None, as is what follows
  nanobind::handle v;
  nanobind::handle rotary_cos;
  nanobind::handle rotary_sin;
  nanobind::handle cache_seqlens;    ///< an array, an integer or None
  nanobind::handle cache_batch_idx;  ///< an array or None
  nanobind::handle cache_leftpad;    ///< an array or None
  nanobind::handle block_table;      ///< an array or None
  nanobind::handle softmax_scale;    ///< a number or None
  nanobind::handle causal;
  nanobind::handle window_size;  ///< two integers
  nanobind::handle softcap;
  nanobind::handle rotary_interleaved;
  nanobind::handle alibi_slopes;  ///< an array or None
  nanobind::handle num_splits;
  nanobind::handle return_lse;
  nanobind::handle out;  ///< an array or None
  nanobind::handle check_tables;
  nanobind::handle cu_seqlens_q;    ///< an array or None, with it max_seqlen_q
  nanobind::handle max_seqlen_q;    ///< an integer or None
  nanobind::handle learnable_sink;  ///< an array or None

  static constexpr std::array names{"q",
                                    "k_cache",
                                    "v_cache",
                                    "k",
                                    "v",
                                    "rotary_cos",
                                    "rotary_sin",
                                    "cache_seqlens",
                                    "cache_batch_idx",
                                    "cache_leftpad",
                                    "block_table",
                                    "softmax_scale",
                                    "causal",
                                    "window_size",
                                    "softcap",
                                    "rotary_interleaved",
                                    "alibi_slopes",
                                    "num_splits",
                                    "return_softmax_lse",
                                    "out",
                                    "check_tables",
                                    "cu_seqlens_q",
                                    "max_seqlen_q",
                                    "learnable_sink"};
};

/// Copies what the arguments of prefill and of decode have by one name.
template <class To, class From>
void copy_attention(To& to, const From& from) {
  to.dtype = from.dtype;
  to.q = from.q;
  to.k = from.k;
  to.v = from.v;
  to.o = from.o;
  to.lse = from.lse;
  to.batch = from.batch;
  to.seqlen_q = from.seqlen_q;
  to.heads_q = from.heads_q;
  to.heads_kv = from.heads_kv;
  to.head_dim = from.head_dim;
  to.softmax_scale = from.softmax_scale;
  to.cu_seqlens_q = from.cu_seqlens_q;
  to.total_q = from.total_q;
  to.window_left = from.window_left;
  to.window_right = from.window_right;
  to.softcap = from.softcap;
  to.score = from.score;
  to.mask = from.mask;
  to.params = from.params;
  to.param_count = from.param_count;
  to.sink = from.sink;
  to.sink_like_q = from.sink_like_q;
}

/// Attention of q to a cache. Returns the output, or (output, LSE). Throws a Python exception or Error: of mistakes
/// in the arguments before the cache is written; an error of the driver may come after. `expressions`: null where there
/// are none.
nanobind::object decode(const DecodeArguments& arguments, const ExpressionOptions* expressions = nullptr);

/// Adds decode and expressed_decode to the module.
void bind_decode(nanobind::module_& module);

/// Launches a call, complete but for its workspace, which is allocated on the device of the first array. The device is
/// the current one.
void launch_decode(const AddressedFramework& framework, const First& first, attune_decode_args args);

}  // namespace attune::python
