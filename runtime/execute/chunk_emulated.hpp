// store_kv and merge_states on the emulator: launches over the caller's host memory.
#pragma once

#include "attune/attune.h"
#include "runtime/execute/emulated.hpp"
#include "runtime/operations/chunk_plan.hpp"
#include "templates/check_params.h"
#include "templates/store_params.h"

namespace attune {

/// What the kernels may touch: the tensors of a checked call, of this type, as far as they are read or written.
std::vector<emulator::Buffer> buffers_of(const AttuneStoreParams& params, Dtype dtype);
std::vector<emulator::Buffer> buffers_of(const AttuneMergeParams& params, Dtype dtype);

/// Plans a checked call for the variant that the kernel was made of, and runs it.
emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, const attune_store_kv_args& args,
                              const StoreProblem& problem, const EmulatedRun& how);
emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant,
                              const attune_merge_states_args& args, const MergeProblem& problem,
                              const EmulatedRun& how);

/// Checks tables; `fault` becomes what the kernel found.
emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, AttuneCheckParams params,
                              AttuneTableFault& fault, const EmulatedRun& how);

}  // namespace attune
