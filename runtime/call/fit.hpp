// Which variants serve a problem on a device, and the best of them. For any problem type with an ask().
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "generator/need.hpp"
#include "runtime/call/device.hpp"
#include "runtime/call/preference.hpp"

namespace attune {

struct Problem;
struct DecodeProblem;

/// Whether the variant's set of GPUs has this one. A GPU that no table knows yet runs whatever fits it.
bool meant_for(const Variant& variant, int capability);

/// Why this variant cannot meet the need on this device, sizes apart; empty when it can.
std::vector<std::string> refusals(const Variant& variant, const Need& need, const Device& device);

/// What no launch of this variant can hold of a problem whose need it meets. Most operations have no such limit.
std::vector<std::string> launch_refusals(const Variant& variant, const Problem& problem);
std::vector<std::string> launch_refusals(const Variant& variant, const DecodeProblem& problem);

template <class AnyProblem>
std::vector<std::string> launch_refusals(const Variant& /*variant*/, const AnyProblem& /*problem*/) {
  return {};
}

/// Why this variant cannot serve this problem on this device; empty when it can.
template <class AnyProblem>
std::vector<std::string> refusals(const Variant& variant, const AnyProblem& problem, const Device& device) {
  std::vector<std::string> result = refusals(variant, problem.ask().need, device);
  if (family_of(variant).operation != AnyProblem::operation) return result;
  for (std::string& reason : launch_refusals(variant, problem)) result.push_back(std::move(reason));
  return result;
}

/// Whether the first is the better one for whoever asks, when both serve: it pads less, its tile is nearer to the one
/// preferred, or it is for fewer problems.
bool is_better(const Variant& one, const Variant& other, const Ask& ask);

/// The best of the candidates that serve; of equally good ones the first. Prefill has rules of its own
/// (runtime/operations/prefill/plan.hpp).
template <class AnyProblem>
std::optional<Variant> choose(std::span<const Variant> candidates, const AnyProblem& problem, const Device& device) {
  const Ask ask = problem.ask();
  std::optional<Variant> best;
  for (const Variant& variant : candidates) {
    const bool better = !best || is_better(variant, *best, ask);
    if (better && refusals(variant, problem, device).empty()) best = variant;
  }
  return best;
}

/// What a family has for a problem that nobody tuned.
Variant own_variant(int family, const Ask& ask, const Device& device);

/// Whether a variant that is made for one architecture pads head_dim so far (more than half as much again) that it
/// loses to one of an older family that pads less. Older families serve nothing whose V has a head_dim of its own.
bool wastes_padding(const Variant& variant, const Need& need);

}  // namespace attune
