#include "generator/template_file.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr std::string_view blanks = " \t\r";

/// Where the comment that starts at `start` ends.
std::size_t comment_end(std::string_view text, std::size_t start) {
  if (text[start + 1] == '/') return std::min(text.find('\n', start), text.size());
  const std::size_t close = text.find("*/", start + 2);
  return close == std::string_view::npos ? text.size() : close + 2;
}

std::string without_comments(std::string_view text) {
  std::string code{text};
  for (std::size_t i = 0; i < text.size();) {
    const bool digit_separator = text[i] == '\'' && i > 0 && is_word(text[i - 1]);
    if (text[i] == '"' || (text[i] == '\'' && !digit_separator)) {
      i = literal_end(text, i);
    } else if (text[i] == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*')) {
      const std::size_t end = comment_end(text, i);
      for (; i < end; ++i) {
        if (text[i] != '\n') code[i] = ' ';
      }
    } else {
      ++i;
    }
  }
  return code;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::size_t literal_end(std::string_view text, std::size_t start) {
  for (std::size_t i = start + 1; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[start]) {
      return i + 1;
    }
  }
  return std::min(start + 1, text.size());
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string_view word_at(std::string_view text, std::size_t start) {
  std::size_t end = start;
  while (end < text.size() && is_word(text[end])) ++end;
  return text.substr(start, end - start);
}

std::optional<Directive> directive_of(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with('#')) return std::nullopt;
  line = trimmed(line.substr(1));
  const std::string_view name = word_at(line, 0);
  return Directive{name, trimmed(line.substr(name.size()))};
}

TemplateFile::TemplateFile(std::string_view path, std::string_view text)
    : path_(fmt::format("templates/{}", path)),
      text_(text),
      code_(without_comments(text)),
      lines_(split_lines(text)),
      code_lines_(split_lines(code_)) {}

Location TemplateFile::at(std::size_t index, std::size_t column) const {
  return {path_, static_cast<int>(index) + 1, static_cast<int>(column) + 1};
}

Location TemplateFile::at_offset(std::size_t offset) const {
  const std::string_view before = std::string_view{code_}.substr(0, offset);
  const auto line = static_cast<std::size_t>(std::ranges::count(before, '\n'));
  const std::size_t newline = before.rfind('\n');
  return at(line, newline == std::string_view::npos ? offset : offset - newline - 1);
}

std::vector<Include> TemplateFile::includes() const {
  std::vector<Include> found;
  for (std::size_t i = 0; i < code_lines_.size(); ++i) {
    const std::optional<Directive> directive = directive_of(code_lines_[i]);
    if (!directive || directive->name != "include") continue;
    std::string_view path = directive->rest;
    if (path.size() > 1 && path.front() == '"' && path.back() == '"') path = path.substr(1, path.size() - 2);
    found.push_back({std::string{path}, at(i)});
  }
  return found;
}

bool TemplateFile::is_dropped(std::size_t index) const {
  const std::optional<Directive> directive = directive_of(code_lines_[index]);
  return directive && (directive->name == "include" || (directive->name == "pragma" && directive->rest == "once"));
}

std::vector<VariantUse> TemplateFile::variant_uses() const {
  constexpr std::string_view prefix = "variant::";
  std::vector<VariantUse> uses;
  const std::string_view code = code_;
  for (std::size_t found = code.find(prefix); found != std::string_view::npos; found = code.find(prefix, found + 1)) {
    if (found > 0 && is_word(code[found - 1])) continue;
    uses.push_back({word_at(code, found + prefix.size()), at_offset(found)});
  }
  return uses;
}

std::vector<Diagnostic> TemplateFile::splices() const {
  std::vector<Diagnostic> problems;
  const std::string_view code = code_;
  for (std::size_t open = code.find("{{"); open != std::string_view::npos; open = code.find("{{", open + 1)) {
    const std::string_view name = word_at(code, open + 2);
    if (name.empty() || !code.substr(open + 2 + name.size()).starts_with("}}")) continue;
    problems.push_back({at_offset(open), fmt::format("unknown splice {{{{{}}}}}", name), "this family has no splices"});
  }
  return problems;
}

}  // namespace attune
