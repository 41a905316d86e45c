// Which variants serve a problem on a device, and the best of them. For problems of any operation.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/need.hpp"
#include "runtime/call/device.hpp"
#include "runtime/call/problem_view.hpp"

namespace attune {

/// Whether the variant's set of GPUs has this one. A GPU that no table knows yet runs whatever fits it.
bool meant_for(const Variant& variant, int capability);

/// Why this variant cannot meet the need on this device, sizes apart; empty when it can.
std::vector<std::string> refusals(const Variant& variant, const Need& need, const Device& device);

/// Why this variant cannot serve this problem on this device; empty when it can.
std::vector<std::string> refusals(const Variant& variant, const ProblemView& problem, const Device& device);

/// Whether kernels with clusters are the better ones on this GPU, if it has them.
bool prefers_clusters(const Preference& preference, const Device& device);

/// Whether the first is the better one for whoever asks, when both serve: its family is for newer GPUs, it pads less,
/// its tile is nearer to the one preferred, it is for fewer problems, or it merges parts where that is preferred.
bool is_better(const Variant& one, const Variant& other, const Ask& ask, const Device& device);

/// The best of the candidates that serve; of equally good ones the first. Prefill has rules of its own
/// (runtime/operations/prefill/plan.hpp).
std::optional<Variant> choose(std::span<const Variant> candidates, const ProblemView& problem, const Device& device);

/// What a family has for a problem that nobody tuned.
Variant own_variant(int family, const Ask& ask, const Device& device);

}  // namespace attune
