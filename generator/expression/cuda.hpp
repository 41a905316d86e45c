// Expressions as the CUDA C++ of kernels.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// What its generated text takes the place of: the default, without which templates would not compile alone.
inline constexpr std::string_view cuda_path = "blocks/expressions.cuh";

/// The parameters of a score and a mask together, in the order of the kernel's arrays; each may be null. Those of one
/// name are alike.
std::vector<Parameter> parameters_of(const Expression* score, const Expression* mask);

/// Why the two cannot go together in one kernel; empty where they can.
std::string conflict_of(const Expression* score, const Expression* mask);

/// The same of the kernel that tells which blocks a mask leaves.
inline constexpr std::string_view block_cuda_path = "blocks/block_expressions.cuh";

/// The struct `Expressions` of a score and a mask, each of which may be null. `tilted`: with what added_by_key() says
/// of the score, if it says something. `first_keys_apart`: with the mask as first_keys_of() has it.
std::string cuda_text(const Expression* score, const Expression* mask, bool tilted, bool first_keys_apart = false);

/// The struct `BlockExpressions` of a mask.
std::string block_cuda_text(const Expression& mask);

}  // namespace attune::expression
