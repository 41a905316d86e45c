// One file of templates/ as lines, each with and without its comments.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"

namespace attune {

/// A #include "path" line.
struct Include {
  std::string path;
  Location where;
};

/// A line for the preprocessor: `#name rest`.
struct Directive {
  std::string_view name;
  std::string_view rest;  ///< without blanks at both ends
};

/// A name used as variant::name.
struct VariantUse {
  std::string_view name;
  Location where;
};

/// The text of a template or of a file that it includes. Views point into the text given to the constructor
/// and into `code`; both outlive every use.
class TemplateFile {
 public:
  TemplateFile(std::string_view path, std::string_view text);
  ~TemplateFile() = default;
  TemplateFile(const TemplateFile&) = delete;
  TemplateFile(TemplateFile&&) = delete;
  TemplateFile& operator=(const TemplateFile&) = delete;
  TemplateFile& operator=(TemplateFile&&) = delete;

  /// As written.
  [[nodiscard]] std::string_view text() const { return text_; }

  /// Lines as written, without their ends.
  [[nodiscard]] const std::vector<std::string_view>& lines() const { return lines_; }

  /// The same lines with comments as blanks.
  [[nodiscard]] const std::vector<std::string_view>& code_lines() const { return code_lines_; }

  /// The whole text with comments as blanks: same offsets as the original.
  [[nodiscard]] const std::string& code() const { return code_; }

  /// The place of line `index` (from 0) and column `column` (from 0).
  [[nodiscard]] Location at(std::size_t index, std::size_t column = 0) const;

  /// The place of an offset into the text.
  [[nodiscard]] Location at_offset(std::size_t offset) const;

  /// Every #include, in order.
  [[nodiscard]] std::vector<Include> includes() const;

  /// Whether the emitted file leaves this line out: #include and #pragma once.
  [[nodiscard]] bool is_dropped(std::size_t index) const;

  /// Every variant::name outside comments.
  [[nodiscard]] std::vector<VariantUse> variant_uses() const;

  /// Every {{name}} outside comments.
  [[nodiscard]] std::vector<Diagnostic> splices() const;

 private:
  std::string path_;
  std::string_view text_;
  std::string code_;
  std::vector<std::string_view> lines_;
  std::vector<std::string_view> code_lines_;
};

/// The directive on a line without comments, or nothing.
std::optional<Directive> directive_of(std::string_view line);

/// The identifier or number that starts there; may be empty.
std::string_view word_at(std::string_view text, std::size_t start);

/// Where a string or character literal that starts at `start` ends: after its closing quote or, where its line has
/// none, after the first one.
std::size_t literal_end(std::string_view text, std::size_t start);

/// `text` without blanks at both ends.
std::string_view trimmed(std::string_view text);

/// Whether this character can stand in an identifier.
bool is_word(char c);

}  // namespace attune
