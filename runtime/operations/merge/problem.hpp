// What a caller has who merges two results: shapes and element type, no pointers.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/problem_view.hpp"

namespace attune {

/// Two results over different keys into one.
struct MergeProblem {
  static constexpr Operation operation = Operation::merge;
  static constexpr const char* word = "merge_states";  ///< as Problem has it

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int seqlen = 1;
  int heads = 1;
  int head_dim = 128;

  static const ProblemFacts facts;

  auto operator<=>(const MergeProblem&) const = default;

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const {
    return {.need = {.operation = operation, .dtype = static_cast<int>(dtype)}, .preference = {}};
  }

  /// "merge_states bf16 d128 b2 h32 l1024"
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const MergeProblem& problem);

/// Whether there is nothing to write, so that nothing has to be launched.
bool is_empty(const MergeProblem& problem);

}  // namespace attune
