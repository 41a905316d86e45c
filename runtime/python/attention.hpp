// One call from Python: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <span>

#include "runtime/python/expressions.hpp"
#include "runtime/python/framework.hpp"

namespace attune::python {

/// What attention over keys of any kind takes beside its arrays; each is as the caller passed it.
struct Options {
  nanobind::handle dropout_p;      ///< a number
  nanobind::handle softmax_scale;  ///< a number, or None
  nanobind::handle causal;
  nanobind::handle window_size;  ///< two integers
  nanobind::handle softcap;
  nanobind::handle alibi_slopes;  ///< an array, or None
  nanobind::handle return_lse;

  static constexpr std::array names{"dropout_p", "softmax_scale", "causal",           "window_size",
                                    "softcap",   "alibi_slopes",  "return_attn_probs"};
};

/// What attention takes by name alone, each as the caller passed it.
struct Additions {
  nanobind::handle rng_state;       ///< what dropout takes, or None
  nanobind::handle learnable_sink;  ///< an array, or None

  static constexpr std::array names{"rng_state", "learnable_sink"};
};

/// Attention over q, k and v, which lie in one to three arrays; `expressions`: null where there are none. Returns the
/// output, or (output, LSE, None). Throws a Python exception or Error; then nothing was launched.
nanobind::object attention(std::span<const Argument> arguments, const Options& options, const Additions& additions,
                           const ExpressionOptions* expressions = nullptr);

/// Adds attention, attention_kvpacked, attention_qkvpacked and expressed_attention to the module.
void bind_attention(nanobind::module_& module);

/// A result, an array or a tuple that begins with one, with so many columns of that array.
nanobind::object without_padding(const nanobind::object& result, std::int64_t head_dim);

}  // namespace attune::python
