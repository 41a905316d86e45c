#include "generator/locals.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "generator/template_file.hpp"
#include "generator/tokens.hpp"

namespace attune {
namespace {

/// Words that begin a statement but no variable's declaration.
constexpr std::array<std::string_view, 15> other_words{"return",   "using",    "goto",   "else",  "case",
                                                       "template", "struct",   "class",  "enum",  "extern",
                                                       "break",    "continue", "delete", "throw", "namespace"};

/// A declaration of one variable: tokens from `first` on, up to but without `end`.
struct Local {
  std::size_t first;
  std::size_t end;
};

class Finder {
 public:
  explicit Finder(const TemplateFile& file) : tokens_(tokens_of(file.code())) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool member = i > 0 && (at(i - 1, ".") || at(i - 1, "->"));
      if (is_word(i) && !member) ++uses_[tokens_[i].text];
    }
  }

  std::optional<Local> run() const {
    std::vector<bool> in_code;  // for each brace that is open
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (at(i, "{")) in_code.push_back(opens_code(i));
      if (at(i, "}") && !in_code.empty()) in_code.pop_back();
      const bool begins = i > 0 && (at(i - 1, ";") || at(i - 1, "{") || at(i - 1, "}") ||
                                    tokens_[i - 1].kind == Token::Kind::directive);
      if (!begins || in_code.empty() || !in_code.back()) continue;
      if (const std::optional<Local> local = local_at(i)) return local;
    }
    return std::nullopt;
  }

  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }

 private:
  [[nodiscard]] bool at(std::size_t token, std::string_view text) const {
    return token < tokens_.size() && tokens_[token].is(text);
  }
  [[nodiscard]] bool is_word(std::size_t token) const {
    return token < tokens_.size() && tokens_[token].kind == Token::Kind::word;
  }

  /// Whether the brace opens statements: behind parentheses, a lambda's captures, another statement or `else`.
  [[nodiscard]] bool opens_code(std::size_t brace) const {
    if (brace == 0) return false;
    const Token& before = tokens_[brace - 1];
    return before.is(")") || before.is("]") || before.is("const") || before.is("mutable") || before.is("else") ||
           before.is("do") || before.is(";") || before.is("{") || before.is("}");
  }

  /// The declaration of a variable that nothing else names, if one begins here.
  [[nodiscard]] std::optional<Local> local_at(std::size_t first) const {
    std::size_t i = first;
    while (at(i, "const") || at(i, "constexpr") || at(i, "static")) ++i;
    if (!is_word(i) || std::ranges::find(other_words, tokens_[i].text) != other_words.end()) return std::nullopt;
    ++i;
    while (at(i, "::") || at(i, "<")) i = at(i, "<") ? closing_angle(tokens_, i) + 1 : i + 2;
    while (at(i, "&") || at(i, "*") || at(i, "const")) ++i;
    if (!is_word(i) || uses_.at(tokens_[i].text) != 1) return std::nullopt;
    ++i;
    if (!at(i, ";") && !at(i, "=") && !at(i, "{") && !at(i, "[")) return std::nullopt;
    while (i < tokens_.size() && !at(i, ";")) {
      if (at(i, ",")) return std::nullopt;  // another variable
      i = at(i, "(") || at(i, "[") || at(i, "{") ? closing(tokens_, i) + 1 : i + 1;
    }
    return Local{first, i + 1};
  }

  std::vector<Token> tokens_;
  std::map<std::string_view, int> uses_;
};

/// The lines of a declaration, with the comment right above it.
void erase(std::string& text, std::size_t begin, std::size_t end) {
  const auto line_begin = [&](std::size_t offset) {
    const std::size_t newline = offset == 0 ? std::string::npos : text.rfind('\n', offset - 1);
    return newline == std::string::npos ? 0 : newline + 1;
  };
  std::size_t first = line_begin(begin);
  while (first > 0) {
    const std::size_t above = line_begin(first - 1);
    if (!trimmed(std::string_view(text).substr(above, first - above - 1)).starts_with("//")) break;
    first = above;
  }
  text.erase(first, std::min(text.find('\n', end), text.size() - 1) + 1 - first);
}

}  // namespace

std::string without_unused_locals(std::string text) {
  for (;;) {
    std::size_t begin = 0;
    std::size_t end = 0;
    {
      const TemplateFile file("", text);
      const Finder finder(file);
      const std::optional<Local> local = finder.run();
      if (!local) return text;
      begin = finder.tokens()[local->first].offset;
      end = finder.tokens()[local->end - 1].end();
    }
    erase(text, begin, end);
  }
}

}  // namespace attune
