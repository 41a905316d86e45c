// Reading a model's config.json: values by key, and what is wrong with them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"

namespace attune::cli {

/// The largest count that a config may hold: above anything that a model has.
inline constexpr int largest_count = 1 << 30;

/// As many layers as are read, several times those of any model.
inline constexpr int most_layers = 4096;

/// The keys of a config; of one for several modalities those of its text model. A key may be there and null, which says
/// something else than a key that is missing.
class ConfigReader {
 public:
  /// Text that is no JSON object is a problem, with its line and column. Python's Infinity and NaN, and numbers beyond
  /// a double, are values that are neither a count nor a number: a problem where they are asked for, and nowhere else.
  ConfigReader(std::string_view text, const std::string& file);
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  [[nodiscard]] bool ok() const { return problems_.empty(); }
  [[nodiscard]] std::vector<Diagnostic> take_problems() && { return std::move(problems_); }
  void problem(std::string what, std::string fix);

  [[nodiscard]] bool has(std::string_view key) const { return !find(key).is_null(); }
  [[nodiscard]] bool is_missing(std::string_view key) const { return model().find(key) == model().end(); }

  /// The first of these keys that is there and not null; the first of all where none is.
  [[nodiscard]] std::string_view first_of(std::span<const std::string_view> keys) const;

  // Nothing where the key is missing or null; what is of another kind is a problem.
  std::optional<int> count(std::string_view key);       ///< a whole number from 1
  std::optional<int> count_or_0(std::string_view key);  ///< a whole number from 0
  std::optional<double> number(std::string_view key);
  std::optional<std::string> word(std::string_view key);
  std::optional<bool> flag(std::string_view key);
  std::vector<std::string> words(std::string_view key);  ///< of most_layers at most, for one a layer
  std::vector<int> counts(std::string_view key);         ///< the same, from 0

  /// Of the text model, else of the config around it, which alone may say so.
  std::optional<std::string> word_anywhere(std::string_view key);

  /// Of an object under `outer`.
  std::optional<int> count_within(std::string_view outer, std::string_view key);

  /// Whether a key says that the model has what it is named for: true, "all", "alibi" or a number above 0.
  [[nodiscard]] bool says(std::string_view key) const;

  /// The value as it stands there; null where the key is missing.
  [[nodiscard]] const nlohmann::json& find(std::string_view key) const;

 private:
  [[nodiscard]] const nlohmann::json& model() const { return text_model_ != nullptr ? *text_model_ : config_; }
  std::optional<int> count_of(const nlohmann::json& value, const std::string& name, int least);
  const nlohmann::json* list(std::string_view key, const char* of);

  std::string file_;
  nlohmann::json config_;
  const nlohmann::json* text_model_ = nullptr;  ///< within config_
  nlohmann::json none_;
  std::vector<Diagnostic> problems_;
};

}  // namespace attune::cli
