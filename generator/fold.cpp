#include "generator/fold.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/condition.hpp"
#include "generator/locals.hpp"
#include "generator/tokens.hpp"

namespace attune {
namespace {

constexpr std::size_t indent_width = 2;

/// The text without one level of indentation.
std::string dedented(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    std::string_view line = text.substr(0, end);
    if (line.starts_with("  ")) line.remove_prefix(indent_width);
    result += line;
    text.remove_prefix(end);
  }
  return result;
}

class Folder {
 public:
  Folder(const TemplateFile& file, const Variant& variant)
      : file_(file), variant_(variant), tokens_(tokens_of(file.code())), constants_(constants_of(tokens_)) {}

  Result<std::string> run() && {
    std::string text = render(0, file_.text().size());
    if (text != file_.text()) text = without_unused_locals(std::move(text));
    return {std::move(text), std::move(problems_)};
  }

 private:
  /// A statement: from the token `first` on, up to but without `end`.
  struct Statement {
    std::size_t first;
    std::size_t end;
  };

  /// `if constexpr`, from `if` on.
  struct Choice {
    Statement condition;  ///< without its parentheses
    Statement yes;
    std::optional<Statement> no;
    std::size_t end;
  };

  [[nodiscard]] bool at(std::size_t token, std::string_view text) const {
    return token < tokens_.size() && tokens_[token].is(text);
  }
  [[nodiscard]] std::size_t begin_of(std::size_t token) const {
    return token < tokens_.size() ? tokens_[token].offset : file_.text().size();
  }
  [[nodiscard]] std::size_t end_of(const Statement& statement) const { return tokens_[statement.end - 1].end(); }
  [[nodiscard]] std::size_t first_from(std::size_t offset) const {
    return static_cast<std::size_t>(
        std::distance(tokens_.begin(), std::ranges::lower_bound(tokens_, offset, {}, &Token::offset)));
  }
  [[nodiscard]] std::size_t line_begin(std::size_t offset) const {
    const std::size_t newline = file_.text().substr(0, offset).rfind('\n');
    return newline == std::string_view::npos ? 0 : newline + 1;
  }
  /// Where the next line begins.
  [[nodiscard]] std::size_t line_end(std::size_t offset) const {
    return std::min(file_.text().find('\n', offset), file_.text().size() - 1) + 1;
  }

  /// The statement that begins at a token: a block, one with a head and what it is the head of, or up to a semicolon.
  [[nodiscard]] Statement statement(std::size_t first) const {
    if (at(first, "{")) return {first, std::min(closing(tokens_, first) + 1, tokens_.size())};
    if (at(first, "if") || at(first, "for") || at(first, "while")) {
      const std::size_t head = at(first + 1, "constexpr") ? first + 2 : first + 1;
      std::size_t end = statement(closing(tokens_, head) + 1).end;
      if (at(first, "if") && at(end, "else")) end = statement(end + 1).end;
      return {first, end};
    }
    std::size_t end = first;
    while (end < tokens_.size() && !at(end, ";")) {
      const bool opens = at(end, "(") || at(end, "[") || at(end, "{");
      end = opens ? closing(tokens_, end) + 1 : end + 1;
    }
    return {first, std::min(end + 1, tokens_.size())};
  }

  [[nodiscard]] std::optional<Choice> choice_at(std::size_t token) const {
    if (!at(token, "if") || !at(token + 1, "constexpr") || !at(token + 2, "(")) return std::nullopt;
    const std::size_t close = closing(tokens_, token + 2);
    if (close + 1 >= tokens_.size()) return std::nullopt;
    Choice choice{{token + 3, close}, statement(close + 1), std::nullopt, 0};
    choice.end = choice.yes.end;
    if (at(choice.end, "else")) {
      choice.no = statement(choice.end + 1);
      choice.end = choice.no->end;
    }
    return choice;
  }

  std::optional<bool> decided(const Statement& condition) {
    const auto tokens = std::span(tokens_).subspan(condition.first, condition.end - condition.first);
    Result<std::optional<long long>> result = value_of(tokens, file_, constants_, variant_);
    std::ranges::move(result.problems, std::back_inserter(problems_));
    return result.value ? std::optional<bool>(*result.value != 0) : std::nullopt;
  }

  /// The text between two offsets, its choices made.
  std::string render(std::size_t begin, std::size_t end) {
    std::string out;
    std::size_t copied = begin;
    for (std::size_t token = first_from(begin); token < tokens_.size() && tokens_[token].offset < end;) {
      const std::size_t after = at(token, "Select") && at(token + 1, "<") ? render_type(token, copied, out)
                                                                          : render_choice(token, copied, out);
      token = std::max(after, token + 1);
    }
    out += file_.text().substr(copied, end - copied);
    return out;
  }

