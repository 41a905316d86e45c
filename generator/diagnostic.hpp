// What is wrong with an input, where, and what would be right.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attune {

/// A place in a text file. Lines and columns count from 1; 0 means "the file as a whole".
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
};

/// One problem of one input.
struct Diagnostic {
  Location where;
  std::string what;  ///< what is wrong
  std::string fix;   ///< what would be right; may be empty

  /// `file:line:column: what; fix`
  [[nodiscard]] std::string text() const;
};

/// A value, or every problem that kept it from being made. `value` is meaningful only when `ok()`.
template <class T>
struct Result {
  T value{};
  std::vector<Diagnostic> problems;

  [[nodiscard]] bool ok() const { return problems.empty(); }
};

/// "fp16", "fp16 or bf16", "none, interleaved or halves"
std::string alternatives_text(const std::vector<std::string>& words);

/// The candidate closest to `word` by edit distance, or "" when none is near enough to be a typo.
std::string nearest_word(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace attune
