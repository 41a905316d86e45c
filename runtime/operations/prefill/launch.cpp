#include "runtime/operations/prefill/launch.hpp"

#include <algorithm>
#include <optional>

#include "runtime/base/result_of.hpp"
#include "runtime/call/dropout.hpp"
#include "runtime/operations/decode/launch.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"

namespace attune {

PrefillParams::Block PrefillParams::made(const attune_prefill_args& args, const Problem& problem,
                                         const PrefillPlan& plan, Executor& executor, unsigned* words) {
  // What these functions return is constructed in the block.
  const auto block = []<class Params>(std::in_place_type_t<Params> type, const auto& make) {
    return Block(type, ResultOf(make));
  };
  const auto plain = [&] {
    AttunePrefillParams params = make_params(args, problem);
    params.fewest_queries = plan.fewest_queries;
    return params;
  };
  const auto encode = [&](const TensorDescription& tensor) { return executor.encode(tensor); };
  const auto tensors = [&] { return make_tensor_params(plain(), shapes_of(problem), plan, encode); };
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
  if (problem.expressions.any() && plan.tiles != nullptr) {
    return block(std::in_place_type<AttuneListedExpressedParams>, [&] {
      return AttuneListedExpressedParams{{tensors(), *plan.tiles}, make_expression_params(args, problem)};
    });
  }
  if (problem.expressions.any()) {
    const auto expressions = [&] { return make_expression_params(args, problem); };
    if (!maps) {
      return block_of(std::in_place_type<AttuneExpressedPrefillParams>, [&] {
        return AttuneExpressedPrefillParams{plain(), expressions(), told(plan.mask_blocks, words)};
      });
    }
    return tensor_block_of(std::in_place_type<AttuneExpressedTensorParams>, [&] {
      return AttuneExpressedTensorParams{tensors(), expressions(), told(plan.mask_blocks, words)};
    });
  }
  if (!maps) return block_of(std::in_place_type<AttunePrefillParams>, plain);
  if (plan.tiles != nullptr) {
    return block(std::in_place_type<AttuneListedPrefillParams>, [&] {
      return AttuneListedPrefillParams{tensors(), *plan.tiles};
    });
  }
  if (stacks_heads(plan.variant)) {
    return block(std::in_place_type<AttuneStackedPrefillParams>,
                 [&] { return make_stacked_params(plain(), shapes_of(problem), plan, encode); });
  }
  if (plan.variant.stream_k == 0) return tensor_block_of(std::in_place_type<AttuneTensorPrefillParams>, tensors);
  const Workspace workspace = workspace_of(args, executor.launch_number());
  const auto shared = [&] { return make_shared_params(tensors(), plan, workspace); };
  if (plan.variant.paged == 0) return block(std::in_place_type<AttuneSharedPrefillParams>, shared);
  return block(std::in_place_type<WithPages<AttuneSharedPrefillParams>>, [&] {
    return WithPages<AttuneSharedPrefillParams>{shared(), make_pages(plain(), plan)};
  });
}

PrefillParams::PrefillParams(const attune_prefill_args& args, const Problem& problem, const PrefillPlan& plan,
                             Executor& executor, unsigned* words)
    : mask_blocks_(plan.mask_blocks),
      words_(words),
      signals_(plan.variant.stream_k != 0 ? plan.sharing_warps() : 0),
      carried_floats_(static_cast<long long>(plan.workspace_bytes / sizeof(float))),
      block_(made(args, problem, plan, executor, words)) {}

const void* PrefillParams::get() const {
  return std::visit([](const auto& block) { return static_cast<const void*>(&block); }, block_);
}

void PrefillParams::visit_workspace(VisitOperand visit) const {
  if (words_ != nullptr) visit(words_operand(mask_blocks_, words_, Access::read));
  visit(drawn_operand(mask_blocks_, words_, Access::add));
  if (const auto* const carrying = std::get_if<AttuneCarriedPrefillParams>(&block_)) {
    visit(array_operand("carried", carrying->carried, {1, 1, 1, carried_floats_}, Access::write));
    return;
  }
  const auto* const paged = std::get_if<WithPages<AttuneSharedPrefillParams>>(&block_);
  const AttuneSharedPrefillParams* const shared =
      paged != nullptr ? paged : std::get_if<AttuneSharedPrefillParams>(&block_);
  if (shared == nullptr || shared->partials == nullptr) return;
  const long long partials = reinterpret_cast<const float*>(shared->signals) - shared->partials;
  visit(array_operand("partials", shared->partials, {1, 1, 1, partials}, Access::write));
  visit(array_operand("signals", shared->signals, {1, 1, 1, signals_}, Access::write));
}

namespace {

/// A part of a call that a kernel of decode has, and what merges its parts, if anything does.
struct ShortPart {
  DecodeProblem problem;
  attune_decode_args args;
  const ServingKernel* kernel;
  DecodePlan launch;
  const ServingKernel* combine;
};

/// That of a call's short sequences; nothing where they are prefill's. A call that brings no memory, and would need
/// some, asks for no kernel, which would perhaps be compiled for nothing.
std::optional<ShortPart> short_part(const attune_prefill_args& args, const Problem& problem, const Device& device,
                                    KernelFinder& kernels) {
  const std::optional<DecodeProblem> part = short_sequences(problem);
  if (!part) return std::nullopt;
  if (workspace_of(args, 0).bytes == 0) {
    const std::optional<Variant> variant = kernels.optional_variant_for(*part);
    if (!variant || plan(*variant, *part, device).combines()) return std::nullopt;
  }
  const ServingKernel* const kernel = kernels.optional_kernel_for(*part);
  if (kernel == nullptr) return std::nullopt;
  const DecodePlan launch = plan(kernel->variant, *part, kernel->device);
  if (launch.workspace_bytes > workspace_of(args, 0).bytes) return std::nullopt;
  const ServingKernel* const combine = launch.combines() ? kernels.optional_kernel_for(part->merge()) : nullptr;
  if (launch.combines() && combine == nullptr) return std::nullopt;
  return ShortPart{*part, short_args(args, problem, *part), kernel, launch, combine};
}

/// As run() of a planned call, with what decode has of it.
void run_with(const attune_prefill_args& args, const Problem& problem, const ServingKernel& kernel,
              const PrefillPlan& launch, Executor& executor, void* stream, const ServingKernel* mask_kernel,
              const ShortPart* part) {
  unsigned* const words = mask_kernel == nullptr ? nullptr : static_cast<unsigned*>(workspace_of(args, 0).data);
  const PrefillParams params(args, problem, launch, executor, words);
  Plan planned;

  std::optional<AttuneMaskBlocksParams> mask_params;
  const auto mask_operands = [&](VisitOperand visit) {
    visit_operands(args, problem, *mask_params, launch.mask_blocks, visit);
  };
  if (words != nullptr && launch.grid.blocks() > 0) {
    mask_params = make_params(args, problem, launch.variant, launch.mask_blocks, make_params(args, problem), words);
    const Grid grid{.x = static_cast<unsigned>(launch.mask_blocks.pairs()), .y = 1, .z = 1};
    planned.add(step_of(*mask_kernel, launch_of(mask_kernel->variant, grid), &*mask_params, mask_operands));
  }

  const auto operands = [&](VisitOperand visit) {
    visit_operands(args, problem, visit);
    params.visit_workspace(visit);
  };
  const bool waits = mask_params.has_value() && launch.variant.family == prefill_sm90;  // for what it is told
  planned.add(
      step_of(kernel, launch, params.get(), operands, waits ? order_behind(kernel.device) : LaunchOrder::after));
  std::optional<DecodeSteps> steps;
  if (part != nullptr) {
    steps.emplace(part->args, part->problem, *part->kernel, part->launch, part->combine);
    steps->add_to(planned, order_behind(kernel.device));
  }
  executor.run(planned, stream);
}

}  // namespace

void prepare(const Problem& problem, FindKernel prepare_kernel) {
  const ServingKernel& kernel = prepare_kernel(problem, Needed::yes);
  if (plan_mask_blocks(kernel.variant, problem).bytes() > 0) {
    prepare_kernel(MaskBlocksProblem{problem.expressions.mask}, Needed::yes);
  }
  const std::optional<DecodeProblem> part = short_sequences(problem);
  if (!part) return;
  try {
    prepare(*part,
            [&](const ProblemView& one, Needed) -> const ServingKernel& { return prepare_kernel(one, Needed::no); });
  } catch (const Error& error) {
    if (!is_lack(error)) throw;  // else prefill's kernel has all sequences
  }
}

void run(const attune_prefill_args& args, const Problem& problem, const ServingKernel& kernel,
         const PrefillPlan& launch, Executor& executor, void* stream, const ServingKernel* mask_kernel) {
  run_with(args, problem, kernel, launch, executor, stream, mask_kernel, nullptr);
}

void run(const attune_prefill_args& args, const Problem& problem, const Backend& backend) {
  if (problem.dropout) require_replayable(args.dropout, backend);
  const ServingKernel& kernel = backend.kernels.kernel_for(problem);
  PrefillPlan launch = plan(kernel.variant, problem, kernel.device);
  // Without a place for it, or where all is in the mask itself, no kernel tells which blocks it leaves.
  const std::size_t bytes = launch.mask_blocks.bytes();
  const bool asks = bytes > 0 && workspace_of(args, 0).bytes >= bytes;
  const ServingKernel* const mask_kernel =
      asks ? &backend.kernels.kernel_for(MaskBlocksProblem{problem.expressions.mask}) : nullptr;
  const std::optional<ShortPart> part = short_part(args, problem, kernel.device, backend.kernels);
  if (part) launch.fewest_queries = part->problem.seqlen_q + 1;
  run_with(args, problem, kernel, launch, backend.executor, backend.stream, mask_kernel, part ? &*part : nullptr);
}

std::size_t workspace_bytes(const Problem& problem, MostBytes most) {
  if (is_empty(problem)) return 0;
  const std::size_t bytes = most(
      problem,
      [&](const Variant& variant, const Device& device) { return plan(variant, problem, device).workspace_bytes; },
      Needed::yes);
  const std::optional<DecodeProblem> part = short_sequences(problem);
  // Kernels of ragged batches with such a part take none themselves.
  return part ? std::max(bytes, workspace_bytes(*part, most, Needed::no)) : bytes;
}

}  // namespace attune
