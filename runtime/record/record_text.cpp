// A record's lines: problems into JSON and back.
#include <fmt/format.h>

#include <optional>
#include <utility>
#include <variant>

#include "generator/json_fields.hpp"
#include "generator/problem_list.hpp"
#include "runtime/operations/operations.hpp"
#include "runtime/record/record.hpp"
#include "runtime/record/record_fields.hpp"

namespace attune {
namespace {

Result<Recorded> read_line(const Json& line, const Location& where) {
  Result<Recorded> result;
  const auto problem = [&](std::string what, std::string fix) {
    add_problem(result.problems, {where, std::move(what), std::move(fix)});
  };
  if (!line.is_object()) {
    problem("the line is no JSON object, or has a number beyond every range",
            R"(as {"operation":"prefill",...,"calls":1})");
    return result;
  }
  JsonFields fields(line, "the line", where, result.problems);
  const Json* const operation = fields.find("operation");
  const std::vector<AnyProblem> each = each_operation(AnyProblem());
  const AnyProblem* const known =
      operation == nullptr || !operation->is_string() ? nullptr : find_operation(each, operation->get<std::string>());
  if (known == nullptr) {
    problem("operation is none that is known", operations_text(each));
    return result;
  }
  const Json* const calls = fields.find("calls");
  const std::optional<long long> number = calls == nullptr ? std::nullopt : whole_number(*calls, 0, most_calls);
  if (!number) {
    problem("calls is missing or no number of calls", fmt::format("a whole number from 0 to {}", most_calls));
  }
  const auto read = [&]<class P>(const P& /*type*/) -> AnyProblem { return read_record_fields<P>(fields); };
  result.value = {.problem = std::visit(read, *known), .calls = number.value_or(0)};
  fields.finish();
  if (!result.ok()) return result;
  const auto problems = std::visit([](const auto& one) { return problems_of(one); }, result.value.problem);
  for (const std::string& text : problems) problem(text, "");
  return result;
}

}  // namespace

std::string record_line(const Recorded& recorded) {
  Json line;
  const auto add = [&](const auto& problem) {
    line["operation"] = problem.word;
    add_record_fields(line, problem);
  };
  std::visit(add, recorded.problem);
  line["calls"] = recorded.calls;
  return json_text(line) + "\n";
}

Result<std::vector<Recorded>> parse_record(std::string_view text, const std::string& file) {
  Result<std::vector<Recorded>> result;
  Location where{.file = file, .line = 0, .column = 1};
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++where.line;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = parse_json(line);
    Result<Recorded> one = read_line(json, where);
    for (Diagnostic& problem : one.problems) add_problem(result.problems, std::move(problem));
    if (is_full(result.problems)) break;
    if (one.ok()) result.value.push_back(one.value);
  }
  return result;
}

}  // namespace attune
