#include "runtime/python/rotation.hpp"

#include <fmt/format.h>

#include <array>

#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// Cosines or sines.
Array read_angles(const First& first, const char* name, nb::handle array) {
  const Array read = read_plain(first, name, array, {first.array.element}, std::array<std::int64_t, 2>{-1, -1},
                                "it must be (rotations, rotary_dim / 2)");
  require_contiguous(name, read);
  return read;
}

}  // namespace

Rotation rotation_of(const First& first, nb::handle cos, nb::handle sin, nb::handle interleaved) {
  if (cos.is_none() != sin.is_none()) {
    raise(PyExc_ValueError, "rotary_cos and rotary_sin go together; one of them is None");
  }
  if (cos.is_none()) return {};
  const Array cosines = read_angles(first, "rotary_cos", cos);
  const Array sines = read_angles(first, "rotary_sin", sin);
  if (sines.shape != cosines.shape) {
    raise(PyExc_ValueError, fmt::format("rotary_sin has shape ({}, {}); it must be ({}, {}), as rotary_cos is",
                                        sines.shape[0], sines.shape[1], cosines.shape[0], cosines.shape[1]));
  }
  return {.kind = is_true(interleaved) ? ATTUNE_ROTARY_INTERLEAVED : ATTUNE_ROTARY_HALVES,
          .cos = pointer<const void>(cosines.address),
          .sin = pointer<const void>(sines.address),
          .dim = count("rotary_dim", 2 * cosines.shape[1]),
          .rotations = count("rotations", cosines.shape[0])};
}

}  // namespace attune::python
