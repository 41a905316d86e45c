// Attention whose scores and masks expressions say, in float64 on the CPU: each expression by its value, key by key.
#pragma once

#include <vector>

#include "generator/expression/evaluate.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/lab/reference.hpp"

namespace attune {

/// What the parameters of a problem's expressions hold.
struct ExpressionValues {
  std::vector<expression::Array> of_score;  ///< in the order of the score's parameters
  std::vector<expression::Array> of_mask;
  std::vector<float> sink;  ///< of each head; empty where the problem has none
};

/// Values for a parameter in a problem of these extents: numbers up to 1/2, or small integers of which neighbours are
/// often the same, as those of documents are.
expression::Array random_array(std::uint64_t seed, const expression::Parameter& parameter,
                               const ExpressionExtents& extents);

/// Those of all parameters of a problem's expressions; a name has the same in both.
ExpressionValues random_values(std::uint64_t seed, const Problem& problem);

/// An array as a call has it: words of fp32 or int32.
std::vector<std::uint32_t> stored(const expression::Parameter& parameter, const expression::Array& array);

/// The reference and the naive result.
struct ExpressedOutput {
  ReferenceOutput reference;
  ReferenceOutput naive;
};

/// Where q, k and v lie, as attention_of() takes them.
struct HostOperands {
  HostTensor q;
  HostTensor k;
  HostTensor v;
};

/// Of a problem with expressions, dense, ragged or in pages. `sequences` says where
/// they are; of a dense problem it is not looked at.
ExpressedOutput expressed_attention(const Problem& problem, const Sequences& sequences, const ExpressionValues& values,
                                    const HostOperands& operands, double scale);

}  // namespace attune
