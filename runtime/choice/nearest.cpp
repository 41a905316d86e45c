#include "runtime/choice/nearest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <vector>

namespace attune {

template <class AnyProblem>
std::string nearest_text(const ReadyKernels& ready, const AnyProblem& problem, const Device& device) {
  const std::span<const Variant> candidates = ready.variants(AnyProblem::operation);
  if (candidates.empty()) return fmt::format("no kernel that is ready serves {} on {}", problem.text(), device.name);

  const Variant own = choose_own(problem, device).variant;
  struct Near {
    Variant variant;
    std::vector<std::string> refusals;
  };
  std::vector<Near> all;
  all.reserve(candidates.size());
  for (const Variant& variant : candidates) all.push_back({variant, refusals(variant, problem, device)});
  const auto distance = [&](const Near& one) {
    return std::tuple(one.refusals.size(), one.variant.family != own.family,
                      std::abs(one.variant.columns() - own.columns()));
  };
  const Near& nearest = *std::ranges::min_element(all, {}, distance);
  const std::string ready_ones = candidates.size() == 1
                                     ? std::string("the one kernel that is ready does not serve")
                                     : fmt::format("none of the {} kernels that are ready serves", candidates.size());
  const std::string none = fmt::format("{} {} on {}", ready_ones, problem.text(), device.name);
  if (nearest.refusals.empty()) {
    return fmt::format("{}: {} would, but its image has no code for this GPU", none, nearest.variant.name());
  }
  return fmt::format("{}; the nearest, {}, differs in {}", none, nearest.variant.name(),
                     fmt::join(nearest.refusals, "; "));
}

template std::string nearest_text(const ReadyKernels&, const Problem&, const Device&);
template std::string nearest_text(const ReadyKernels&, const DecodeProblem&, const Device&);
template std::string nearest_text(const ReadyKernels&, const CombineProblem&, const Device&);
template std::string nearest_text(const ReadyKernels&, const StoreProblem&, const Device&);
template std::string nearest_text(const ReadyKernels&, const MergeProblem&, const Device&);
template std::string nearest_text(const ReadyKernels&, const CheckProblem&, const Device&);

}  // namespace attune