  /// Of Select<condition, A, B> the type, where it is decided; returns the token behind it.
  std::size_t render_type(std::size_t token, std::size_t& copied, std::string& out) {
    const std::size_t close = closing_angle(tokens_, token + 1);
    std::vector<std::size_t> commas;
    for (std::size_t i = token + 2; i < close; ++i) {
      if (at(i, "(") || at(i, "[") || at(i, "{")) {
        i = closing(tokens_, i);
      } else if (at(i, "<")) {
        i = closing_angle(tokens_, i);
      } else if (at(i, ",")) {
        commas.push_back(i);
      }
    }
    if (close >= tokens_.size() || commas.size() != 2) return token + 1;
    const std::optional<bool> yes = decided({token + 2, commas[0]});
    if (!yes) return token + 1;
    const std::size_t first = (*yes ? commas[0] : commas[1]) + 1;
    const std::size_t last = *yes ? commas[1] : close;
    out += file_.text().substr(copied, begin_of(token) - copied);
    out += render(begin_of(first), tokens_[last - 1].end());
    copied = tokens_[close].end();
    return close + 1;
  }

  /// An `if constexpr` that is decided, as the branch that it takes; returns the token behind it.
  std::size_t render_choice(std::size_t token, std::size_t& copied, std::string& out) {
    const std::optional<Choice> choice = choice_at(token);
    if (!choice) return token + 1;
    const std::optional<bool> yes = decided(choice->condition);
    if (!yes) return token + 1;
    const std::size_t line = line_begin(begin_of(token));
    if (!trimmed(file_.text().substr(line, begin_of(token) - line)).empty()) {
      problems_.push_back({file_.at_offset(begin_of(token)), "this `if constexpr` does not begin its line",
                           "a line of its own, so that its branch can take its place"});
      return token + 1;
    }
    out += file_.text().substr(copied, line - copied);
    const std::string indent(begin_of(token) - line, ' ');
    const std::string branch = taken(*choice, *yes, indent);
    if (branch.empty()) drop_comment(out, indent);
    out += branch;
    copied = line_end(tokens_[choice->end - 1].end());
    return choice->end;
  }

  /// The lines of the branch that is taken.
  std::string taken(const Choice& choice, bool yes, const std::string& indent) {
    if (!yes && !choice.no) return "";
    const Statement& branch = yes ? choice.yes : *choice.no;
    if (const std::optional<Choice> inner = yes ? std::nullopt : choice_at(branch.first)) {
      if (const std::optional<bool> inner_yes = decided(inner->condition)) return taken(*inner, *inner_yes, indent);
    }
    if (!at(branch.first, "{")) {
      const std::size_t begin = begin_of(branch.first);
      // With the remark that follows it.
      const std::string lines = render(begin, std::max(end_of(branch), line_end(end_of(branch)) - 1)) + "\n";
      const bool own_line = line_begin(begin) != line_begin(tokens_[branch.first - 1].offset);
      const std::size_t first_line = lines.find('\n') + 1;
      return indent + lines.substr(0, first_line) +
             (own_line ? dedented(lines.substr(first_line)) : lines.substr(first_line));
    }
    const std::size_t open = tokens_[branch.first].end();
    const std::size_t close = tokens_[branch.end - 1].offset;
    const std::size_t begin = line_end(open);
    const std::string_view remark = trimmed(file_.text().substr(open, begin - open - 1));
    const std::size_t end = line_begin(close);
    return (remark.empty() ? "" : indent + std::string(remark) + "\n") + dedented(render(begin, std::max(begin, end)));
  }

  /// Takes back the comment of that indentation at the end of the text.
  static void drop_comment(std::string& out, const std::string& indent) {
    const std::string comment = indent + "//";
    while (!out.empty()) {
      const std::size_t newline = out.size() < 2 ? std::string::npos : out.rfind('\n', out.size() - 2);
      const std::size_t line = newline == std::string::npos ? 0 : newline + 1;
      if (!std::string_view(out).substr(line).starts_with(comment)) break;
      out.resize(line);
    }
  }

  const TemplateFile& file_;
  const Variant& variant_;
  std::vector<Token> tokens_;
  Constants constants_;
  std::vector<Diagnostic> problems_;
};

}  // namespace

Result<std::string> fold(const TemplateFile& file, const Variant& variant) { return Folder(file, variant).run(); }

}  // namespace attune
