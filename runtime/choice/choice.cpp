#include "runtime/choice/choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune {
namespace {

std::string lines_of(const std::vector<Diagnostic>& problems) {
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  for (const Diagnostic& problem : problems) lines.push_back(problem.text());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// Those of one operation that serve unnamed, the newest first.
std::vector<int> families_of(Operation operation) {
  std::vector<int> result;
  for (std::size_t i = 0; i < families().size(); ++i) {
    if (families()[i].operation == operation && !families()[i].named_only) result.push_back(static_cast<int>(i));
  }
  const auto capability = [](int family) { return families()[static_cast<std::size_t>(family)].minimum_capability; };
  std::ranges::stable_sort(result, std::ranges::greater{}, capability);
  return result;
}

}  // namespace

bool reads_keys_again(const Variant& variant, const ProblemView& problem, const Variant& own) {
  return own.split_rows != 0 && problem.ask().preference.B_r > tiles_side_by_side * variant.B_r;
}

std::vector<Considered> consider(std::span<const Variant> candidates, const ProblemView& problem,
                                 const Device& device) {
  std::vector<Considered> result;
  result.reserve(candidates.size());
  for (const Variant& variant : candidates) result.push_back({variant, refusals(variant, problem, device)});
  return result;
}

const ReadyKernel* find_ready(const ReadyKernels& ready, const Variant& variant, const ProblemView& problem,
                              const Device& device) {
  for (Variant candidate : ready.variants(problem.operation())) {
    const Variant made = candidate;
    candidate.arch = variant.arch;
    if (candidate == variant && refusals(made, problem, device).empty()) return ready.find(made);
  }
  return nullptr;
}

std::optional<Variant> choose_of_ready(const ReadyKernels& ready, const ProblemView& problem, const Device& device) {
  const std::optional<Variant> best = choose(ready.heuristic_variants(problem.operation()), problem, device);
  return best ? best : choose(ready.variants(problem.operation()), problem, device);
}

ReadyChoice choose_ready(const ReadyKernels& ready, const ProblemView& problem, const Device& device,
                         attune_compile_policy policy, const TunedRow* tuned) {
  if (tuned != nullptr) {
    const ReadyKernel* kernel = find_ready(ready, variant_for(*tuned, problem), problem, device);
    if (kernel != nullptr) return {.kernel = kernel, .preferred = true};
  }
  const std::optional<Variant> best = choose_of_ready(ready, problem, device);
  if (!best) return {};
  const Variant own = choose_own(problem, device).variant;
  const bool padded = best->columns() > own.columns();
  const bool exact = policy == ATTUNE_COMPILE_EXACT || policy == ATTUNE_COMPILE_BACKGROUND;
  const bool spares_compiling = policy == ATTUNE_COMPILE_FROZEN || !reads_keys_again(*best, problem, own);
  return {.kernel = ready.find(*best), .preferred = spares_compiling && !((padded || tuned != nullptr) && exact)};
}

OwnChoice choose_own(const ProblemView& problem, const Device& device) {
  const Ask ask = problem.ask();
  const std::vector<int> candidates = families_of(problem.operation());
  OwnChoice choice;
  for (const int family : candidates) {
    choice.variant = own_variant(family, ask, device);
    choice.refusals = refusals(choice.variant, problem, device);
    const bool newer = family != candidates.back();
    if (!newer || choice.refusals.empty()) break;
    if (family_of(choice.variant).runs_on(device.capability)) {
      choice.passed_over.push_back({choice.variant, choice.refusals});
    }
  }
  return choice;
}

Variant variant_to_generate(const ProblemView& problem, const Device& device, const TunedRow* tuned) {
  const OwnChoice own = choose_own(problem, device);
  if (!own.refusals.empty() && tuned == nullptr) {
    throw Error(ATTUNE_UNSUPPORTED,
                fmt::format("no kernel can serve {} on {} (compute capability {}.{}): {}", problem.text(), device.name,
                            device.capability / 10, device.capability % 10, fmt::join(own.refusals, "; ")));
  }
  return tuned != nullptr ? variant_for(*tuned, problem) : own.variant;
}

Source generate(const Variant& variant) {
  Result<Source> source = emit(variant, embedded_templates(), "made at run time");
  if (!source.ok()) throw Error(ATTUNE_INTERNAL_ERROR, lines_of(source.problems));
  return std::move(source.value);
}

}  // namespace attune
