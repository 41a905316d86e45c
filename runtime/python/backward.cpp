#include "runtime/python/backward.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "generator/check.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "runtime/python/arrays.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// What a call has as tensors.
struct Tensors {
  Operand q;
  Operand k;
  Operand v;
  Operand out;
  Operand dout;

  [[nodiscard]] bool has_whole_chunks() const {
    return q.shape[3] == padded_head_dim(q.shape[3]) && v.shape[3] == padded_head_dim(v.shape[3]);
  }
};

bool is_ragged(const BackwardArguments& arguments) { return !arguments.cu_seqlens_q.is_none(); }

/// The expressions of a call; null where it has none.
const ExpressionOptions* expressions_of(const BackwardArguments& arguments) {
  const auto& [score, mask, params] = arguments.expressions;
  return score.is_none() && mask.is_none() && params.is_none() ? nullptr : &arguments.expressions;
}

void require_shape(const Operand& found, const Shape& wanted, const Operand& of) {
  if (found.shape == wanted) return;
  Operand demanded = found;
  demanded.shape = wanted;
  raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} it must be {}", found.name, found.text(), of.name,
                                      of.text(), demanded.text()));
}

Tensors tensors_of(const BackwardArguments& arguments, const First& first) {
  const bool ragged = is_ragged(arguments);
  const auto read = [&](const char* name, nb::handle array) {
    return read_operand(first, name, array, ragged ? 3 : 4,
                        ragged ? "(total, heads, head_dim)" : "(batch, seqlen, heads, head_dim)");
  };
  Tensors tensors{.q = read("q", arguments.q),
                  .k = read("k", arguments.k),
                  .v = read("v", arguments.v),
                  .out = read("out", arguments.out),
                  .dout = read("dout", arguments.dout)};
  const auto& [q, k, v, out, dout] = tensors;
  Shape keys = k.shape;
  if (!is_ragged(arguments)) keys[0] = q.shape[0];
  keys[3] = q.shape[3];
  require_shape(k, keys, q);
  Shape values = k.shape;
  values[3] = v.shape[3];
  require_shape(v, values, k);
  Shape result = q.shape;
  result[3] = v.shape[3];
  require_shape(out, result, q);
  require_shape(dout, result, q);
  require_heads_divide(q, k);
  return tensors;
}

/// Of a batch that is not ragged.
void refuse_lengths(const BackwardArguments& arguments) {
  const std::array<std::pair<const char*, nb::handle>, 5> all{{{"cu_seqlens_k", arguments.cu_seqlens_k},
                                                               {"max_seqlen_q", arguments.max_seqlen_q},
                                                               {"max_seqlen_k", arguments.max_seqlen_k},
                                                               {"seqused_q", arguments.seqused_q},
                                                               {"seqused_k", arguments.seqused_k}}};
  for (const auto& [name, given] : all) {
    if (!given.is_none()) {
      raise(PyExc_ValueError, fmt::format("{} is given without cu_seqlens_q, which makes a batch ragged", name));
    }
  }
}

void set_sequences(attune_backward_args& args, const BackwardArguments& arguments, const First& first) {
  const Sequences sequences = read_starts(args.cu_seqlens_q, first, arguments.cu_seqlens_q);
  args.batch = sequences.count;
  read_more_starts(args.cu_seqlens_k, first, "cu_seqlens_k", arguments.cu_seqlens_k, sequences);
  read_optional_lengths(args.seqused_q, first, "seqused_q", arguments.seqused_q, sequences);
  read_optional_lengths(args.seqused_k, first, "seqused_k", arguments.seqused_k, sequences);
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  args.seqlen_k = integer("max_seqlen_k", arguments.max_seqlen_k, "an integer");
}

