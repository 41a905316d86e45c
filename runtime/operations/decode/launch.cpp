#include "runtime/operations/decode/launch.hpp"

#include <algorithm>

#include "runtime/call/chunk_plan.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"

namespace attune {
namespace {

/// A call of no more sequences than a launch takes.
void run_once(const attune_decode_args& args, const DecodeProblem& problem, const Backend& backend) {
  const ServingKernel& kernel = backend.kernels.kernel_for(problem);
  run(args, problem, kernel, plan(kernel.variant, problem, kernel.device), backend);
}

/// Where the parts' results are, and the entries of those that sequences share.
void visit_parts(const AttuneDecodeParams& params, const DecodePlan& plan, Access access, VisitOperand visit) {
  const int rows = params.seqlen_q * params.gqa_ratio;
  visit(array_operand("partial_o", params.partial_o, {plan.slots, params.heads_kv, rows, params.head_dim}, access));
  visit(array_operand("partial_lse", params.partial_lse, {1, plan.slots, params.heads_kv, rows}, access));
  visit(array_operand("cuts", reinterpret_cast<const int*>(params.cuts), {1, 1, plan.cuts, 2}, access));
}

}  // namespace

void prepare(const DecodeProblem& problem, FindKernel prepare_kernel) {
  const DecodeProblem first = launched_of(problem, 0);
  const ServingKernel& kernel = prepare_kernel(first, Needed::yes);
  if (plan(kernel.variant, first, kernel.device).combines()) prepare_kernel(problem.merge(), Needed::yes);
  if (problem.appends()) prepare_kernel(problem.store(), Needed::yes);
}

DecodeSteps::DecodeSteps(const attune_decode_args& args, const DecodeProblem& problem, const ServingKernel& kernel,
                         const DecodePlan& launch, const ServingKernel* combine)
    : args_(args),
      problem_(problem),
      kernel_(kernel),
      launch_(launch),
      combine_(combine),
      params_{make_params(args, problem, launch),
              problem.expressions.any() ? make_expression_params(args, problem) : AttuneExpressionParams{}} {}

void DecodeSteps::Attended::operator()(VisitOperand visit) const {
  visit_attention(steps->args_, steps->problem_, Access::read, visit);
  visit_lengths(steps->args_, steps->problem_, visit);
  visit_results(steps->args_, steps->problem_, visit);
  visit_parts(steps->params_, steps->launch_, Access::write, visit);
}

void DecodeSteps::Merged::operator()(VisitOperand visit) const {
  visit_lengths(steps->args_, steps->problem_, visit);
  visit_results(steps->args_, steps->problem_, visit);
  visit_parts(steps->params_, steps->launch_, Access::read, visit);
}

void DecodeSteps::add_to(Plan& plan, LaunchOrder order) const {
  plan.add(step_of(kernel_, launch_, &params_, attended_, order));
  if (combine_ == nullptr) return;
  const Launch merge = launch_of(combine_->variant, combine_grid(launch_, combine_->variant));
  plan.add(step_of(*combine_, merge, &params_, merged_, order_behind(kernel_.device)));
}

void run(const attune_decode_args& args, const DecodeProblem& problem, const ServingKernel& kernel,
         const DecodePlan& launch, const Backend& backend, NewKeys keys) {
  // Kernels are found before the first launch: what fails must not leave half of the work behind.
  check_workspace(args, launch);
  Plan planned;

  const StoreProblem new_keys = problem.store();
  const attune_store_kv_args storing = store_args(args, problem);
  const bool stores = keys == NewKeys::stored && !is_empty(new_keys);
  const AttuneStoreParams store_params = stores ? make_params(storing, new_keys) : AttuneStoreParams{};
  const auto stored = [&](VisitOperand visit) { visit_operands(storing, new_keys, visit); };
  if (stores) {
    const ServingKernel& store = backend.kernels.kernel_for(new_keys);
    planned.add(step_of(store, plan(store.variant, new_keys), &store_params, stored));
  }

  const ServingKernel* const combine = launch.combines() ? &backend.kernels.kernel_for(problem.merge()) : nullptr;
  const DecodeSteps steps(args, problem, kernel, launch, combine);
  steps.add_to(planned, stores ? order_behind(kernel.device) : LaunchOrder::after);
  backend.executor.run(planned, backend.stream);
}

void run(const attune_decode_args& args, const DecodeProblem& problem, const Backend& backend) {
  if (is_empty(problem)) {
    const StoreProblem new_keys = problem.store();
    if (!is_empty(new_keys)) run(store_args(args, problem), new_keys, backend);
    return;
  }
  if (problem.batch <= most_launched_sequences) return run_once(args, problem, backend);
  for (long long begin = 0; begin < problem.batch; begin += most_launched_sequences) {
    const attune_decode_args part = part_of(args, problem, begin, launched_of(problem, begin).batch);
    run_once(part, check_arguments(part), backend);
  }
}

std::size_t workspace_bytes(const DecodeProblem& problem, MostBytes most, Needed needed) {
  if (is_empty(problem) || problem.splits == 1) return 0;
  std::size_t bytes = 0;  // launches come one after the other
  for (long long begin = 0; begin < problem.batch; begin += most_launched_sequences) {
    const DecodeProblem part = launched_of(problem, begin);
    const auto planned = [&](const Variant& variant, const Device& device) {
      return plan(variant, part, device).workspace_bytes;
    };
    bytes = std::max(bytes, part.splits > 1 ? workspace_bytes(part, static_cast<long long>(part.batch) * part.splits)
                                            : most(part, planned, needed));
  }
  return bytes;
}

}  // namespace attune
