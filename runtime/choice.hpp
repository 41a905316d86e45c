// Which variant serves a problem: an embedded one, or one made at run time. The same for GPUs and for the emulator.
#pragma once

#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/embedded.hpp"
#include "runtime/plan.hpp"

namespace attune {

/// The best embedded kernel, and whether the policy prefers it to one made for the problem's head dimensions.
struct EmbeddedChoice {
  const EmbeddedKernel* kernel = nullptr;  ///< null when none serves
  bool preferred = false;
};

EmbeddedChoice choose_embedded(const Problem& problem, const Device& device, attune_compile_policy policy);

/// What would be generated for a problem.
struct OwnChoice {
  Variant variant;
  std::vector<std::string> refusals;    ///< why not even this serves; empty when it does
  std::vector<Considered> passed_over;  ///< of newer families that this GPU runs
};

/// The default variant of the newest family that serves the problem without wasting padding, else the oldest's.
OwnChoice choose_own(const Problem& problem, const Device& device);

/// The variant to generate for the problem. Throws Error{ATTUNE_UNSUPPORTED} when no kernel can serve it there, and
/// Error{ATTUNE_NOT_COMPILED} when the policy forbids to compile one.
Variant variant_to_generate(const Problem& problem, const Device& device, attune_compile_policy policy);

/// The source of a variant, from the templates of the library.
Source generate(const Variant& variant);

}  // namespace attune
