// For messages: the kernel that comes closest to a problem that none serves.
#pragma once

#include <span>
#include <string>

#include "runtime/choice/choice.hpp"

namespace attune {

/// "none of the 12 kernels that are ready serves PROBLEM on DEVICE; the nearest, NAME, differs in head_dim: the kernel
/// serves up to 64, the problem has 72; causal: ...": the one with the fewest fields that differ, each with what it has
/// and what is wanted. For a problem of any operation.
std::string nearest_text(const ReadyKernels& ready, const ProblemView& problem, const Device& device);

}  // namespace attune
