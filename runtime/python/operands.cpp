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

const char* name_of(Element element) {
  switch (element) {
    case Element::float16:
      return "float16";
    case Element::bfloat16:
      return "bfloat16";
    case Element::float32:
      return "float32";
    case Element::int32:
      return "int32";
    case Element::int64:
      return "int64";
    case Element::other:
      break;
  }
  return "another";
}

std::string names_of(std::initializer_list<Element> elements) {
  std::string names;
  for (const Element& element : elements) {
    if (!names.empty()) names += &element + 1 == elements.end() ? " or " : ", ";
    names += name_of(element);
  }
  return names;
}

void require_framework(const First& first, const Argument& argument) {
  if (nb::isinstance(argument.array, first.framework.array_type())) return;
  raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a {}, as {} is", argument.name,
                                     full_type_name(argument.array), first.framework.type_name(), first.argument.name));
}

std::string words_of(const Demand& demand) {
  if (const auto* const words = std::get_if<std::string_view>(&demand)) return std::string(*words);
  return std::get<FunctionRef<std::string()>>(demand)();
}

void require_device(const First& first, const Argument& argument, const Array& array) {
  if (array.device == first.array.device) return;
  raise(PyExc_ValueError, fmt::format("{} is on the device {}; it must be on {}, as {} is", argument.name,
                                      text(argument.array.attr("device")), text(first.argument.array.attr("device")),
                                      first.argument.name));
}

}  // namespace

std::string Operand::text() const { return tuple_text(std::span(shape).last(static_cast<std::size_t>(rank))); }

std::string tuple_text(std::span<const std::int64_t> values) { return fmt::format("({})", fmt::join(values, ", ")); }

std::string shape_text(const Argument& argument) {
  return text(nb::steal(PySequence_Tuple(argument.array.attr("shape").ptr())));
}

attune_dtype dtype_of(Element element) { return element == Element::bfloat16 ? ATTUNE_BF16 : ATTUNE_FP16; }

First read_first(const Argument& argument) {
  const Framework& framework = framework_of(argument.name, argument.array);
  const Array array = framework.read(argument.name, argument.array);
  if (array.element != Element::float16 && array.element != Element::bfloat16) {
    raise(PyExc_TypeError, fmt::format("{} has dtype {}; it must be float16 or bfloat16", argument.name,
                                       text(argument.array.attr("dtype"))));
  }
  return {framework, argument, array};
}

const AddressedFramework& require_addressed(const First& first, const char* operation) {
  if (const AddressedFramework* found = first.framework.addressed()) return *found;
  raise(PyExc_NotImplementedError, fmt::format("{} is a {}; {} serves PyTorch CUDA tensors, CuPy and NumPy arrays yet",
                                               first.argument.name, first.framework.type_name(), operation));
}

Array read_alike(const First& first, const Argument& argument) {
  if (argument.array.is(first.argument.array)) return first.array;
  require_framework(first, argument);
  const Array array = first.framework.read(argument.name, argument.array);
  if (array.element != first.array.element) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be {}, as {} is", argument.name, text(argument.array.attr("dtype")),
                      text(first.argument.array.attr("dtype")), first.argument.name));
  }
  require_device(first, argument, array);
  return array;
}

void split(const Argument& argument, const Array& array, int rank, const char* accepted, std::span<Operand> into) {
  const auto own = static_cast<std::size_t>(rank);  // dimensions, that of parts apart
  const bool packed = argument.parts > 1;
  const auto dimensions = own + (packed ? 1 : 0);
  const std::size_t place = own - 2;  // of parts
  const bool fits = array.rank == static_cast<int>(dimensions) && (!packed || array.shape[place] == argument.parts);
  if (!fits) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; it must be {}", argument.name, shape_text(argument), accepted));
  }
  const std::span extents = std::span(array.shape).first(dimensions);
  if (std::ranges::count(extents.last(2), 0) != 0) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; heads and head_dim must be at least 1", argument.name, shape_text(argument)));
  }
  const auto without_parts = [&](const Extents& of, std::int64_t before) {
    Shape result{before, before, before, before};
    std::copy_n(of.begin(), place, result.end() - rank);
    std::copy_n(of.begin() + static_cast<std::ptrdiff_t>(dimensions - 2), 2, result.end() - 2);
    return result;
  };
  const Shape strides = without_parts(array.strides, 0);
  if (strides[3] != 1 && extents.back() > 1 && std::ranges::count(extents, 0) == 0) {
    raise(PyExc_ValueError, fmt::format("{} has strides {}, in elements; the last dimension must be contiguous",
                                        argument.name, tuple_text(std::span(strides).last(own))));
  }
  const std::int64_t step = packed ? array.strides[place] * element_bytes : 0;
  for (std::size_t part = 0; part < into.size(); ++part) {
    const std::uintptr_t address = array.address + part * static_cast<std::uintptr_t>(step);
    into[part] = {argument.name,
                  rank,
                  without_parts(array.shape, 1),
                  {pointer<void>(address), strides[0], strides[1], strides[2]}};
  }
}

