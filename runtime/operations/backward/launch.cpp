#include "runtime/operations/backward/launch.hpp"

#include <optional>

#include "runtime/call/dropout.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/operations/backward/arguments.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "templates/expressed_backward_params.h"
#include "templates/expressed_tensor_backward_params.h"

namespace attune {
namespace {

/// The kernel that gives dQ, beside this one for dK and dV.
const ServingKernel& queries_kernel(const BackwardProblem& problem, const ServingKernel& keys, FindKernel find) {
  return workspace_of(keys.variant, problem, keys.device).dq_bytes == 0 ? find(problem.queries(), Needed::yes)
                                                                        : find(problem.conversion(), Needed::yes);
}

}  // namespace

void prepare(const BackwardProblem& problem, FindKernel prepare_kernel) {
  prepare_kernel(problem.rows(), Needed::yes);
  queries_kernel(problem, prepare_kernel(problem, Needed::yes), prepare_kernel);
}

void run(const attune_backward_args& args, const BackwardProblem& problem, const Backend& backend) {
  // Kernels are found before the first launch: what fails must not leave half of the work behind.
  const auto find = [&](const ProblemView& one, Needed /*needed*/) -> const ServingKernel& {
    return backend.kernels.kernel_for(one);
  };
  const ServingKernel& keys = find(problem, Needed::yes);
  const ServingKernel& rows = find(problem.rows(), Needed::yes);
  const ServingKernel& queries = queries_kernel(problem, keys, find);
  const BackwardWorkspace workspace = workspace_of(keys.variant, problem, keys.device);
  check_workspace(args, workspace);
  if (problem.dropout) require_replayable(args.dropout, backend);
  // Kernels without dropout take what is before it, and those without expressions what is before these.
  const WithDropout<AttuneBackwardParams> params{
      make_params(args, problem, workspace, backend.executor.launch_number()), kernel_dropout(args.dropout)};
  std::optional<WithDropout<AttuneExpressedBackwardParams>> expressed;
  if (problem.expressions.any()) {
    const AttuneBackwardParams& plain = params;
    expressed = {{plain, make_expression_params(args, problem)}, kernel_dropout(args.dropout)};
  }
  const void* const plain_params = expressed ? static_cast<const void*>(&*expressed) : &params;
  Plan planned;

  const auto row_operands = [&](VisitOperand visit) { visit_rows(args, problem, params, visit); };
  planned.add(step_of(rows, plan(rows.variant, problem.rows()), &params, row_operands));

  const auto key_operands = [&](VisitOperand visit) { visit_keys(args, problem, params, keys.variant, visit); };
  std::optional<WithDropout<AttuneTensorBackwardParams>> tensors;
  std::optional<WithDropout<AttuneExpressedTensorBackwardParams>> expressed_tensors;
  const void* key_params = plain_params;
  if (family_of(keys.variant).tensor_maps) {
    tensors = {{make_tensor_params(params, keys.variant, problem, backend.executor)}, params.dropout};
    key_params = &*tensors;
    if (expressed) {
      const AttuneTensorBackwardParams& plain = *tensors;
      expressed_tensors = {{plain, expressed->expressions}, params.dropout};
      key_params = &*expressed_tensors;
    }
  }
  planned.add(step_of(keys, plan(keys.variant, problem, keys.device), key_params, key_operands));

  const auto query_operands = [&](VisitOperand visit) { visit_queries(args, problem, params, visit); };
  const Launch last = workspace.dq_bytes == 0 ? plan(queries.variant, problem.queries(), queries.device)
                                              : plan(queries.variant, problem.conversion());
  planned.add(step_of(queries, last, plain_params, query_operands));
  backend.executor.run(planned, backend.stream);
}

std::size_t workspace_bytes(const BackwardProblem& problem, MostBytes most) {
  if (is_empty(problem)) return 0;
  return most(
      problem,
      [&](const Variant& variant, const Device& device) { return workspace_of(variant, problem, device).bytes(); },
      Needed::yes);
}

}  // namespace attune
