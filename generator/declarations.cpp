#include "generator/declarations.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "generator/tokens.hpp"

namespace attune {
namespace {

/// Words that come before a name and are followed by parentheses of their own.
constexpr std::array<std::string_view, 4> attributes{"__launch_bounds__", "alignas", "decltype", "noexcept"};

class Reader {
 public:
  explicit Reader(const TemplateFile& file) : file_(file), tokens_(tokens_of(file.code())) {
    for (std::size_t i = 0; i < file.code().size(); ++i) {
      if (file.code()[i] == '\n') line_ends_.push_back(i);
    }
  }

  std::vector<Declaration> run() { return scope(0, tokens_.size(), ""); }

 private:
  [[nodiscard]] bool at(std::size_t token, std::string_view text) const {
    return token < tokens_.size() && tokens_[token].is(text);
  }
  [[nodiscard]] bool is_word(std::size_t token) const {
    return token < tokens_.size() && tokens_[token].kind == Token::Kind::word;
  }
  [[nodiscard]] std::size_t line_of(std::size_t offset) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(line_ends_, offset) - line_ends_.begin());
  }

  /// Those between two tokens; members of `type`, or of a file.
  std::vector<Declaration> scope(std::size_t first, std::size_t end, std::string_view type) {
    std::vector<Declaration> found;
    std::size_t line = first == 0 ? 0 : line_of(tokens_[first - 1].offset) + 1;
    while (first < end) {
      if (is_word(first) && at(first + 1, ":") && !type.empty()) {  // private:
        line = line_of(tokens_[first].offset) + 1;
        first += 2;
        continue;
      }
      if (at(first, "namespace")) {
        const std::size_t close = closing(tokens_, first + 2);
        std::ranges::move(scope(first + 3, close, ""), std::back_inserter(found));
        line = line_of(tokens_[close].offset) + 1;
        first = close + 1;
        continue;
      }
      Declaration declaration;
      const std::size_t after = read(first, end, type, declaration);
      declaration.first_line = with_comment(line_of(tokens_[first].offset), line);
      declaration.end_line = with_remarks(line_of(tokens_[after - 1].end() - 1) + 1, tokens_[first]);
      line = declaration.end_line;
      found.push_back(std::move(declaration));
      first = after;
    }
    return found;
  }

  /// Where the comment right above a line begins, which no line before `limit` belongs to.
  [[nodiscard]] std::size_t with_comment(std::size_t line, std::size_t limit) const {
    while (line > limit && trimmed(file_.lines()[line - 1]).starts_with("//")) --line;
    // At the top of a file it is the file's.
    return line == 0 && trimmed(file_.lines()[0]).starts_with("//") ? comment_end(0) : line;
  }

  [[nodiscard]] std::size_t comment_end(std::size_t line) const {
    while (line < file_.lines().size() && trimmed(file_.lines()[line]).starts_with("//")) ++line;
    return line;
  }

  /// One past the lines that go on with a remark behind the code: comments further right than the code begins.
  [[nodiscard]] std::size_t with_remarks(std::size_t line, const Token& first) const {
    const std::size_t begin =
        first.offset - (line_of(first.offset) == 0 ? 0 : line_ends_[line_of(first.offset) - 1] + 1);
    while (line < file_.lines().size()) {
      const std::size_t column = file_.lines()[line].find_first_not_of(' ');
      if (column == std::string_view::npos || column <= begin || !file_.lines()[line].substr(column).starts_with("//"))
        break;
      ++line;
    }
    return line;
  }

  /// The words from one token on, those of lines for the preprocessor too.
  void use(std::size_t first, std::size_t end, Declaration& declaration) const {
    for (std::size_t i = first; i < end && i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      const std::size_t before = i > 0 && at(i - 1, "template") ? i - 1 : i;
      const bool accesses = before > first && (at(before - 1, ".") || at(before - 1, "->"));
      if (token.kind == Token::Kind::word) (accesses ? declaration.accessed : declaration.words).insert(token.text);
      if (token.kind != Token::Kind::directive) continue;
      for (const Token& inner : tokens_of(token.text.substr(1))) {
        if (inner.kind == Token::Kind::word) declaration.words.insert(inner.text);
      }
    }
  }

