// One call from Python that merges two results: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

namespace attune::python {

/// Each as the caller passed it.
struct MergeArguments {
  nanobind::handle o1;
  nanobind::handle lse1;
  nanobind::handle o2;
  nanobind::handle lse2;
  nanobind::handle return_lse;
  nanobind::handle out;  ///< an array or None

  static constexpr std::array names{"o1", "lse1", "o2", "lse2", "return_lse", "out"};
};

/// Attention over the keys of both results. Returns the output, or (output, LSE). Throws a Python exception or Error;
/// then nothing was launched.
nanobind::object merge(const MergeArguments& arguments);

/// Adds merge to the module.
void bind_merge(nanobind::module_& module);

}  // namespace attune::python
