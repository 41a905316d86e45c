#include "runtime/call/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "generator/check.hpp"

namespace attune {

bool meant_for(const Variant& variant, int capability) {
  const auto archs = all_archs();
  const auto known = std::ranges::find(archs, capability, &Arch::capability);
  if (variant.arch == 0 || known == archs.end()) return true;
  return (variant.arch >> (known - archs.begin()) & 1U) != 0;
}

std::vector<std::string> refusals(const Variant& variant, const Need& need, const Device& device) {
  std::vector<std::string> result = refusals(variant, need);
  if (family_of(variant).operation != need.operation) return result;
  if (!meant_for(variant, device.capability)) {
    result.push_back(fmt::format("arch: the kernel is not meant for compute capability {}.{}", device.capability / 10,
                                 device.capability % 10));
  }
  for (const Refusal& refusal : check_limits(variant, device.capability, device.shared_per_block)) {
    result.push_back(refusal.field + ": " + refusal.message);
  }
  return result;
}

std::vector<std::string> refusals(const Variant& variant, const ProblemView& problem, const Device& device) {
  std::vector<std::string> result = refusals(variant, problem.need(), device);
  if (family_of(variant).operation != problem.operation()) return result;
  for (std::string& reason : problem.launch_refusals(variant)) result.push_back(std::move(reason));
  return result;
}

bool prefers_clusters(const Preference& preference, const Device& device) {
  constexpr int measured_capability = 90;
  constexpr int measured_multiprocessors = 132;
  if (preference.clusters != Clusters::measured) return preference.clusters == Clusters::anywhere;
  return device.capability == measured_capability && device.multiprocessors >= measured_multiprocessors;
}

bool is_better(const Variant& one, const Variant& other, const Ask& ask, const Device& device) {
  const auto rank = [&](const Variant& variant) {
    return std::tuple(-family_of(variant).minimum_capability, variant.head_dim,
                      std::abs(variant.B_r - ask.preference.B_r), -variant.page_multiple, -variant.gqa_ratio,
                      -variant.one_query, variant.deterministic != ask.need.deterministic,
                      (variant.cluster != 0) != prefers_clusters(ask.preference, device));
  };
  return rank(one) < rank(other);
}

std::optional<Variant> choose(std::span<const Variant> candidates, const ProblemView& problem, const Device& device) {
  if (problem.has_choose()) return problem.choose(candidates, device);
  std::optional<Variant> best;
  for (const Variant& variant : candidates) {
    const bool better = !best || is_better(variant, *best, problem.ask(), device);
    if (better && refusals(variant, problem, device).empty()) best = variant;
  }
  return best;
}

Variant own_variant(int family, const Ask& ask, const Device& device) {
  const Variant own = default_variant(family, ask.need, device.shared_per_block, ask.preference.B_r);
  if (!prefers_clusters(ask.preference, device) || own.split_rows == 0) return own;
  Variant in_cluster = own;
  in_cluster.cluster = 1;
  return check(in_cluster).empty() && refusals(in_cluster, ask.need, device).empty() ? in_cluster : own;
}

}  // namespace attune
