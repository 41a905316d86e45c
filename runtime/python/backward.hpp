// One call from Python for the gradients of attention: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "runtime/python/binding.hpp"
#include "runtime/python/expressions.hpp"

namespace attune::python {

/// Each as the caller passed it; those of a ragged batch are None where there is none.
struct BackwardArguments {
  nanobind::handle dout;
  nanobind::handle q;
  nanobind::handle k;
  nanobind::handle v;
  nanobind::handle out;
  nanobind::handle softmax_lse;
  nanobind::handle dsoftmax_lse;
  nanobind::handle softmax_scale;
  nanobind::handle causal;
  nanobind::handle window_size;
  nanobind::handle softcap;
  nanobind::handle deterministic;
  nanobind::handle cu_seqlens_q;
  nanobind::handle cu_seqlens_k;
  nanobind::handle max_seqlen_q;
  nanobind::handle max_seqlen_k;
  nanobind::handle seqused_q;
  nanobind::handle seqused_k;
  nanobind::handle dropout_p;
  nanobind::handle rng_state;
  nanobind::handle alibi_slopes;
  ExpressionOptions expressions;

  static constexpr std::array plain_names{"dout",
                                          "q",
                                          "k",
                                          "v",
                                          "out",
                                          "softmax_lse",
                                          "dsoftmax_lse",
                                          "softmax_scale",
                                          "causal",
                                          "window_size",
                                          "softcap",
                                          "deterministic",
                                          "cu_seqlens_q",
                                          "cu_seqlens_k",
                                          "max_seqlen_q",
                                          "max_seqlen_k",
                                          "seqused_q",
                                          "seqused_k",
                                          "dropout_p",
                                          "rng_state",
                                          "alibi_slopes"};
  static constexpr auto names = joined(plain_names, ExpressionOptions::names);
};

/// (dq, dk, dv). Throws a Python exception or Error; then nothing was launched.
nanobind::object backward(const BackwardArguments& arguments);

/// Throws a NotImplementedError where gradients do not pass the scores of such a call: `score` is a text or None,
/// `softcap` a number.
void require_gradients(nanobind::handle score, nanobind::handle softcap);

/// Adds backward and require_gradients to the module.
void bind_backward(nanobind::module_& module);

}  // namespace attune::python