  /// The declaration that begins at a token; returns the token behind it.
  std::size_t read(std::size_t first, std::size_t end, std::string_view type, Declaration& declaration) {
    if (tokens_[first].kind == Token::Kind::directive) {
      const std::optional<Directive> directive = directive_of(tokens_[first].text);
      if (directive && directive->name == "define") declaration.names.push_back(word_at(directive->rest, 0));
      declaration.needed = declaration.names.empty();
      use(first, first + 1, declaration);
      return first + 1;
    }
    std::size_t token = first;
    while (at(token, "template") && at(token + 1, "<")) token = closing_angle(tokens_, token + 1) + 1;
    if (at(token, "struct") || at(token, "class")) {
      const std::size_t name = at(token + 1, "alignas") ? closing(tokens_, token + 2) + 1 : token + 1;
      // `struct X x;` declares x.
      if (!is_word(name + 1) && !at(name + 1, "*")) return read_type(first, name, end, declaration);
    }
    if (at(token, "enum")) return read_enum(first, token, end, declaration);
    return read_other(first, token, end, type, declaration);
  }

  /// A type, whose name is the token `body`.
  std::size_t read_type(std::size_t first, std::size_t body, std::size_t end, Declaration& declaration) {
    const std::string_view name = tokens_[body].text;
    declaration.names.push_back(name);
    while (body < end && !at(body, "{") && !at(body, ";")) ++body;
    use(first, body, declaration);
    if (!at(body, "{")) return std::min(body + 1, end);
    const std::size_t close = closing(tokens_, body);
    for (Declaration& member : scope(body + 1, close, name)) {
      if (member.needed) {
        declaration.words.merge(member.words);
        declaration.accessed.merge(member.accessed);
      } else {
        declaration.members.push_back(std::move(member));
      }
    }
    std::size_t after = close;
    while (after < end && !at(after, ";")) ++after;
    return std::min(after + 1, end);
  }

  std::size_t read_enum(std::size_t first, std::size_t token, std::size_t end, Declaration& declaration) {
    std::size_t after = token;
    while (after < end && !at(after, ";")) {
      const std::string_view word = tokens_[after].text;
      const bool number = word.front() >= '0' && word.front() <= '9';
      if (is_word(after) && !number && word != "enum" && word != "class") declaration.names.push_back(word);
      ++after;
    }
    use(first, after, declaration);
    return std::min(after + 1, end);
  }

  /// A function, a variable, an alias.
  std::size_t read_other(std::size_t first, std::size_t token, std::size_t end, std::string_view type,
                         Declaration& declaration) {
    const bool alias = at(token, "using");
    const std::size_t from = token;
    std::optional<std::size_t> parentheses;
    bool value = alias;  // what follows = or belongs to braces is one
    std::size_t name = alias ? token + 1 : token;
    while (token < end && !at(token, ";")) {
      if (at(token, "(") && !parentheses && !value) {
        if (std::ranges::find(attributes, tokens_[token - 1].text) == attributes.end()) {
          parentheses = token;
          name = token - 1;
        }
        token = closing(tokens_, token) + 1;
      } else if (at(token, "{") && parentheses && !value && !is_initialised(token, *parentheses)) {
        token = closing(tokens_, token) + 1;
        return named(first, from, name, token, type, parentheses, declaration);
      } else if (at(token, "(") || at(token, "[") || at(token, "{")) {
        if (!parentheses && !value && !at(token, "(")) name = token - 1;
        value = value || (!parentheses && !at(token, "["));
        token = closing(tokens_, token) + 1;
      } else if (at(token, "<") && !value) {
        token = closing_angle(tokens_, token) + 1;
      } else {
        if (at(token, "=") && !value && !parentheses && is_word(token - 1)) name = token - 1;
        value = value || at(token, "=");
        ++token;
      }
    }
    if (!parentheses && name == from) name = token - 1;
    return named(first, from, name, std::min(token + 1, end), type, parentheses, declaration);
  }

  /// Whether a brace behind a constructor's colon belongs to a member's value, not to the function.
  [[nodiscard]] bool is_initialised(std::size_t brace, std::size_t parentheses) const {
    const std::size_t close = closing(tokens_, parentheses);
    return at(close + 1, ":") && !at(brace - 1, ")") && !at(brace - 1, "}");
  }

