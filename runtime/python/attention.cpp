#include "runtime/python/attention.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

using Shape = std::array<std::int64_t, 4>;  ///< or strides, in elements

/// q, k or v.
struct Operand {
  const char* name = nullptr;  ///< of the argument it lies in
  Shape shape{};
  attune_tensor tensor{};
};

constexpr std::int64_t element_bytes = 2;  // of float16 and bfloat16

std::string tuple_text(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

bool is_true(nb::handle value) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result < 0) throw nb::python_error();
  return result != 0;
}

/// That an array is like the first one: of its framework, dtype and device.
Array read_alike(const Framework& framework, const Argument& argument, const Argument& first, const Array& like) {
  if (!nb::isinstance(argument.array, framework.array_type())) {
    raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a {}, as {} is", argument.name,
                                       full_type_name(argument.array), framework.type_name(), first.name));
  }
  const Array array = framework.read(argument.name, argument.array);
  if (array.dtype != like.dtype) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be {}, as {} is", argument.name, text(argument.array.attr("dtype")),
                      text(first.array.attr("dtype")), first.name));
  }
  if (array.device != like.device) {
    raise(PyExc_ValueError,
          fmt::format("{} is on the device {}; it must be on {}, as {} is", argument.name,
                      text(argument.array.attr("device")), text(first.array.attr("device")), first.name));
  }
  return array;
}

/// Finds the operands that lie in an argument.
void split(const Argument& argument, const Array& array, std::span<Operand> into) {
  const bool packed = argument.parts > 1;
  const auto rank = static_cast<std::size_t>(packed ? 5 : 4);
  const bool fits = array.rank == static_cast<int>(rank) && (!packed || array.shape[2] == argument.parts);
  if (!fits || std::ranges::count(std::span(array.shape).first(rank), 0) != 0) {
    const std::string parts = packed ? fmt::format("{}, ", argument.parts) : "";
    const std::string accepted =
        fits ? "every extent must be at least 1" : fmt::format("it must be (batch, seqlen, {}heads, head_dim)", parts);
    const nb::object shape = nb::steal(PySequence_Tuple(argument.array.attr("shape").ptr()));
    raise(PyExc_ValueError, fmt::format("{} has shape {}; {}", argument.name, text(shape), accepted));
  }
  const std::size_t heads = rank - 2;
  const auto without_parts = [heads](const Extents& of) { return Shape{of[0], of[1], of[heads], of[heads + 1]}; };
  const Shape strides = without_parts(array.strides);
  if (strides[3] != 1) {
    raise(PyExc_ValueError, fmt::format("{} has strides {}, in elements; the last dimension must be contiguous",
                                        argument.name, tuple_text(strides)));
  }
  const std::int64_t step = packed ? array.strides[2] * element_bytes : 0;
  for (std::size_t part = 0; part < into.size(); ++part) {
    const std::uintptr_t address = array.address + part * static_cast<std::uintptr_t>(step);
    into[part] = {
        argument.name, without_parts(array.shape), {pointer<void>(address), strides[0], strides[1], strides[2]}};
  }
}

/// That the three shapes fit together.
void require_fit(const Operand& q, const Operand& k, const Operand& v) {
  if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3]) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; with {} of {} it must be ({}, seqlen_k, heads_kv, {})", k.name,
                      tuple_text(k.shape), q.name, tuple_text(q.shape), q.shape[0], q.shape[3]));
  }
  if (!std::ranges::equal(std::span(v.shape).first(3), std::span(k.shape).first(3))) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; with {} of {} it must be ({}, {}, {}, head_dim_v)", v.name, tuple_text(v.shape),
                      k.name, tuple_text(k.shape), k.shape[0], k.shape[1], k.shape[2]));
  }
  if (q.shape[2] % k.shape[2] != 0) {
    raise(PyExc_ValueError,
          fmt::format("{} has {} heads; they must divide the {} heads of {}", k.name, k.shape[2], q.shape[2], q.name));
  }
}

std::int32_t count(const char* name, std::int64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max()) {
    raise(PyExc_ValueError, fmt::format("{} is {}; it must fit 31 bits", name, value));
  }
  return static_cast<std::int32_t>(value);
}

double scale_of(nb::handle value, std::int64_t head_dim) {
  if (value.is_none()) return 1 / std::sqrt(static_cast<double>(head_dim));
  // A sum first, so that a string is none.
  const nb::object sum = nb::steal(PyNumber_Add(value.ptr(), nb::float_(0.0).ptr()));
  const nb::object number = sum.is_valid() ? nb::steal(PyNumber_Float(sum.ptr())) : nb::object();
  if (number.is_valid()) return PyFloat_AsDouble(number.ptr());
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  raise(PyExc_TypeError, fmt::format("softmax_scale is a {}; it must be a number", full_type_name(value)));
}

}  // namespace

nb::object attention(std::span<const Argument> arguments, const Options& options) {
  const Argument& first = arguments.front();
  const Framework& framework = framework_of(first.name, first.array);
  const Array like = framework.read(first.name, first.array);
  if (!like.dtype) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be float16 or bfloat16", first.name, text(first.array.attr("dtype"))));
  }
  std::array<Operand, 3> operands;
  std::span<Operand> rest(operands);
  for (const Argument& argument : arguments) {
    const Array array = argument.array.is(first.array) ? like : read_alike(framework, argument, first, like);
    framework.require_usable(argument, array);
    const auto parts = static_cast<std::size_t>(argument.parts);
    split(argument, array, rest.first(parts));
    rest = rest.subspan(parts);
  }
  const auto& [q, k, v] = operands;
  require_fit(q, k, v);

  Call call{arguments, {}, like.device, is_true(options.return_lse)};
  attune_prefill_args& args = call.args;
  args.struct_size = sizeof(args);
  args.dtype = *like.dtype;
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.seqlen_k = count("seqlen_k", k.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.head_dim_v = count("head_dim_v", v.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(options.softmax_scale, q.shape[3]));
  args.causal = is_true(options.causal) ? 1 : 0;
  return framework.run(call);
}

}  // namespace attune::python
