// attune.explain, attune.jit and attune.cache: what the attune tool does, over the C++ library.
#pragma once

#include <nanobind/nanobind.h>

namespace attune::python {

/// Adds explain, jit, cache_root, cache_list and cache_clear to the module.
void bind_tools(nanobind::module_& module);

}  // namespace attune::python
