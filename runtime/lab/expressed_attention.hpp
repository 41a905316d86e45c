// Attention whose scores and masks expressions say, in float64 on the CPU: each expression by its value, key by key.
#pragma once

#include <vector>

#include "generator/expression/evaluate.hpp"
#include "runtime/lab/trial.hpp"

namespace attune {

/// What the parameters of a problem's expressions hold.
struct ExpressionValues {
  std::vector<expression::Array> of_score;  ///< in the order of the score's parameters
  std::vector<expression::Array> of_mask;
};

/// Where q, k and v lie, as attention_of() takes them.
struct HostOperands {
  HostTensor q;
  HostTensor k;
  HostTensor v;
};

/// The reference and the naive result of a problem with expressions, dense, ragged or in pages. `sequences` says where
/// they are; of a dense problem it is not looked at.
Expected expressed_attention(const Problem& problem, const Sequences& sequences, const ExpressionValues& values,
                             const HostOperands& operands, double scale);

}  // namespace attune
