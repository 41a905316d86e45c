// One call from Python that rotates queries and keys: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

namespace attune::python {

/// Each as the caller passed it.
struct RotaryArguments {
  nanobind::handle q;
  nanobind::handle k;  ///< an array or None
  nanobind::handle rotary_cos;
  nanobind::handle rotary_sin;
  nanobind::handle positions;       ///< an array or None
  nanobind::handle seqlen_offsets;  ///< likewise
  nanobind::handle rotary_interleaved;

  static constexpr std::array names{
      "q", "k", "rotary_cos", "rotary_sin", "positions", "seqlen_offsets", "rotary_interleaved"};
};

/// Rotates queries and keys in place. Throws a Python exception or Error; then nothing was launched.
void rotary(const RotaryArguments& arguments);

/// Adds rotary to the module.
void bind_rotary(nanobind::module_& module);

}  // namespace attune::python
