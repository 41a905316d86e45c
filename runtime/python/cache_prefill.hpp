// Attention to a cache of more queries a sequence than decode takes: new keys are stored, then prefill reads the cache.
#pragma once

#include <nanobind/nanobind.h>

#include "attune/attune.h"
#include "runtime/python/decode.hpp"

namespace attune::python {

/// Whether decode leaves the call to prefill.
bool has_many_queries(const attune_decode_args& args);

/// Launches such a call, which is complete, on the current device. `args`: what `arguments` became; `q`: the array that
/// args.q describes. Throws a Python exception or Error: of mistakes in the arguments before
/// anything is written; an error of the driver may come after.
void launch_prefill(const AddressedFramework& framework, const First& first, const attune_decode_args& args,
                    const DecodeArguments& arguments, nanobind::handle q);

}  // namespace attune::python
