// What ends a command before it has a result, and how that is told.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/cli/command.hpp"

namespace attune::cli {

/// Thrown by commands, told by main().
class Failure : public std::exception {
 public:
  /// All problems of the inputs; a problem without a place names no file.
  Failure(Exit exit, std::vector<Diagnostic> problems);

  /// One problem that has no place in a file.
  Failure(Exit exit, const std::string& message);

  [[nodiscard]] Exit exit() const { return exit_; }
  [[nodiscard]] const std::vector<Diagnostic>& problems() const { return problems_; }

  /// A line for each problem, without a newline at the end: `file:line:column: what; fix`, or `attune: what`.
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  Exit exit_;
  std::vector<Diagnostic> problems_;
  std::string text_;
};

/// Throws Failure, of bad usage, where there is a problem.
inline void throw_any(std::vector<Diagnostic> problems) {
  if (!problems.empty()) throw Failure(Exit::bad_usage, std::move(problems));
}

/// What a command that was given --json prints in place of its result:
/// `{"error": {"status", "exit_code", "message", "problems": [{"message", "fix", "file", "line", "column"}]}}`.
/// `status` is a name of Exit, `message` the texts of all problems, a line each; a problem has of the last four what is
/// known.
nlohmann::ordered_json json_of(const Failure& failure);

}  // namespace attune::cli
