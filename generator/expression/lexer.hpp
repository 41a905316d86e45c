// An expression's words and signs.
#pragma once

#include <string_view>
#include <vector>

namespace attune::expression {

struct Token {
  enum class Kind { word, integer, real, sign, end, wrong };

  Kind kind = Kind::end;
  std::string_view text;   ///< of the text that was read
  std::size_t offset = 0;  ///< in it

  [[nodiscard]] bool is(std::string_view other) const { return kind != Kind::end && text == other; }
};

/// All of them, and an end. What is no token is a wrong one of a single character.
std::vector<Token> tokens_of(std::string_view text);

}  // namespace attune::expression