  std::size_t named(std::size_t first, std::size_t from, std::size_t name, std::size_t after, std::string_view type,
                    std::optional<std::size_t> parentheses, Declaration& declaration) {
    use(first, after, declaration);
    bool constant = at(from, "using");
    bool kernel = false;
    for (std::size_t i = from; i < name; ++i) {
      constant = constant || at(i, "constexpr");
      kernel = kernel || at(i, "extern");
    }
    const std::string_view word = tokens_[name].text;
    declaration.names.push_back(word);
    const bool data = !type.empty() && !parentheses && !constant;
    declaration.needed =
        kernel || data || word == type || at(from, "static_assert") || declaration.words.contains("operator");
    return after;
  }

  const TemplateFile& file_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> line_ends_;
};

/// Goes from what is needed to what that uses, until nothing is added.
class Uses {
 public:
  explicit Uses(std::vector<std::vector<Declaration>>& files) {
    for (auto& declarations : files) {
      for (Declaration& declaration : declarations) visit(declaration, false);
    }
  }

 private:
  struct Waiting {
    Declaration* declaration;
    bool member;
  };

  /// Takes a declaration that is reached: needed now, or once its name is used.
  void visit(Declaration& declaration, bool member) {
    bool needed = std::exchange(declaration.needed, false);
    for (const std::string_view name : declaration.names) {
      needed = needed || words_.contains(name) || (member && accessed_.contains(name));
      waiting_.emplace(name, Waiting{&declaration, member});
    }
    if (needed) need(declaration);
  }

  void need(Declaration& declaration) {
    if (declaration.needed) return;
    declaration.needed = true;
    for (Declaration& member : declaration.members) visit(member, true);
    for (const std::string_view word : declaration.words) {
      if (words_.insert(word).second) wake(word, false);
    }
    for (const std::string_view word : declaration.accessed) {
      if (accessed_.insert(word).second) wake(word, true);
    }
  }

  /// Needs those that wait for a word; only members among them, where it was accessed as one.
  void wake(std::string_view word, bool accessed) {
    const auto [first, last] = waiting_.equal_range(word);
    const std::vector<std::pair<std::string_view, Waiting>> found(first, last);
    for (const auto& [name, waiting] : found) {
      if (waiting.member || !accessed) need(*waiting.declaration);
    }
  }

  std::multimap<std::string_view, Waiting> waiting_;
  std::set<std::string_view> words_;     ///< that something needed uses
  std::set<std::string_view> accessed_;  ///< and those by which it uses members
};

/// Whether the file declares something that is needed.
bool is_used(const std::vector<Declaration>& declarations) {
  return std::ranges::any_of(declarations, [](const Declaration& one) { return one.needed && !one.names.empty(); });
}

/// Leaves out private: where nothing follows it any more.
void leave_out_labels(const TemplateFile& file, std::vector<bool>& lines) {
  std::string_view next;
  for (std::size_t i = lines.size(); i-- > 0;) {
    const std::string_view line = trimmed(file.lines()[i]);
    if (!lines[i] || line.empty()) continue;
    if ((line == "private:" || line == "public:") && next.starts_with('}')) {
      lines[i] = false;
    } else {
      next = line;
    }
  }
}

/// Leaves out the lines of what is not needed.
void leave_out(const std::vector<Declaration>& declarations, std::vector<bool>& lines) {
  for (const Declaration& declaration : declarations) {
    if (declaration.needed) {
      leave_out(declaration.members, lines);
    } else {
      std::fill(lines.begin() + static_cast<std::ptrdiff_t>(declaration.first_line),
                lines.begin() + static_cast<std::ptrdiff_t>(declaration.end_line), false);
    }
  }
}

}  // namespace

std::vector<Declaration> declarations_of(const TemplateFile& file) { return Reader(file).run(); }

std::vector<std::vector<bool>> used_lines(std::span<const TemplateFile* const> files) {
  std::vector<std::vector<Declaration>> declarations;
  for (const TemplateFile* file : files) declarations.push_back(declarations_of(*file));
  const Uses uses(declarations);
  std::vector<std::vector<bool>> lines;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::vector<bool>& kept = lines.emplace_back(files[i]->lines().size(), is_used(declarations[i]));
    leave_out(declarations[i], kept);
    leave_out_labels(*files[i], kept);
  }
  return lines;
}

}  // namespace attune
