#include "runtime/tune/candidates.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "generator/check.hpp"
#include "generator/expand.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune::tune {
namespace {

/// Fills up what a variant takes from the problem.
void complete(Variant& variant, int gqa_ratio) {
  variant.arch = 0;
  if (variant.pack_gqa != 0 && variant.gqa_ratio == 0) variant.gqa_ratio = gqa_ratio;
}

/// The variant without what changes nothing for the problem: of two that run alike, one is raced.
template <class OneProblem>
Variant plainest(const Variant& variant, const OneProblem& /*problem*/, const Device& /*device*/) {
  return variant;
}

Variant plainest(const Variant& variant, const DecodeProblem& problem, const Device& device) {
  Variant plain = variant;
  if (plan(variant, problem, device).splits <= 1) plain.interleave = 0;  // no sequence has several splits
  return plain;
}

template <class OneProblem>
std::vector<std::string> reasons_against(const Variant& variant, const OneProblem& problem, const Device& device) {
  std::vector<std::string> reasons;
  for (const Refusal& refusal : check(variant))
    reasons.push_back(fmt::format("{}: {}", refusal.field, refusal.message));
  return reasons.empty() ? refusals(variant, problem, device) : reasons;
}

template <class OneProblem>
bool has_kernels(const Spec& spec, const OneProblem& /*problem*/, const Device& device) {
  const Family& family = families()[static_cast<std::size_t>(spec.family)];
  return family.operation == OneProblem::operation && family.runs_on(device.capability) &&
         meant_for(Variant{.family = spec.family, .arch = spec.arch}, device.capability);
}

template <class OneProblem>
Candidates candidates(const OneProblem& problem, const Device& device, std::span<const Spec> specs) {
  const OwnChoice own = choose_own(problem, device);
  if (!own.refusals.empty()) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("no kernel can serve {} on {}: {}", problem.text(), device.name,
                                                fmt::join(own.refusals, "; ")));
  }
  Candidates result;
  result.variants.push_back(own.variant);
  std::set<Variant> seen{own.variant};
  for (const Spec& spec : specs) {
    if (!has_kernels(spec, problem, device)) continue;
    const Variant base = own_variant(spec.family, problem.ask(), device);
    const Result<std::vector<Variant>> all = combinations(spec, base);
    if (!all.ok()) throw Error(ATTUNE_INVALID_ARGUMENT, all.problems.front().text());
    for (Variant variant : all.value) {
      complete(variant, problem.heads_q / problem.heads_kv);
      if (!seen.insert(variant).second) continue;
      const std::vector<std::string> reasons = reasons_against(variant, problem, device);
      if (reasons.empty()) {
        const Variant plain = plainest(variant, problem, device);
        if (plain == variant || seen.insert(plain).second) result.variants.push_back(plain);
        continue;
      }
      RefusedGroup& group = result.refused[reasons.front().substr(0, reasons.front().find(':'))];
      if (group.count++ == 0) group.example = reasons.front();
    }
  }
  return result;
}

}  // namespace

bool has_kernels(const Spec& spec, const AnyProblem& problem, const Device& device) {
  return std::visit([&](const auto& one) { return has_kernels(spec, one, device); }, problem);
}

Candidates candidates_for(const AnyProblem& problem, const Device& device, std::span<const Spec> specs) {
  return std::visit([&](const auto& one) { return candidates(one, device, specs); }, problem);
}

}  // namespace attune::tune