std::span<Operand> read_parts(const First& first, const Argument& argument, int rank, const char* accepted,
                              std::span<Operand> into) {
  const Array array = read_alike(first, argument);
  first.framework.require_usable(argument, array);
  const auto parts = static_cast<std::size_t>(argument.parts);
  split(argument, array, rank, accepted, into.first(parts));
  return into.subspan(parts);
}

Operand read_operand(const First& first, const char* name, nb::handle array, int rank, const char* accepted) {
  Operand operand;
  read_parts(first, {name, array, 1}, rank, accepted, std::span(&operand, 1));
  return operand;
}

Operand read_output(const First& first, const char* name, nb::handle array, const Operand& like, const char* accepted) {
  const Operand written = read_operand(first, name, array, like.rank, accepted);
  if (written.shape != like.shape) {
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; it must be {}, as {} is", name, written.text(), like.text(), like.name));
  }
  first.framework.require_writable({name, array, 1});
  return written;
}

Array read_plain(const First& first, const char* name, nb::handle array, std::initializer_list<Element> accepted,
                 std::span<const std::int64_t> shape, Demand demand) {
  const Argument argument{name, array, 1};
  require_framework(first, argument);
  const Array read = first.framework.read(name, array);
  if (std::ranges::find(accepted, read.element) == accepted.end()) {
    raise(PyExc_TypeError,
          fmt::format("{} has dtype {}; it must be {}", name, text(array.attr("dtype")), names_of(accepted)));
  }
  require_device(first, argument, read);
  first.framework.require_usable(argument, read);
  const auto fits = [](std::int64_t extent, std::int64_t wanted) { return wanted < 0 || extent == wanted; };
  if (read.rank != static_cast<int>(shape.size()) ||
      !std::ranges::equal(std::span(read.shape).first(shape.size()), shape, fits)) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; {}", name, shape_text(argument), words_of(demand)));
  }
  const std::size_t last = shape.size() - 1;
  if (std::ranges::count(std::span(read.shape).first(shape.size()), 0) != 0) return read;  // its strides are any
  if (read.shape[last] > 1 && read.strides[last] != 1) {
    raise(PyExc_ValueError, fmt::format("{} has a stride of {} elements in its last dimension; it must be contiguous",
                                        name, read.strides[last]));
  }
  return read;
}

void require_rows_in_place(const Operand& cache) {
  const std::int64_t head_dim = cache.shape[3];
  const std::int64_t padded = padded_head_dim(head_dim);
  if (head_dim == padded || std::ranges::count(cache.shape, 0) != 0) return;
  const std::array strides{cache.tensor.stride_batch, cache.tensor.stride_seq, cache.tensor.stride_head};
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (cache.shape[i] == 1 || strides[i] % head_dim_step == 0) continue;
    raise(PyExc_ValueError,
          fmt::format("{0} has head_dim {1} and a stride of {2} elements; a cache is never copied, so that its strides "
                      "must be multiples of {3}: allocate it with {4} columns, and pass {0}[..., :{1}]",
                      cache.name, head_dim, strides[i], head_dim_step, padded));
  }
}

attune_tensor padded_rows(const First& first, nb::handle array, const Operand& operand, Kept& kept) {
  const std::int64_t padded = padded_head_dim(operand.shape[3]);
  if (padded == operand.shape[3]) return operand.tensor;
  kept.push_back(first.framework.padded(array, padded));
  const Array copy = first.framework.read(operand.name, kept.back());
  return tensor_of(copy, operand.rank);
}