attune_backward_args args_of(const BackwardArguments& arguments, const First& first, const Tensors& tensors) {
  const auto& [q, k, v, out, dout] = tensors;
  attune_backward_args args{};
  set_tensors(args, first, q, k, v);
  args.o = out.tensor;
  args.dout = dout.tensor;
  read_lse(args.lse, first, "softmax_lse", arguments.softmax_lse, q);
  if (!arguments.dsoftmax_lse.is_none()) read_lse(args.dlse, first, "dsoftmax_lse", arguments.dsoftmax_lse, q);
  if (is_ragged(arguments)) {
    set_sequences(args, arguments, first);
    require_queries(args.seqlen_q, q, args.batch);
    args.total_q = count("total_q", q.shape[1]);
    args.total_k = count("total_k", k.shape[1]);
  } else {
    refuse_lengths(arguments);
    args.batch = count("batch", q.shape[0]);
    args.seqlen_q = count("seqlen_q", q.shape[1]);
    args.seqlen_k = count("seqlen_k", k.shape[1]);
  }
  set_scores(args, first, arguments, arguments.rng_state, q.shape[3]);
  args.any_order = !arguments.deterministic.is_none() && !is_true(arguments.deterministic) ? 1 : 0;
  return args;
}

/// The same of tensors that are padded with zeros, which add nothing to any product: its results without their columns.
nb::object padded_backward(const BackwardArguments& arguments, const First& first, const Tensors& tensors) {
  const Entered entered(first.framework.on_device(first.array.device));
  const std::int64_t head_dim = tensors.q.shape[3];
  const std::int64_t head_dim_v = tensors.v.shape[3];
  const auto padded = [&](nb::handle array, std::int64_t columns) {
    return first.framework.padded(array, padded_head_dim(columns));
  };
  const nb::object q = padded(arguments.q, head_dim);
  const nb::object k = padded(arguments.k, head_dim);
  const nb::object v = padded(arguments.v, head_dim_v);
  const nb::object out = padded(arguments.out, head_dim_v);
  const nb::object dout = padded(arguments.dout, head_dim_v);
  const nb::object scale = nb::float_(scale_of(arguments.softmax_scale, head_dim));
  BackwardArguments same = arguments;
  same.q = q;
  same.k = k;
  same.v = v;
  same.out = out;
  same.dout = dout;
  same.softmax_scale = scale;
  const nb::object all = backward(same);
  return nb::make_tuple(columns_before(all[0], head_dim), columns_before(all[1], head_dim),
                        columns_before(all[2], head_dim_v));
}

}  // namespace

void bind_backward(nb::module_& module) {
  bind_call<&backward>(module, "backward", "The gradients (dq, dk, dv).");
  module.def("require_gradients", &require_gradients, nb::arg("score").none(), nb::arg("softcap"),
             "Raises NotImplementedError where gradients do not pass such a score.");
}

void require_gradients(nb::handle score, nb::handle softcap) {
  if (score.is_none()) return;
  if (!nb::isinstance<nb::str>(score)) raise(PyExc_TypeError, "score is no text of an expression");
  const nb::str text = nb::borrow<nb::str>(score);
  BackwardProblem problem{.softcap = static_cast<float>(number("softcap", softcap)),
                          .expressions = read_expressions({.score = text.c_str()})};
  take_limits(problem);
  Variant variant = problem.expressions.given_to(Variant{});
  variant.softcap = problem.softcap != 0 ? 1 : 0;
  if (const std::optional<Refusal> refusal = gradients_rule(variant)) {
    raise(PyExc_NotImplementedError, "a tensor requires a gradient; " + refusal->message);
  }
}

nb::object backward(const BackwardArguments& arguments) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "the backward pass");
  const Tensors tensors = tensors_of(arguments, first);
  if (!tensors.has_whole_chunks()) return padded_backward(arguments, first, tensors);
  attune_backward_args args = args_of(arguments, first, tensors);
  const ExpressionArguments scores(
      first, arguments.alibi_slopes, nb::none(), expressions_of(arguments),
      {.batch = args.batch, .heads_q = args.heads_q, .causal = args.causal != 0 || args.window_right == 0});
  scores.set(args);

  const Entered entered(framework.on_device(first.array.device));
  const int rank = tensors.q.rank;
  // Kernels clear rows that no sequence has, but without a sequence none is launched.
  const bool zeros = args.batch == 0;
  const nb::object dq = framework.result_like(arguments.q, rank, args.dq, zeros);
  const nb::object dk = framework.result_like(arguments.k, rank, args.dk, zeros);
  const nb::object dv = framework.result_like(arguments.v, rank, args.dv, zeros);
  const nb::object memory = framework.workspace(&attune_backward_workspace, args, arguments.q);
  framework.launch(&attune_backward, args, first.array.device);
  return nb::make_tuple(dq, dk, dv);
}

}  // namespace attune::python
