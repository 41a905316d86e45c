#include "generator/fold.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "generator/constant.hpp"

namespace attune {
namespace {

constexpr std::string_view prefix = "variant::";

/// An #if that has not met its #endif yet.
struct Open {
  std::size_t line;
  bool ours;   ///< decided here, not by the preprocessor
  bool outer;  ///< whether the lines around it are kept
  bool holds;  ///< the branch that has been reached
  bool has_else = false;
};

class Folder {
 public:
  Folder(const TemplateFile& file, const Variant& variant) : file_(file), variant_(variant) {}

  Result<std::vector<bool>> run() && {
    const auto& lines = file_.code_lines();
    result_.value.resize(lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) result_.value[i] = keeps(i, directive_of(lines[i]));
    for (const Open& open : open_) problem(open.line, "this #if has no #endif", "an #endif behind its last line");
    return std::move(result_);
  }

 private:
  void problem(std::size_t line, std::string what, std::string fix) {
    result_.problems.push_back({file_.at(line), std::move(what), std::move(fix)});
  }

  [[nodiscard]] bool keeping() const { return open_.empty() || (open_.back().outer && open_.back().holds); }

  /// Whether line `i` is kept; a directive changes what holds for the lines behind it.
  bool keeps(std::size_t i, const std::optional<Directive>& directive) {
    if (!directive) return keeping();
    const std::string_view name = directive->name;
    if (name == "if" || name == "ifdef" || name == "ifndef") {
      const bool outer = keeping();
      const std::optional<bool> holds = condition(i, *directive);
      open_.push_back({i, holds.has_value(), outer, holds.value_or(true)});
      return outer && !holds;
    }
    if (name != "else" && name != "elif" && name != "endif") return keeping();
    if (open_.empty()) {
      problem(i, fmt::format("#{} without an #if", name), "an #if before it");
      return false;
    }
    Open& open = open_.back();
    const bool kept = open.outer && !open.ours;
    if (name == "endif") {
      open_.pop_back();
    } else if (open.has_else) {
      problem(i, fmt::format("#{} behind the #else of line {}'s #if", name, open.line + 1), "one #else, the last");
    } else if (name == "else") {
      open.has_else = true;
      if (open.ours) open.holds = !open.holds;
    } else if (open.ours) {
      problem(i, "the generator has no #elif", "another #if inside an #else");
    }
    return kept;
  }

  /// Whether it holds; nothing where the preprocessor decides.
  std::optional<bool> condition(std::size_t i, const Directive& directive) {
    if (directive.name == "ifdef" && directive.rest == "__cplusplus") return true;
    if (directive.name != "if" || directive.rest.find(prefix) == std::string_view::npos) return std::nullopt;
    std::string_view text = directive.rest;
    const bool negated = text.starts_with('!');
    if (negated) text = trimmed(text.substr(1));
    const std::string_view key = text.starts_with(prefix) ? word_at(text, prefix.size()) : std::string_view{};
    const std::string_view rest = key.empty() ? text : trimmed(text.substr(prefix.size() + key.size()));
    const bool differs = rest.starts_with("!=");
    const bool compares = (rest.starts_with("==") || differs) && !negated;
    if (key.empty() || (!rest.empty() && !compares)) {
      problem(i, fmt::format("the generator cannot tell whether {}", directive.rest),
              "`#if variant::key`, `#if !variant::key`, `#if variant::key == value`, `== variant::other` or `!=`");
      return false;
    }
    const Field* field = find_field(key);
    if (field == nullptr) return false;
    if (!compares) return is_true(i, *field) != negated;
    const std::string_view value = trimmed(rest.substr(2));
    const std::string_view other_key = value.starts_with(prefix) ? word_at(value, prefix.size()) : std::string_view{};
    if (other_key.empty() || other_key != value.substr(prefix.size())) return equals(i, *field, value) != differs;
    const Field* other = find_field(other_key);
    return other != nullptr && same_value(i, *field, *other) != differs;
  }

  bool is_true(std::size_t i, const Field& field) {
    if (field.kind != FieldKind::boolean) {
      problem(i, fmt::format("{} is neither true nor false", field.key),
              fmt::format("`#if variant::{} == {}`", field.key, constant_value(field, variant_.*field.member)));
    }
    return variant_.*field.member != 0;
  }

  bool same_value(std::size_t i, const Field& one, const Field& other) {
    if (constant_type(one) != constant_type(other)) {
      problem(i, fmt::format("{} and {} are of different types", one.key, other.key), "two constants of one type");
    }
    return variant_.*one.member == variant_.*other.member;
  }

  bool equals(std::size_t i, const Field& field, std::string_view value) {
    std::vector<std::string> values;
    for (int v = 0; v <= field.maximum; ++v) {
      if (is_legal(field, v)) values.push_back(constant_value(field, v));
      if (!values.empty() && values.back() == value) return v == variant_.*field.member;
    }
    const std::string near = nearest_word(std::string{value}, values);
    problem(i, fmt::format("{} is never {}", field.key, value),
            near.empty() ? "it is " + accepted_values(field) : fmt::format("did you mean {}?", near));
    return false;
  }

  const TemplateFile& file_;
  const Variant& variant_;
  Result<std::vector<bool>> result_;
  std::vector<Open> open_;  ///< outermost first
};

}  // namespace

Result<std::vector<bool>> fold(const TemplateFile& file, const Variant& variant) { return Folder(file, variant).run(); }

}  // namespace attune
