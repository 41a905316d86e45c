// The words and signs of a template, as far as the generator has to tell them apart.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace attune {

/// A word (a name, a keyword, a number), a literal with its quotes, a whole line for the preprocessor with those that a
/// backslash adds to it, or a sign: `::`, `->`, `<=`, `>=`, `==`, `!=`, `&&`, `||`, and every other character alone, so
/// that `>>` is two that may close two template argument lists.
struct Token {
  enum class Kind { word, literal, directive, sign };

  Kind kind;
  std::string_view text;
  std::size_t offset;  ///< into the code

  [[nodiscard]] std::size_t end() const { return offset + text.size(); }
  [[nodiscard]] bool is(std::string_view what) const { return text == what && kind != Kind::literal; }
};

/// Those of code whose comments are blank (TemplateFile::code). The views are into `code`.
std::vector<Token> tokens_of(std::string_view code);

/// The token that closes what the one at `open` opens, (), [] or {}; the number of tokens where none does.
std::size_t closing(const std::vector<Token>& tokens, std::size_t open);

/// The same for the < of a template argument list or of a template's own parameters.
std::size_t closing_angle(const std::vector<Token>& tokens, std::size_t open);

}  // namespace attune
