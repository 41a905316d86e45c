// From search specs and a problem to the variants that are worth compiling.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "generator/spec.hpp"
#include "runtime/call/device.hpp"
#include "runtime/tune/problems.hpp"

namespace attune::tune {

/// Candidates that were refused for the same reason.
struct RefusedGroup {
  int count = 0;
  std::string example;  ///< the whole reason of the first
};

struct Candidates {
  std::vector<Variant> variants;                ///< each once, the heuristic's choice first
  std::map<std::string, RefusedGroup> refused;  ///< by the field that the reason names
};

/// Whether a spec is for the problem's operation and for this GPU.
bool has_kernels(const Spec& spec, const AnyProblem& problem, const Device& device);

/// What the specs have for a problem. Keys that a spec leaves out are as the default variant of its family has them for
/// the problem (dtype, head dimensions and masks above all); pack_gqa without a gqa_ratio takes the problem's. Specs of
/// another operation or other GPUs have nothing for it. What check() refuses, or refusals() for this problem on this
/// GPU, is counted; the heuristic's choice is what the library would generate. Throws Error{ATTUNE_UNSUPPORTED} when
/// not even that serves, Error{ATTUNE_INVALID_ARGUMENT} when a spec multiplies out to too many.
Candidates candidates_for(const AnyProblem& problem, const Device& device, std::span<const Spec> specs);

}  // namespace attune::tune
