// What the checks of every operation's arrays share: the operands that lie in them, and what is no array.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/python/framework.hpp"

namespace attune::python {

using Shape = std::array<std::int64_t, 4>;  ///< or strides, in elements

/// q, k or v.
struct Operand {
  const char* name = nullptr;  ///< of the argument it lies in
  Shape shape{};
  attune_tensor tensor{};
};

std::string tuple_text(const Shape& shape);

/// The shape of an array as it was passed, for messages.
std::string shape_text(const Argument& argument);

/// The array that the others must be like. Throws where no kernel takes its dtype.
Array read_first(const Framework& framework, const Argument& first);

/// Throws unless an array is of the framework of the first one.
void require_framework(const Framework& framework, const Argument& argument, const Argument& first);

/// Throws unless an array is on the device of the first one.
void require_device(const Argument& argument, const Array& array, const Argument& first, const Array& like);

/// An array that must be like the first one: of its framework, dtype and device.
Array read_alike(const Framework& framework, const Argument& argument, const Argument& first, const Array& like);

/// Finds the operands that lie in an argument. `accepted` says what its shape must be, for messages.
void split(const Argument& argument, const Array& array, const char* accepted, std::span<Operand> into);

/// Throws unless the heads of keys divide those of queries.
void require_heads_divide(const Operand& q, const Operand& k);

/// As 32 bits. Throws a ValueError that names it where they do not hold it.
std::int32_t count(const char* name, std::int64_t value);

/// The truth of any object.
bool is_true(nanobind::handle value);

/// The scale of the scores; None: 1 / sqrt(head_dim). Throws where it is no number.
double scale_of(nanobind::handle value, std::int64_t head_dim);

}  // namespace attune::python
