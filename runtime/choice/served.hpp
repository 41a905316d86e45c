// Which kernel serves a problem, where it comes from, and what a table of tuned problems says about it.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "attune/attune.h"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/tuned_distance.hpp"

namespace attune {

/// Where a kernel comes from: embedded or of a bundle, or compiled at first use.
enum class Origin { ready, nvrtc, host_compiler };

/// "ready", "nvrtc" or "host compiler"
std::string_view origin_text(Origin origin);

/// What a registry has serve a problem.
struct Served {
  Variant variant;
  Origin origin = Origin::ready;
  TunedVerdict tuned;
  std::optional<Variant> frozen;  ///< the ready kernel that ATTUNE_COMPILE_FROZEN has serve it, if there is one
};

Served serve(const ReadyKernels& ready, std::span<const TunedTable> tables, const ProblemView& problem,
             const Device& device, attune_compile_policy policy = ATTUNE_COMPILE_MISSING);

}  // namespace attune
