#include "runtime/cli/tune_problems.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>

#include "generator/problem_list.hpp"
#include "generator/yaml_tree.hpp"
#include "runtime/base/files.hpp"
#include "runtime/choice/tuned.hpp"
#include "runtime/operations/backward/problem_fields.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"
#include "runtime/record/record.hpp"

namespace attune::cli {
namespace {

constexpr int most_depth = 5;

/// What no GPU of any year to come holds is a slip.
std::string too_large(const auto& problem) {
  constexpr double most_elements = 1e15;
  const double elements = largest_operand(problem);
  if (elements <= most_elements) return "";
  return fmt::format("its largest operand has {:.2g} elements; it must have at most {:.0e}", elements, most_elements);
}

bool is_table(const YamlNode& root) {
  if (root.kind != YamlNode::Kind::mapping) return false;
  for (std::size_t i = 0; i < root.children.size(); i += 2) {
    if (root.children[i].text == "rows") return true;
  }
  return false;
}

Result<std::vector<tune::AnyProblem>> problems_of_table(std::string_view text, const std::string& file) {
  Result<TunedTable> table = parse_tuned(text, file);
  Result<std::vector<tune::AnyProblem>> result{.value = {}, .problems = std::move(table.problems)};
  for (const TunedRow& row : table.value.rows) result.value.push_back(row.problem);
  return result;
}

/// One mapping of the list.
class ProblemReader {
 public:
  ProblemReader(const YamlNode& node, std::vector<Diagnostic>& problems) : node_(&node), problems_(&problems) {}

  std::optional<tune::AnyProblem> read() {
    const std::size_t before = problems_->size();
    collect();
    if (problems_->size() > before) return std::nullopt;
    const std::vector<tune::AnyProblem> each = each_operation(tune::AnyProblem());
    const tune::AnyProblem* known = &each.front();
    if (const YamlNode* const operation = take("operation"); operation != nullptr) {
      known = find_operation(each, operation->text);
      if (known == nullptr) {
        report_value(*operation, "operation", operations_text(each));
        return std::nullopt;
      }
    }
    const tune::AnyProblem problem = std::visit([this](const auto& type) { return read_fields(type); }, *known);
    for (const auto& [key, value] : values_) {
      report(value->where, fmt::format("{} is no key of a problem of {}", key, word_of(problem)),
             fmt::format("keys are {}", fmt::join(known_, ", ")));
    }
    if (problems_->size() > before) return std::nullopt;
    for (const std::string& reason : std::visit([](const auto& one) { return problems_of(one); }, problem)) {
      report(node_->where, reason, "");
    }
    if (problems_->size() > before) return std::nullopt;
    if (const std::string reason = std::visit([](const auto& one) { return too_large(one); }, problem);
        !reason.empty()) {
      report(node_->where, reason, "");
      return std::nullopt;
    }
    return tuned_problem(problem);
  }

 private:
  void report(const Location& where, std::string what, std::string fix) {
    add_problem(*problems_, {where, std::move(what), std::move(fix)});
  }

  void collect() {
    if (node_->kind != YamlNode::Kind::mapping) {
      report(node_->where, fmt::format("a problem is {}", kind_text(node_->kind)),
             "a mapping as `{head_dim: 128, seqlen_q: 4096, causal: true}`");
      return;
    }
    for (std::size_t i = 0; i + 1 < node_->children.size(); i += 2) {
      const YamlNode& key = node_->children[i];
      const YamlNode& value = node_->children[i + 1];
      if (value.kind != YamlNode::Kind::scalar) {
        report(value.where, fmt::format("{} is {}", key.text, kind_text(value.kind)), "one value");
      } else if (!values_.emplace(key.text, &value).second) {
        report(key.where, fmt::format("{} is given again", key.text), "keep one");
      }
    }
  }

  /// The value of a key, which is then read; null where there is none.
  const YamlNode* take(const std::string& key) {
    known_.push_back(key);
    const auto found = values_.find(key);
    if (found == values_.end()) return nullptr;
    const YamlNode* value = found->second;
    values_.erase(found);
    return value;
  }

