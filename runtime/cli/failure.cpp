#include "runtime/cli/failure.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace attune::cli {
namespace {

std::string text_of(const Diagnostic& problem) {
  if (!problem.where.file.empty()) return problem.text();
  return problem.fix.empty() ? problem.what : fmt::format("{}; {}", problem.what, problem.fix);
}

/// As a person reads it: without a file's place the program's name stands there.
std::string line_of(const Diagnostic& problem) {
  return (problem.where.file.empty() ? "attune: " : "") + text_of(problem);
}

const char* name_of(Exit exit) {
  switch (exit) {
    case Exit::done:
      return "done";
    case Exit::check_failed:
      return "check_failed";
    case Exit::bad_usage:
      return "bad_usage";
    case Exit::machine_lacks:
      return "machine_lacks";
  }
  return "";
}

}  // namespace

Failure::Failure(Exit exit, std::vector<Diagnostic> problems) : exit_(exit), problems_(std::move(problems)) {
  for (const Diagnostic& problem : problems_) text_ += (text_.empty() ? "" : "\n") + line_of(problem);
}

Failure::Failure(Exit exit, const std::string& message)
    : Failure(exit, std::vector{Diagnostic{.where = {}, .what = message, .fix = {}}}) {}

nlohmann::ordered_json json_of(const Failure& failure) {
  auto problems = nlohmann::ordered_json::array();
  std::string message;
  for (const Diagnostic& problem : failure.problems()) {
    message += (message.empty() ? "" : "\n") + text_of(problem);
    nlohmann::ordered_json row{{"message", problem.what}};
    if (!problem.fix.empty()) row["fix"] = problem.fix;
    if (!problem.where.file.empty()) row["file"] = problem.where.file;
    if (problem.where.line > 0) {
      row["line"] = problem.where.line;
      row["column"] = problem.where.column;
    }
    problems.push_back(std::move(row));
  }
  return {{"error",
           {{"status", name_of(failure.exit())},
            {"exit_code", static_cast<int>(failure.exit())},
            {"message", message},
            {"problems", problems}}}};
}

}  // namespace attune::cli
