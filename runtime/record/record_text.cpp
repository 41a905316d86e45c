// A record's lines: problems into JSON and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "generator/json_fields.hpp"
#include "generator/problem_list.hpp"
#include "runtime/record/record.hpp"
#include "runtime/record/record_fields.hpp"

namespace attune {
namespace {

Json json_of(int value) { return value; }
Json json_of(bool value) { return value; }
Json json_of(float value) { return value; }
Json json_of(Dtype value) { return value_text(*find_field("dtype"), static_cast<int>(value)); }
Json json_of(Rotary value) { return value_text(*find_field("rotary"), static_cast<int>(value)); }

/// What such a value may be, where the JSON is none; "" where it was taken.
std::string take(const Json& json, int& value) {
  constexpr int least = std::numeric_limits<int>::min();
  constexpr int most = std::numeric_limits<int>::max();
  const std::optional<long long> number = whole_number(json, least, most);
  if (!number) return fmt::format("a whole number from {} to {}", least, most);
  value = static_cast<int>(*number);
  return "";
}

std::string take(const Json& json, bool& value) {
  if (!json.is_boolean()) return "true or false";
  value = json.get<bool>();
  return "";
}

std::string take(const Json& json, float& value) {
  constexpr float most = std::numeric_limits<float>::max();
  if (!json.is_number() || std::abs(json.get<double>()) > most)
    return fmt::format("a number from {} to {}", -most, most);
  value = json.get<float>();
  return "";
}

template <class Word>
std::string take_word(const Json& json, const Field& field, Word& value) {
  const std::optional<int> known = json.is_string() ? parse_value(field, json.get<std::string>()) : std::nullopt;
  if (!known) return accepted_values(field);
  value = static_cast<Word>(*known);
  return "";
}

std::string take(const Json& json, Dtype& value) { return take_word(json, *find_field("dtype"), value); }
std::string take(const Json& json, Rotary& value) { return take_word(json, *find_field("rotary"), value); }

template <class OneProblem>
std::vector<std::string> unsound(const OneProblem& problem) {
  if constexpr (std::is_same_v<OneProblem, CheckProblem>)
    return {};
  else
    return problems_of(problem);
}

/// The reader of one line.
class LineReader {
 public:
  LineReader(const Json& line, Location where) : line_(line), where_(std::move(where)) {}

  Result<Recorded> read() && {
    if (!line_.is_object()) {
      problem("the line is no JSON object, or has a number beyond every range",
              R"(as {"operation":"prefill",...,"calls":1})");
      return std::move(result_);
    }
    const std::string operation = line_.value("operation", Json()).is_string() ? line_.value("operation", "") : "";
    const bool known = read_as<Problem>(operation) || read_as<DecodeProblem>(operation) ||
                       read_as<StoreProblem>(operation) || read_as<MergeProblem>(operation) ||
                       read_as<CheckProblem>(operation);
    if (!known) {
      problem("operation is none that is known", "prefill, decode, store_kv, merge_states or check_tables");
    }
    return std::move(result_);
  }

 private:
  void problem(std::string what, std::string fix) {
    add_problem(result_.problems, {where_, std::move(what), std::move(fix)});
  }

  template <class OneProblem>
  bool read_as(const std::string& operation) {
    if (operation != operation_word<OneProblem>()) return false;
    OneProblem read;
    std::vector<std::string> names{"operation", "calls"};
    std::apply([&](const auto&... field) { (read_field(field, read, names), ...); }, record_fields<OneProblem>());
    for (const auto& [key, value] : line_.items()) {
      if (std::ranges::find(names, key) != names.end()) continue;
      problem(fmt::format("unknown field '{}'", key), fmt::format("fields are {}", fmt::join(names, ", ")));
    }
    if (result_.ok()) {
      for (std::string& text : unsound(read)) problem(std::move(text), "");
    }
    const Json calls = line_.value("calls", Json());
    const std::optional<long long> number = whole_number(calls, 0, most_calls);
    if (!number) {
      problem("calls is missing or no number of calls", fmt::format("a whole number from 0 to {}", most_calls));
      return true;
    }
    result_.value = {.problem = read, .calls = *number};
    return true;
  }

  template <class RecordField, class OneProblem>
  void read_field(const RecordField& field, OneProblem& read, std::vector<std::string>& names) {
    names.emplace_back(field.name);
    const auto found = line_.find(field.name);
    if (found == line_.end()) {
      if (field_is_always_there<RecordField>) problem(fmt::format("{} is missing", field.name), "");
      return;
    }
    if (std::string wanted = take(*found, read.*field.member); !wanted.empty()) {
      problem(found->is_structured() ? fmt::format("{} is a list or an object", field.name)
                                     : fmt::format("{} is {}", field.name, found->dump()),
              std::move(wanted));
    }
  }

  const Json& line_;
  Location where_;
  Result<Recorded> result_;
};

}  // namespace

std::string record_line(const Recorded& recorded) {
  Json line;
  const auto add = [&]<class OneProblem>(const OneProblem& problem) {
    line["operation"] = operation_word<OneProblem>();
    const OneProblem usual;
    const auto add_field = [&](const auto& field) {
      const auto& value = problem.*field.member;
      if (field_is_always_there<decltype(field)> || value != usual.*field.member) line[field.name] = json_of(value);
    };
    std::apply([&](const auto&... field) { (add_field(field), ...); }, record_fields<OneProblem>());
  };
  std::visit(add, recorded.problem);
  line["calls"] = recorded.calls;
  return line.dump() + "\n";
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
    Result<Recorded> one = LineReader(json, where).read();
    for (Diagnostic& problem : one.problems) add_problem(result.problems, std::move(problem));
    if (is_full(result.problems)) break;
    if (one.ok()) result.value.push_back(one.value);
  }
  return result;
}

}  // namespace attune