  void report_value(const YamlNode& value, std::string_view key, std::string accepted) {
    report(value.where, fmt::format("'{}' is not a value of {}", value.text, key), std::move(accepted));
  }

  /// Reads all keys that say something of the problem which they make; what is left out is as P::complete() has it.
  template <class P>
  tune::AnyProblem read_fields(const P& /*type*/) {
    P problem = P::usual();
    for_each_field<P>([&](const auto& field) {
      const auto found = values_.find(field.row_key());
      if (field.row != RowRole::absent && found != values_.end()) read_value(*found->second, field, problem);
    });
    problem.complete();
    for_each_field<P>([&](const auto& field) {
      if (field.row != RowRole::absent && field.applies_to(problem)) take(field.row_key());
    });
    return problem;
  }

  template <class P, class Value>
  void read_value(const YamlNode& node, const ProblemField<P, Value>& field, P& problem) {
    Value& value = problem.*field.member;
    if constexpr (std::is_enum_v<Value>) {
      const Field& choices = *find_field(field.key);
      const std::optional<int> choice = parse_value(choices, node.text);
      if (!choice) return report_value(node, field.row_key(), accepted_values(choices));
      value = static_cast<Value>(*choice);
    } else if constexpr (std::is_same_v<Value, int>) {
      // A size is at least 1; where a field may be left out, the number that stands for it may be written too.
      const int least = field.applies == nullptr ? std::min(1, P().*field.member) : 1;
      int number = 0;
      const char* const end = node.text.data() + node.text.size();
      const auto [stop, error] = std::from_chars(node.text.data(), end, number);
      if (error != std::errc() || stop != end || number < least) {
        return report_value(node, field.row_key(), fmt::format("a whole number from {} on", least));
      }
      value = number;
    } else {
      if (node.text != "true" && node.text != "false") return report_value(node, field.row_key(), "false or true");
      value = node.text == "true" ? Value(1) : Value(0);
    }
  }

  const YamlNode* node_;
  std::vector<Diagnostic>* problems_;
  std::map<std::string, const YamlNode*> values_;  ///< that are not read yet
  std::vector<std::string> known_;
};

}  // namespace

Result<std::vector<tune::AnyProblem>> parse_problems(std::string_view text, const std::string& file) {
  Result<std::vector<tune::AnyProblem>> result;
  Result<YamlNode> tree = parse_yaml(text, file, most_depth);
  result.problems = std::move(tree.problems);
  if (!result.ok()) return result;
  if (is_table(tree.value)) return problems_of_table(text, file);
  if (tree.value.kind != YamlNode::Kind::list) {
    result.problems.push_back({tree.value.where, fmt::format("the file is {}", kind_text(tree.value.kind)),
                               "a list of problems as `- {head_dim: 128, seqlen_q: 4096}`"});
    return result;
  }
  for (const YamlNode& node : tree.value.children) {
    if (is_full(result.problems)) break;
    if (const auto problem = ProblemReader(node, result.problems).read()) result.value.push_back(*problem);
  }
  return result;
}

namespace {

/// Those of a record that a kernel can be chosen for, the most often called first.
Result<std::vector<tune::AnyProblem>> recorded_problems(std::string_view text, const std::string& file) {
  Result<std::vector<Recorded>> record = parse_record(text, file);
  Result<std::vector<tune::AnyProblem>> result{.value = {}, .problems = std::move(record.problems)};
  if (!result.ok()) return result;
  std::vector<Recorded> met = merged(record.value);
  std::ranges::stable_sort(met, std::greater(), &Recorded::calls);
  for (const Recorded& one : met) {
    const auto add = [&](const auto& problem) {
      if constexpr (requires { tuned_problem(problem); }) result.value.emplace_back(tuned_problem(problem));
    };
    std::visit(add, one.problem);
  }
  return result;
}

}  // namespace

Result<std::vector<tune::AnyProblem>> read_problems(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_file(path, largest_record);
  if (!text) {
    return {.value = {},
            .problems = {{{path.string(), 0, 0},
                          "the file cannot be read",
                          "a YAML list of problems, a table of tuned problems, or a record"}}};
  }
  return is_record(*text) ? recorded_problems(*text, path.string()) : parse_problems(*text, path.string());
}

}  // namespace attune::cli
