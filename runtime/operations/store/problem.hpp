// What a caller has who writes into a cache: shapes and element type, no pointers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/call/problem_view.hpp"

namespace attune {

/// New keys and values to a cache, which is pages of page_size tokens as in DecodeProblem.
struct StoreProblem {
  static constexpr Operation operation = Operation::store;
  static constexpr const char* word = "store_kv";  ///< as Problem has it

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int tokens = 1;  ///< new ones, of each sequence
  int heads_kv = 1;
  int head_dim = 128;
  int page_size = 1;
  int pages = 1;
  int table_width = 1;  ///< pages that a sequence may have
  Rotary rotary = Rotary::none;
  int rotary_dim = 0;  ///< columns of a key that are rotated; with Rotary::none neither this nor `rotations` counts
  int rotations = 0;   ///< positions that have one

  static const ProblemFacts facts;

  auto operator<=>(const StoreProblem&) const = default;

  [[nodiscard]] bool rotates() const { return rotary != Rotary::none; }

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const {
    return {.need = {.operation = operation,
                     .dtype = static_cast<int>(dtype),
                     .rotary = static_cast<int>(rotary),
                     .cut_rows = is_cut(head_dim) ? 1 : 0},
            .preference = {}};
  }

  /// "store_kv bf16 d128 b2 hk8 t16 pages100 page16 halves64": with keys rotated in 64 columns, by halves
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const StoreProblem& problem);

/// Whether there is nothing to write, so that nothing has to be launched.
bool is_empty(const StoreProblem& problem);

}  // namespace attune
