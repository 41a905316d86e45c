// Rotary position embedding as callers ask for it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "runtime/python/operands.hpp"

namespace attune::python {

struct Rotation {
  attune_rotary kind = ATTUNE_ROTARY_NONE;
  const void* cos = nullptr;
  const void* sin = nullptr;
  std::int32_t dim = 0;        ///< columns that are rotated
  std::int32_t rotations = 0;  ///< positions that have one

  /// Enters it into the arguments of a call.
  template <class Args>
  void set(Args& args) const {
    args.rotary = kind;
    args.rotary_cos = cos;
    args.rotary_sin = sin;
    args.rotary_dim = dim;
    args.rotations = rotations;
  }
};

/// Of rotary_cos and rotary_sin, arrays or None.
Rotation rotation_of(const First& first, nanobind::handle cos, nanobind::handle sin, nanobind::handle interleaved);

}  // namespace attune::python
