#include "generator/tokens.hpp"

#include <algorithm>
#include <array>

#include "generator/template_file.hpp"

namespace attune {
namespace {

constexpr std::array<std::string_view, 8> pairs{"::", "->", "<=", ">=", "==", "!=", "&&", "||"};

/// Where a line for the preprocessor ends, those behind a backslash included.
std::size_t directive_end(std::string_view code, std::size_t start) {
  std::size_t end = std::min(code.find('\n', start), code.size());
  while (end > start && code[end - 1] == '\\' && end < code.size())
    end = std::min(code.find('\n', end + 1), code.size());
  return end;
}

bool is_opening(const Token& token) { return token.is("(") || token.is("[") || token.is("{"); }
bool is_closing(const Token& token) { return token.is(")") || token.is("]") || token.is("}"); }

}  // namespace

std::vector<Token> tokens_of(std::string_view code) {
  std::vector<Token> tokens;
  bool line_begins = true;
  for (std::size_t i = 0; i < code.size();) {
    const char c = code[i];
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r') {
      line_begins = line_begins || c == '\n';
      ++i;
      continue;
    }
    Token token{Token::Kind::sign, code.substr(i, 1), i};
    if (c == '#' && line_begins) {
      token = {Token::Kind::directive, code.substr(i, directive_end(code, i) - i), i};
    } else if (is_word(c)) {
      token = {Token::Kind::word, word_at(code, i), i};
    } else if (c == '"' || c == '\'') {
      token = {Token::Kind::literal, code.substr(i, literal_end(code, i) - i), i};
    } else if (std::ranges::find(pairs, code.substr(i, 2)) != pairs.end()) {
      token.text = code.substr(i, 2);
    }
    line_begins = false;
    i = token.end();
    tokens.push_back(token);
  }
  return tokens;
}

std::size_t closing(const std::vector<Token>& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (is_opening(tokens[i])) ++depth;
    if (is_closing(tokens[i]) && --depth == 0) return i;
  }
  return tokens.size();
}

std::size_t closing_angle(const std::vector<Token>& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (is_opening(tokens[i])) {
      i = closing(tokens, i);
    } else if (tokens[i].is("<")) {
      ++depth;
    } else if (tokens[i].is(">") && --depth == 0) {
      return i;
    }
  }
  return tokens.size();
}

}  // namespace attune
