#include "runtime/python/operands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr std::int64_t element_bytes = 2;  // of float16 and bfloat16

}  // namespace

std::string tuple_text(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

std::string shape_text(const Argument& argument) {
  return text(nb::steal(PySequence_Tuple(argument.array.attr("shape").ptr())));
}

Array read_first(const Framework& framework, const Argument& first) {
  const Array array = framework.read(first.name, first.array);
  if (!array.dtype) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be float16 or bfloat16", first.name, text(first.array.attr("dtype"))));
  }
  return array;
}

void require_framework(const Framework& framework, const Argument& argument, const Argument& first) {
  if (nb::isinstance(argument.array, framework.array_type())) return;
  raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a {}, as {} is", argument.name,
                                     full_type_name(argument.array), framework.type_name(), first.name));
}

void require_device(const Argument& argument, const Array& array, const Argument& first, const Array& like) {
  if (array.device == like.device) return;
  raise(PyExc_ValueError,
        fmt::format("{} is on the device {}; it must be on {}, as {} is", argument.name,
                    text(argument.array.attr("device")), text(first.array.attr("device")), first.name));
}

Array read_alike(const Framework& framework, const Argument& argument, const Argument& first, const Array& like) {
  require_framework(framework, argument, first);
  const Array array = framework.read(argument.name, argument.array);
  if (array.dtype != like.dtype) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be {}, as {} is", argument.name, text(argument.array.attr("dtype")),
                      text(first.array.attr("dtype")), first.name));
  }
  require_device(argument, array, first, like);
  return array;
}

void split(const Argument& argument, const Array& array, const char* accepted, std::span<Operand> into) {
  const bool packed = argument.parts > 1;
  const auto rank = static_cast<std::size_t>(packed ? 5 : 4);
  const bool fits = array.rank == static_cast<int>(rank) && (!packed || array.shape[2] == argument.parts);
  if (!fits || std::ranges::count(std::span(array.shape).first(rank), 0) != 0) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; {}", argument.name, shape_text(argument),
                      fits ? "every extent must be at least 1" : fmt::format("it must be {}", accepted)));
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

void require_heads_divide(const Operand& q, const Operand& k) {
  if (q.shape[2] % k.shape[2] == 0) return;
  raise(PyExc_ValueError,
        fmt::format("{} has {} heads; they must divide the {} heads of {}", k.name, k.shape[2], q.shape[2], q.name));
}

std::int32_t count(const char* name, std::int64_t value) {
  using Limits = std::numeric_limits<std::int32_t>;
  if (value > Limits::max() || value < Limits::min()) {
    raise(PyExc_ValueError, fmt::format("{} is {}; it must fit 32 bits", name, value));
  }
  return static_cast<std::int32_t>(value);
}

bool is_true(nb::handle value) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result < 0) throw nb::python_error();
  return result != 0;
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

}  // namespace attune::python
