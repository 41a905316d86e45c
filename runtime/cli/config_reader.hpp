// Reading a model's config.json: values by key, and what is wrong with them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"

namespace attune::cli {

/// The keys of a config; of one for several modalities those of its text model, then its own.
class ConfigReader {
 public:
  /// Text that is no JSON object is a problem, with its line and column.
  ConfigReader(std::string_view text, const std::string& file);

  [[nodiscard]] bool ok() const { return problems_.empty(); }
  [[nodiscard]] std::vector<Diagnostic> take_problems() && { return std::move(problems_); }
  void problem(std::string what, std::string fix);

  /// Whether the key is there and not null.
  [[nodiscard]] bool has(const std::string& key) const { return !find(key).is_null(); }

  // Nothing where the key is missing or null; what is of another kind is a problem.
  std::optional<int> count(const std::string& key);  ///< a whole number from 1
  std::optional<double> number(const std::string& key);
  std::optional<std::string> word(const std::string& key);
  std::optional<bool> flag(const std::string& key);
  std::vector<std::string> words(const std::string& key);

  /// Of an object under `outer`.
  std::optional<double> number_within(const std::string& outer, const std::string& key);

  /// A count without which nothing can be said: 0, and a problem, where it is missing; `otherwise` says what would do
  /// in its place.
  int required_count(const std::string& key, const std::string& otherwise = "");

 private:
  [[nodiscard]] const nlohmann::json& find(const std::string& key) const;

  std::string file_;
  nlohmann::json config_;
  nlohmann::json none_;
  std::vector<Diagnostic> problems_;
};

}  // namespace attune::cli
