// attune._attune: the C ABI for the Python package beside it. Arrays are read through the attributes that their
// framework gives them, so that no framework's headers or versions matter here.
#include <nanobind/nanobind.h>

#include <array>

#include "attune/attune.h"
#include "runtime/python/attention.hpp"
#include "runtime/python/decode.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/merge.hpp"
#include "runtime/python/store.hpp"
#include "runtime/python/tools.hpp"
#include "runtime/python/varlen.hpp"
#include "runtime/python/xla_handler.hpp"

namespace nb = nanobind;

NB_MODULE(_attune, module) {
  using attune::python::Argument;
  using nb::literals::operator""_a;
  module.doc() = "Attune's C ABI. Use the package attune instead.";
  module.attr("version") = attune_version();
  attune::python::translate_errors();
  attune::python::bind_tools(module);

  // Handles, and None too: what is wrong with a value is said under its own name.
  module.def(
      "attention",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle softmax_scale, nb::handle causal, nb::handle window_size,
         nb::handle softcap, nb::handle return_lse) {
        return attune::python::attention(std::array{Argument{"q", q, 1}, Argument{"k", k, 1}, Argument{"v", v, 1}},
                                         {softmax_scale, causal, window_size, softcap, return_lse});
      },
      "q"_a.none(), "k"_a.none(), "v"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(),
      "softcap"_a.none(), "return_lse"_a.none(), "The output, or (output, LSE, None).");
  module.def(
      "attention_kvpacked",
      [](nb::handle q, nb::handle kv, nb::handle softmax_scale, nb::handle causal, nb::handle window_size,
         nb::handle softcap, nb::handle return_lse) {
        return attune::python::attention(std::array{Argument{"q", q, 1}, Argument{"kv", kv, 2}},
                                         {softmax_scale, causal, window_size, softcap, return_lse});
      },
      "q"_a.none(), "kv"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(),
      "softcap"_a.none(), "return_lse"_a.none(), "attention() of keys and values in one array.");
  module.def(
      "attention_qkvpacked",
      [](nb::handle qkv, nb::handle softmax_scale, nb::handle causal, nb::handle window_size, nb::handle softcap,
         nb::handle return_lse) {
        return attune::python::attention(std::array{Argument{"qkv", qkv, 3}},
                                         {softmax_scale, causal, window_size, softcap, return_lse});
      },
      "qkv"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(), "softcap"_a.none(),
      "return_lse"_a.none(), "attention() of queries, keys and values in one array.");
  module.def(
      "varlen",
      [](nb::handle q, nb::handle k, nb::handle v, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
         nb::handle max_seqlen_q, nb::handle max_seqlen_k, nb::handle seqused_q, nb::handle seqused_k,
         nb::handle softmax_scale, nb::handle causal, nb::handle window_size, nb::handle softcap, nb::handle return_lse,
         nb::handle block_table, nb::handle out) {
        const std::array arrays{Argument{"q", q, 1}, Argument{"k", k, 1}, Argument{"v", v, 1}};
        return attune::python::varlen({.arrays = arrays,
                                       .cu_seqlens_q = cu_seqlens_q,
                                       .cu_seqlens_k = cu_seqlens_k,
                                       .max_seqlen_q = max_seqlen_q,
                                       .max_seqlen_k = max_seqlen_k,
                                       .seqused_q = seqused_q,
                                       .seqused_k = seqused_k,
                                       .softmax_scale = softmax_scale,
                                       .causal = causal,
                                       .window_size = window_size,
                                       .softcap = softcap,
                                       .return_lse = return_lse,
                                       .block_table = block_table,
                                       .out = out});
      },
      "q"_a.none(), "k"_a.none(), "v"_a.none(), "cu_seqlens_q"_a.none(), "cu_seqlens_k"_a.none(),
      "max_seqlen_q"_a.none(), "max_seqlen_k"_a.none(), "seqused_q"_a.none(), "seqused_k"_a.none(),
      "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(), "softcap"_a.none(), "return_lse"_a.none(),
      "block_table"_a.none(), "out"_a.none(), "The output, or (output, LSE, None).");
  module.def(
      "varlen_kvpacked",
      [](nb::handle q, nb::handle kv, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k, nb::handle max_seqlen_q,
         nb::handle max_seqlen_k, nb::handle softmax_scale, nb::handle causal, nb::handle window_size,
         nb::handle softcap, nb::handle return_lse) {
        const std::array arrays{Argument{"q", q, 1}, Argument{"kv", kv, 2}};
        return attune::python::varlen({.arrays = arrays,
                                       .cu_seqlens_q = cu_seqlens_q,
                                       .cu_seqlens_k = cu_seqlens_k,
                                       .max_seqlen_q = max_seqlen_q,
                                       .max_seqlen_k = max_seqlen_k,
                                       .seqused_q = nb::none(),
                                       .seqused_k = nb::none(),
                                       .softmax_scale = softmax_scale,
                                       .causal = causal,
                                       .window_size = window_size,
                                       .softcap = softcap,
                                       .return_lse = return_lse,
                                       .block_table = nb::none(),
                                       .out = nb::none()});
      },
      "q"_a.none(), "kv"_a.none(), "cu_seqlens_q"_a.none(), "cu_seqlens_k"_a.none(), "max_seqlen_q"_a.none(),
      "max_seqlen_k"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(), "softcap"_a.none(),
      "return_lse"_a.none(), "varlen() of keys and values in one array.");
  module.def(
      "varlen_qkvpacked",
      [](nb::handle qkv, nb::handle cu_seqlens, nb::handle max_seqlen, nb::handle softmax_scale, nb::handle causal,
         nb::handle window_size, nb::handle softcap, nb::handle return_lse) {
        const std::array arrays{Argument{"qkv", qkv, 3}};
        return attune::python::varlen({.arrays = arrays,
                                       .cu_seqlens_q = cu_seqlens,
                                       .cu_seqlens_k = cu_seqlens,
                                       .max_seqlen_q = max_seqlen,
                                       .max_seqlen_k = max_seqlen,
                                       .seqused_q = nb::none(),
                                       .seqused_k = nb::none(),
                                       .softmax_scale = softmax_scale,
                                       .causal = causal,
                                       .window_size = window_size,
                                       .softcap = softcap,
                                       .return_lse = return_lse,
                                       .block_table = nb::none(),
                                       .out = nb::none()});
      },
      "qkv"_a.none(), "cu_seqlens"_a.none(), "max_seqlen"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(),
      "window_size"_a.none(), "softcap"_a.none(), "return_lse"_a.none(),
      "varlen() of queries, keys and values in one array.");
  module.def(
      "decode",
      [](nb::handle q, nb::handle k_cache, nb::handle v_cache, nb::handle k, nb::handle v, nb::handle rotary_cos,
         nb::handle rotary_sin, nb::handle cache_seqlens, nb::handle cache_batch_idx, nb::handle cache_leftpad,
         nb::handle block_table, nb::handle softmax_scale, nb::handle causal, nb::handle window_size,
         nb::handle softcap, nb::handle rotary_interleaved, nb::handle num_splits, nb::handle return_lse,
         nb::handle out, nb::handle check_tables, nb::handle cu_seqlens_q, nb::handle max_seqlen_q) {
        return attune::python::decode({.q = q,
                                       .cu_seqlens_q = cu_seqlens_q,
                                       .max_seqlen_q = max_seqlen_q,
                                       .k_cache = k_cache,
                                       .v_cache = v_cache,
                                       .k = k,
                                       .v = v,
                                       .rotary_cos = rotary_cos,
                                       .rotary_sin = rotary_sin,
                                       .cache_seqlens = cache_seqlens,
                                       .cache_batch_idx = cache_batch_idx,
                                       .cache_leftpad = cache_leftpad,
                                       .block_table = block_table,
                                       .softmax_scale = softmax_scale,
                                       .causal = causal,
                                       .window_size = window_size,
                                       .softcap = softcap,
                                       .rotary_interleaved = rotary_interleaved,
                                       .num_splits = num_splits,
                                       .return_lse = return_lse,
                                       .out = out,
                                       .check_tables = check_tables});
      },
      "q"_a.none(), "k_cache"_a.none(), "v_cache"_a.none(), "k"_a.none(), "v"_a.none(), "rotary_cos"_a.none(),
      "rotary_sin"_a.none(), "cache_seqlens"_a.none(), "cache_batch_idx"_a.none(), "cache_leftpad"_a.none(),
      "block_table"_a.none(), "softmax_scale"_a.none(), "causal"_a.none(), "window_size"_a.none(), "softcap"_a.none(),
      "rotary_interleaved"_a.none(), "num_splits"_a.none(), "return_lse"_a.none(), "out"_a.none(),
      "check_tables"_a.none(), "cu_seqlens_q"_a.none(), "max_seqlen_q"_a.none(), "The output, or (output, LSE).");
  module.def(
      "store",
      [](nb::handle k, nb::handle v, nb::handle k_cache, nb::handle v_cache, nb::handle slot_mapping,
         nb::handle cache_seqlens, nb::handle cache_batch_idx, nb::handle block_table, nb::handle positions,
         nb::handle rotary_cos, nb::handle rotary_sin, nb::handle rotary_interleaved, nb::handle check_tables) {
        attune::python::store({.k = k,
                               .v = v,
                               .k_cache = k_cache,
                               .v_cache = v_cache,
                               .slot_mapping = slot_mapping,
                               .cache_seqlens = cache_seqlens,
                               .cache_batch_idx = cache_batch_idx,
                               .block_table = block_table,
                               .positions = positions,
                               .rotary_cos = rotary_cos,
                               .rotary_sin = rotary_sin,
                               .rotary_interleaved = rotary_interleaved,
                               .check_tables = check_tables});
      },
      "k"_a.none(), "v"_a.none(), "k_cache"_a.none(), "v_cache"_a.none(), "slot_mapping"_a.none(),
      "cache_seqlens"_a.none(), "cache_batch_idx"_a.none(), "block_table"_a.none(), "positions"_a.none(),
      "rotary_cos"_a.none(), "rotary_sin"_a.none(), "rotary_interleaved"_a.none(), "check_tables"_a.none(),
      "Writes new keys and values into a cache.");
  module.def(
      "merge",
      [](nb::handle o1, nb::handle lse1, nb::handle o2, nb::handle lse2, nb::handle return_lse, nb::handle out) {
        return attune::python::merge(
            {.o1 = o1, .lse1 = lse1, .o2 = o2, .lse2 = lse2, .return_lse = return_lse, .out = out});
      },
      "o1"_a.none(), "lse1"_a.none(), "o2"_a.none(), "lse2"_a.none(), "return_lse"_a.none(), "out"_a.none(),
      "The output, or (output, LSE).");
  module.def(
      "xla_handler", [] { return nb::capsule(reinterpret_cast<const void*>(&attune::python::xla_prefill)); },
      "A capsule of the kernel as an XLA_FFI_Handler.");
}
