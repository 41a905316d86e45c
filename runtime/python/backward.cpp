#include "runtime/python/backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "runtime/python/attention.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"

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

/// LSE, or its gradient.
const float* read_rows(const First& first, const char* name, nb::handle array, const Operand& q) {
  const std::array<std::int64_t, 3> shape{q.shape[0], q.shape[2], q.shape[1]};
  const auto wanted = std::span(shape).last(static_cast<std::size_t>(q.rank - 1));
  const Array read = read_plain(first, name, array, Element::float32, wanted,
                                fmt::format("with q of {} it must be {}", q.text(), tuple_text(wanted)));
  require_contiguous(name, read);
  return pointer<const float>(read.address);
}

void set_sequences(attune_backward_args& args, const BackwardArguments& arguments, const First& first) {
  const Starts starts = read_starts(first, "cu_seqlens_q", arguments.cu_seqlens_q);
  args.cu_seqlens_q = starts.starts;
  args.batch = starts.batch;
  const std::string with = fmt::format("with {} sequences in cu_seqlens_q it must be", args.batch);
  const auto read = [&](const char* name, nb::handle array, std::int64_t extent, const char* shape) {
    return pointer<const std::int32_t>(
        read_plain(first, name, array, Element::int32, std::array{extent}, with + shape).address);
  };
  args.cu_seqlens_k = read("cu_seqlens_k", arguments.cu_seqlens_k, args.batch + std::int64_t{1}, " (batch + 1,)");
  if (!arguments.seqused_q.is_none()) args.seqused_q = read("seqused_q", arguments.seqused_q, args.batch, " (batch,)");
  if (!arguments.seqused_k.is_none()) args.seqused_k = read("seqused_k", arguments.seqused_k, args.batch, " (batch,)");
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  args.seqlen_k = integer("max_seqlen_k", arguments.max_seqlen_k, "an integer");
}

attune_backward_args args_of(const BackwardArguments& arguments, const First& first, const Tensors& tensors) {
  const auto& [q, k, v, out, dout] = tensors;
  attune_backward_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.o = out.tensor;
  args.dout = dout.tensor;
  args.lse = read_rows(first, "softmax_lse", arguments.softmax_lse, q);
  if (!arguments.dsoftmax_lse.is_none()) args.dlse = read_rows(first, "dsoftmax_lse", arguments.dsoftmax_lse, q);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.head_dim_v = count("head_dim_v", v.shape[3]);
  if (is_ragged(arguments)) {
    set_sequences(args, arguments, first);
    args.total_q = count("total_q", q.shape[1]);
    args.total_k = count("total_k", k.shape[1]);
  } else {
    args.batch = count("batch", q.shape[0]);
    args.seqlen_q = count("seqlen_q", q.shape[1]);
    args.seqlen_k = count("seqlen_k", k.shape[1]);
  }
  args.softmax_scale = static_cast<float>(scale_of(arguments.softmax_scale, q.shape[3]));
  args.causal = is_true(arguments.causal) ? 1 : 0;
  const Window window = window_of(arguments.window_size);
  args.window = 1;
  args.window_left = window.left;
  args.window_right = window.right;
  args.softcap = static_cast<float>(number("softcap", arguments.softcap));
  args.dropout = dropout_of(first, arguments.dropout_p, arguments.rng_state);
  args.any_order = !arguments.deterministic.is_none() && !is_true(arguments.deterministic) ? 1 : 0;
  return args;
}

/// The same of tensors that are padded with zeros, which add nothing to any product: its results without their columns.
nb::object padded_backward(const BackwardArguments& arguments, const First& first, const Tensors& tensors) {
  const Entered entered(first.framework.addressed()->on_device(first.array.device));
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

void bind_backward(nb::module_& module) { bind_call<&backward>(module, "backward", "The gradients (dq, dk, dv)."); }

nb::object backward(const BackwardArguments& arguments) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "the backward pass");
  const Tensors tensors = tensors_of(arguments, first);
  if (!tensors.has_whole_chunks()) return padded_backward(arguments, first, tensors);
  attune_backward_args args = args_of(arguments, first, tensors);

  const Entered entered(framework.on_device(first.array.device));
  const auto result = [&](const char* name, nb::handle like, attune_tensor& tensor) {
    nb::object made = framework.empty_like(like);
    const Array array = framework.read(name, made);
    tensor = is_ragged(arguments) ? rows_tensor_of(array) : tensor_of(array);
    return made;
  };
  const nb::object dq = result("dq", arguments.q, args.dq);
  const nb::object dk = result("dk", arguments.k, args.dk);
  const nb::object dv = result("dv", arguments.v, args.dv);
  const nb::object memory = framework.workspace(&attune_backward_workspace, args, arguments.q);
  framework.launch(&attune_backward, args, first.array.device);
  return nb::make_tuple(dq, dk, dv);
}

}  // namespace attune::python
