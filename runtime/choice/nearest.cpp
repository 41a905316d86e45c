#include "runtime/choice/nearest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <vector>

namespace attune {

std::string nearest_text(const ReadyKernels& ready, const ProblemView& problem, const Device& device) {
  const std::span<const Variant> candidates = ready.variants(problem.operation());
  if (candidates.empty()) return fmt::format("no kernel that is ready serves {} on {}", problem.text(), device.name);

  const Variant own = choose_own(problem, device).variant;
  const std::vector<Considered> all = consider(candidates, problem, device);
  const auto distance = [&](const Considered& one) {
    return std::tuple(one.refusals.size(), one.variant.family != own.family,
                      std::abs(one.variant.columns() - own.columns()));
  };
  const Considered& nearest = *std::ranges::min_element(all, {}, distance);
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

}  // namespace attune
