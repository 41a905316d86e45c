// What a caller has who rotates queries and keys: shapes and element type, no pointers.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/problem_view.hpp"

namespace attune {

/// Queries and keys of the same positions, in place.
struct RotaryProblem {
  static constexpr Operation operation = Operation::rotate;
  static constexpr const char* word = "rotary_embedding";  ///< as Problem has it

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int seqlen = 1;
  int heads_q = 1;
  int heads_kv = 1;  ///< 0: there are no keys
  int head_dim = 128;
  Rotary rotary = Rotary::halves;
  int rotary_dim = 128;  ///< columns that are rotated
  int rotations = 1;     ///< positions that have one

  static const ProblemFacts facts;

  auto operator<=>(const RotaryProblem&) const = default;

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const {
    return {.need = {.operation = operation, .dtype = static_cast<int>(dtype), .rotary = static_cast<int>(rotary)},
            .preference = {}};
  }

  /// "rotary_embedding bf16 d128 b2 hq32 hk8 l1024 halves64"
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const RotaryProblem& problem);

/// Whether there is nothing to rotate, so that nothing has to be launched.
bool is_empty(const RotaryProblem& problem);

}  // namespace attune