PaddedCopies::PaddedCopies(const First& first, std::span<const Argument> arguments, std::int64_t head_dim,
                           std::int64_t head_dim_v) {
  for (const Argument& argument : arguments) {
    const bool values_alone = argument.parts == 1 && arguments_.size() == 2;
    copies_.push_back(first.framework.padded(argument.array, padded_head_dim(values_alone ? head_dim_v : head_dim)));
    arguments_.push_back({argument.name, copies_.back(), argument.parts});
  }
}

void require_whole_output(const Operand& q, std::int64_t head_dim_v) {
  if (q.shape[3] == padded_head_dim(q.shape[3]) && head_dim_v == padded_head_dim(head_dim_v)) return;
  raise(PyExc_ValueError, fmt::format("out is given, and {} has head_dim {}; out is written where that of q and that "
                                      "of v are multiples of 8",
                                      q.name, q.shape[3]));
}

void require_contiguous(const char* name, const Array& array) {
  if (std::ranges::count(std::span(array.shape).first(static_cast<std::size_t>(array.rank)), 0) != 0) return;
  std::int64_t elements = 1;
  for (auto i = static_cast<std::size_t>(array.rank); i-- > 0; elements *= array.shape[i]) {
    if (array.shape[i] == 1 || array.strides[i] == elements) continue;
    raise(PyExc_ValueError,
          fmt::format("{} has a stride of {} elements in dimension {}; it must be contiguous, so that it is {}", name,
                      array.strides[i], i, elements));
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

std::int32_t integer(const char* name, nb::handle value, const char* accepted) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    raise(PyExc_TypeError, fmt::format("{} is a {}; it must be {}", name, full_type_name(value), accepted));
  }
  int overflow = 0;
  const long long result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) raise(PyExc_ValueError, fmt::format("{} is {}; it must fit 32 bits", name, text(index)));
  return count(name, result);
}

bool is_true(nb::handle value) {
  const int result = PyObject_IsTrue(value.ptr());
  if (result < 0) throw nb::python_error();
  return result != 0;
}

double number(const char* name, nb::handle value) {
  // A sum first, so that a string is none.
  const nb::object sum = nb::steal(PyNumber_Add(value.ptr(), nb::float_(0.0).ptr()));
  const nb::object found = sum.is_valid() ? nb::steal(PyNumber_Float(sum.ptr())) : nb::object();
  if (found.is_valid()) return PyFloat_AsDouble(found.ptr());
  if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
  raise(PyExc_TypeError, fmt::format("{} is a {}; it must be a number", name, full_type_name(value)));
}

double scale_of(nb::handle value, std::int64_t head_dim) {
  return value.is_none() ? 1 / std::sqrt(static_cast<double>(head_dim)) : number("softmax_scale", value);
}

attune_dropout dropout_of(const First& first, nb::handle dropout_p, nb::handle rng_state) {
  attune_dropout dropout{};
  dropout.p = static_cast<float>(number("dropout_p", dropout_p));
  if (dropout.p == 0) return dropout;
  if (rng_state.is_none()) {
    raise(PyExc_ValueError, fmt::format("rng_state is None; with dropout_p {} it must be an array of two int64, seed "
                                        "and offset",
                                        dropout.p));
  }
  const Element element = first.framework.state_element();
  const bool in_halves = element == Element::int32;
  const Array state = read_plain(first, "rng_state", rng_state, {element}, std::array{std::int64_t{in_halves ? 4 : 2}},
                                 in_halves ? "seed and offset are (4,)" : "seed and offset are (2,)");
  require_contiguous("rng_state", state);
  dropout.state = pointer<const std::int64_t>(state.address);
  return dropout;
}

Window window_of(nb::handle window_size) {
  const Py_ssize_t size = PyObject_Size(window_size.ptr());  // arrays have one, and need not be sequences
  if (size < 0) PyErr_Clear();
  if (size != 2) {
    raise(PyExc_TypeError, fmt::format("window_size is {}; it must be (left, right), two integers", text(window_size)));
  }
  const auto side = [&](int place) {
    const nb::object value = nb::steal(PyObject_GetItem(window_size.ptr(), nb::int_(place).ptr()));
    if (!value.is_valid()) throw nb::python_error();
    return integer("window_size", value, "(left, right), two integers");
  };
  return {side(0), side(1)};
}

}  // namespace attune::python
