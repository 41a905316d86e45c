// One call from Python that merges two results: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

namespace attune::python {

/// Each as the caller passed it.
struct MergeArguments {
  nanobind::handle o1;
  nanobind::handle lse1;
  nanobind::handle o2;
  nanobind::handle lse2;
  nanobind::handle return_lse;
  nanobind::handle out;  ///< an array or None
};

/// Attention over the keys of both results. Returns the output, or (output, LSE). Throws a Python exception or Error;
/// then nothing was launched.
nanobind::object merge(const MergeArguments& arguments);

}  // namespace attune::python
