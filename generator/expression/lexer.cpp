#include "generator/expression/lexer.hpp"

#include <algorithm>
#include <array>

namespace attune::expression {
namespace {

constexpr std::array<std::string_view, 21> signs{"//", "<=", ">=", "==", "!=", "+", "-", "*", "/", "%", "<",
                                                 ">",  "(",  ")",  "[",  "]",  ",", ":", "{", "}", "="};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// How long the number at the text's beginning is, and whether it is a real.
std::size_t number_length(std::string_view text, bool& real) {
  const auto digits_from = [&](std::size_t i) {
    while (i < text.size() && is_digit(text[i])) ++i;
    return i;
  };
  std::size_t end = digits_from(0);
  real = false;
  if (end < text.size() && text[end] == '.') {
    real = true;
    end = digits_from(end + 1);
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_digit(text[exponent])) {
      real = true;
      end = digits_from(exponent);
    }
  }
  return end;
}

/// Bytes of the first character, in UTF-8: a message that cuts one in two is no text.
std::size_t character_length(std::string_view text) {
  const auto end = std::find_if(text.begin() + 1, text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return static_cast<std::size_t>(end - text.begin());
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  std::size_t i = 0;
  const auto add = [&](Token::Kind kind, std::size_t length) {
    tokens.push_back({kind, text.substr(i, length), i});
    i += length;
  };
  while (i < text.size()) {
    const std::string_view rest = text.substr(i);
    if (is_space(rest.front())) {
      ++i;
    } else if (is_letter(rest.front())) {
      const auto end = std::ranges::find_if(rest, [](char c) { return !is_letter(c) && !is_digit(c); });
      add(Token::Kind::word, static_cast<std::size_t>(end - rest.begin()));
    } else if (is_digit(rest.front()) || (rest.front() == '.' && rest.size() > 1 && is_digit(rest[1]))) {
      bool real = false;
      const std::size_t length = number_length(rest, real);
      add(real ? Token::Kind::real : Token::Kind::integer, length);
    } else {
      const auto sign = std::ranges::find_if(signs, [&](std::string_view one) { return rest.starts_with(one); });
      add(sign == signs.end() ? Token::Kind::wrong : Token::Kind::sign,
          sign == signs.end() ? character_length(rest) : sign->size());
    }
  }
  add(Token::Kind::end, 0);
  return tokens;
}

}  // namespace attune::expression
