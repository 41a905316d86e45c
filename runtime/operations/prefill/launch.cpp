#include "runtime/operations/prefill/launch.hpp"

#include "runtime/base/result_of.hpp"
#include "runtime/call/dropout.hpp"
#include "runtime/operations/prefill/arguments.hpp"

namespace attune {

PrefillParams::Block PrefillParams::made(const attune_prefill_args& args, const Problem& problem,
                                         const PrefillPlan& plan, Executor& executor) {
  // What these functions return is constructed in the block.
  const auto block = []<class Params>(std::in_place_type_t<Params> type, const auto& make) {
    return Block(type, ResultOf(make));
  };
  const auto plain = [&] { return make_params(args, problem); };
  const auto tensors = [&] {
    return make_tensor_params(plain(), plan, [&](const TensorDescription& tensor) { return executor.encode(tensor); });
  };
  if (plan.variant.family == prefill_fa1_sm80) {
    return block(std::in_place_type<AttuneCarriedPrefillParams>, [&] {
      return AttuneCarriedPrefillParams{plain(), carried_rows(args, plan.workspace_bytes)};
    });
  }
  // With dropout, where the kernel has some.
  const auto block_of = [&]<class Params>(std::in_place_type_t<Params> type, const auto& make) {
    if (plan.variant.dropout == 0) return block(type, make);
    return block(std::in_place_type<WithDropout<Params>>, [&] {
      return WithDropout<Params>{make(), kernel_dropout(args.dropout)};
    });
  };
  const bool maps = family_of(plan.variant).tensor_maps;
  // And with pages.
  const auto tensor_block_of = [&]<class Params>(std::in_place_type_t<Params> type, const auto& make) {
    if (plan.variant.paged == 0) return block_of(type, make);
    return block_of(std::in_place_type<WithPages<Params>>, [&] {
      return WithPages<Params>{make(), make_pages(plain(), plan)};
    });
  };
  if (problem.expressions.any()) {
    const auto expressions = [&] { return make_expression_params(args, problem); };
    if (!maps) {
      return block_of(std::in_place_type<AttuneExpressedPrefillParams>, [&] {
        return AttuneExpressedPrefillParams{plain(), expressions()};
      });
    }
    return tensor_block_of(std::in_place_type<AttuneExpressedTensorParams>, [&] {
      return AttuneExpressedTensorParams{tensors(), expressions()};
    });
  }
  if (!maps) return block_of(std::in_place_type<AttunePrefillParams>, plain);
  if (plan.tiles != nullptr) {
    return block(std::in_place_type<AttuneListedPrefillParams>, [&] {
      return AttuneListedPrefillParams{tensors(), *plan.tiles};
    });
  }
  if (plan.variant.stream_k == 0) return tensor_block_of(std::in_place_type<AttuneTensorPrefillParams>, tensors);
  const Workspace workspace = workspace_of(args, executor.launch_number());
  return block(std::in_place_type<AttuneSharedPrefillParams>,
               [&] { return make_shared_params(tensors(), plan, workspace); });
}

PrefillParams::PrefillParams(const attune_prefill_args& args, const Problem& problem, const PrefillPlan& plan,
                             Executor& executor)
    : signals_(plan.variant.stream_k != 0 ? plan.sharing_warps() : 0),
      carried_floats_(static_cast<long long>(plan.workspace_bytes / sizeof(float))),
      block_(made(args, problem, plan, executor)) {}

const void* PrefillParams::get() const {
  return std::visit([](const auto& block) { return static_cast<const void*>(&block); }, block_);
}

void PrefillParams::visit_workspace(VisitOperand visit) const {
  if (const auto* const carrying = std::get_if<AttuneCarriedPrefillParams>(&block_)) {
    visit(array_operand("carried", carrying->carried, {1, 1, 1, carried_floats_}, Access::write));
    return;
  }
  const auto* const shared = std::get_if<AttuneSharedPrefillParams>(&block_);
  if (shared == nullptr || shared->partials == nullptr) return;
  const long long partials = reinterpret_cast<const float*>(shared->signals) - shared->partials;
  visit(array_operand("partials", shared->partials, {1, 1, 1, partials}, Access::write));
  visit(array_operand("signals", shared->signals, {1, 1, 1, signals_}, Access::write));
}

void run(const attune_prefill_args& args, const Problem& problem, const ServingKernel& kernel,
         const PrefillPlan& launch, Executor& executor, void* stream) {
  const PrefillParams params(args, problem, launch, executor);
  const auto operands = [&](VisitOperand visit) {
    visit_operands(args, problem, visit);
    params.visit_workspace(visit);
  };
  Plan planned;
  planned.add({.kernel = &kernel,
               .grid = launch.grid,
               .threads = launch.threads,
               .shared_bytes = launch.shared_bytes,
               .params = params.get(),
               .operands = operands});
  executor.run(planned, stream);
}

void run(const attune_prefill_args& args, const Problem& problem, const Backend& backend) {
  if (problem.dropout) require_replayable(args.dropout, backend);
  const ServingKernel& kernel = backend.kernels.kernel_for(problem);
  run(args, problem, kernel, plan(kernel.variant, problem, kernel.device), backend.executor, backend.stream);
}

std::size_t workspace_bytes(const Problem& problem, MostBytes most) {
  if (is_empty(problem)) return 0;
  return most(problem, [&](const Variant& variant, const Device& device) {
    return plan(variant, problem, device).workspace_bytes;
  });
}

}  // namespace attune
