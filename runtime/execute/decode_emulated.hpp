// Decode on the emulator: both launches over the caller's host memory.
#pragma once

#include <array>
#include <vector>

#include "runtime/execute/emulated.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "templates/decode_params.h"

namespace attune {

/// What the kernels may touch: the tensors of a checked call, as far as they are read or written. The parts' results
/// are written by the first kernel and read by the second.
std::vector<emulator::Buffer> buffers_of(const AttuneDecodeParams& params, const DecodePlan& plan, Operation operation);

/// The kernels of a planned call.
struct DecodeKernels {
  const emulator::Kernel* store = nullptr;  ///< null where the call appends nothing
  Variant store_variant{};
  const emulator::Kernel* decode = nullptr;
  const emulator::Kernel* combine = nullptr;  ///< null where the plan has no second launch
  Variant combine_variant{};
};

/// Runs a planned call whose workspace has been checked; stops behind a launch with a fault.
emulator::Report run_emulated(const DecodeKernels& kernels, const attune_decode_args& args,
                              const DecodeProblem& problem, const DecodePlan& plan, const EmulatedRun& how);

}  // namespace attune
