// The launches of kernels of which each thread has 16 bytes of a tensor: their grids. The same for GPUs
// and for the emulator.
#pragma once

#include "runtime/call/backend.hpp"
#include "runtime/call/device.hpp"
#include "runtime/call/plan.hpp"

namespace attune {

/// That of a variant, for a tensor of batch x rows x heads x head_dim. Throws Error{ATTUNE_UNSUPPORTED} when it is too
/// large.
Launch plan_chunks(const Variant& variant, int batch, int rows, int heads, int head_dim);

/// Runs a checked call of an operation of one such kernel.
template <class Args, class AnyProblem>
void run_chunks(const Args& args, const AnyProblem& problem, const Backend& backend) {
  const ServingKernel& kernel = backend.kernels.kernel_for(problem);
  const auto params = make_params(args, problem);
  const auto operands = [&](VisitOperand visit) { visit_operands(args, problem, visit); };
  Plan planned;
  planned.add(step_of(kernel, plan(kernel.variant, problem), &params, operands));
  backend.executor.run(planned, backend.stream);
}

}  // namespace attune
