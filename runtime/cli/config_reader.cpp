#include "runtime/cli/config_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace attune::cli {
namespace {

/// Above anything that a model has, and below where products of counts overflow.
constexpr int largest_count = 1 << 30;

/// Where byte number `at`, from 1, is.
Location place_of(std::string_view text, std::size_t at, const std::string& file) {
  const std::string_view before = text.substr(0, std::min(at > 0 ? at - 1 : 0, text.size()));
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column = line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return {.file = file,
          .line = static_cast<int>(std::ranges::count(before, '\n')) + 1,
          .column = static_cast<int>(column) + 1};
}

}  // namespace

ConfigReader::ConfigReader(std::string_view text, const std::string& file) : file_(file) {
  try {
    config_ = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    problems_.push_back({place_of(text, error.byte, file), "this is neither a record of calls nor JSON",
                         "a file that $ATTUNE_RECORD named, or a model's config.json"});
    return;
  }
  if (!config_.is_object()) {
    problem("the JSON is no object", "a model's config.json");
    config_ = nlohmann::json::object();
  }
}

void ConfigReader::problem(std::string what, std::string fix) {
  problems_.push_back({{.file = file_}, std::move(what), std::move(fix)});
}

const nlohmann::json& ConfigReader::find(const std::string& key) const {
  const auto inner = config_.find("text_config");
  if (inner != config_.end() && inner->is_object()) {
    const auto found = inner->find(key);
    if (found != inner->end() && !found->is_null()) return *found;
  }
  const auto found = config_.find(key);
  return found == config_.end() ? none_ : *found;
}

std::optional<int> ConfigReader::count(const std::string& key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_number_integer() && value >= 1 && value <= largest_count) return value.get<int>();
  problem(fmt::format("{} is no count", key), fmt::format("a whole number from 1 to {}", largest_count));
  return std::nullopt;
}

std::optional<double> ConfigReader::number(const std::string& key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_number()) return value.get<double>();
  problem(fmt::format("{} is no number", key), "a number, or null");
  return std::nullopt;
}

std::optional<double> ConfigReader::number_within(const std::string& outer, const std::string& key) {
  const nlohmann::json& object = find(outer);
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<std::string> ConfigReader::word(const std::string& key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  problem(fmt::format("{} is no word", key), "a word, or null");
  return std::nullopt;
}

std::optional<bool> ConfigReader::flag(const std::string& key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_boolean()) return value.get<bool>();
  problem(fmt::format("{} is neither true nor false", key), "true, false or null");
  return std::nullopt;
}

std::vector<std::string> ConfigReader::words(const std::string& key) {
  std::vector<std::string> result;
  const nlohmann::json& value = find(key);
  if (value.is_null()) return result;
  const bool all_words =
      value.is_array() && std::ranges::all_of(value, [](const nlohmann::json& item) { return item.is_string(); });
  if (all_words) return value.get<std::vector<std::string>>();
  problem(fmt::format("{} is no list of words", key), "a list of words, or null");
  return result;
}

int ConfigReader::required_count(const std::string& key, const std::string& otherwise) {
  const bool missing = !has(key);
  const std::optional<int> value = count(key);
  if (missing) {
    problem(fmt::format("{} is missing", key),
            fmt::format("a decoder's config.json has it{}{}", otherwise.empty() ? "" : ", ", otherwise));
  }
  return value.value_or(0);
}

}  // namespace attune::cli
