#include "runtime/cli/config_reader.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace attune::cli {
namespace {

/// Where the text model of a config for several modalities stands.
constexpr std::array<std::string_view, 3> text_models{"text_config", "llm_config", "language_config"};

/// Where byte number `at`, from 1, is.
Location place_of(std::string_view text, std::size_t at, const std::string& file) {
  const std::string_view before = text.substr(0, std::min(at > 0 ? at - 1 : 0, text.size()));
  const std::size_t line_start = before.rfind('\n');
  const std::size_t column = line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return {.file = file,
          .line = static_cast<int>(std::ranges::count(before, '\n')) + 1,
          .column = static_cast<int>(column) + 1};
}

/// A value as a message shows it: only the beginning of a long one.
std::string shown(const nlohmann::json& value) {
  constexpr std::size_t longest = 40;
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
}

/// Whether JSON cannot hold what Python writes as this word, or a double what it stands for.
bool is_beyond_numbers(const std::string& word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  const bool is_number = word.size() > 3 && word.find_first_not_of("0123456789+-.eE") == std::string::npos;
  return is_number && std::isinf(std::strtod(word.c_str(), nullptr));
}

/// The text with every such word as a string of the same length, so that places stay what they are.
std::string without_infinities(std::string_view text) {
  std::string result(text);
  bool in_string = false;
  for (std::size_t at = 0; at < result.size(); ++at) {
    if (in_string && result[at] == '\\') {
      ++at;
    } else if (result[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && is_part_of_word(result[at])) {
      const std::size_t start = at;
      while (at + 1 < result.size() && is_part_of_word(result[at + 1])) ++at;
      if (!is_beyond_numbers(result.substr(start, at + 1 - start))) continue;
      result[start] = result[at] = '"';
    }
  }
  return result;
}

}  // namespace

ConfigReader::ConfigReader(std::string_view text, const std::string& file) : file_(file) {
  try {
    config_ = nlohmann::json::parse(without_infinities(text));
  } catch (const nlohmann::json::parse_error& error) {
    problems_.push_back({place_of(text, error.byte, file), "this is neither a record of calls nor JSON",
                         "a file that $ATTUNE_RECORD named, or a model's config.json"});
    return;
  }
  if (!config_.is_object()) {
    problem("the JSON is no object", "a model's config.json");
    config_ = nlohmann::json::object();
  }
  for (const std::string_view key : text_models) {
    const auto found = config_.find(key);
    if (text_model_ == nullptr && found != config_.end() && found->is_object()) text_model_ = &*found;
  }
}

void ConfigReader::problem(std::string what, std::string fix) {
  problems_.push_back({{.file = file_}, std::move(what), std::move(fix)});
}

const nlohmann::json& ConfigReader::find(std::string_view key) const {
  const auto found = model().find(key);
  return found == model().end() ? none_ : *found;
}

std::string_view ConfigReader::first_of(std::span<const std::string_view> keys) const {
  const auto found = std::ranges::find_if(keys, [&](std::string_view key) { return !key.empty() && has(key); });
  return found == keys.end() ? keys.front() : *found;
}

std::optional<int> ConfigReader::count_of(const nlohmann::json& value, const std::string& name, int least) {
  if (value.is_null()) return std::nullopt;
  if (value.is_number_integer() && value >= least && value <= largest_count) return value.get<int>();
  problem(fmt::format("{} is no count: {}", name, shown(value)),
          fmt::format("a whole number from {} to {}", least, largest_count));
  return std::nullopt;
}

std::optional<int> ConfigReader::count(std::string_view key) { return count_of(find(key), std::string(key), 1); }

std::optional<int> ConfigReader::count_or_0(std::string_view key) { return count_of(find(key), std::string(key), 0); }

std::optional<double> ConfigReader::number(std::string_view key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_number()) return value.get<double>();
  problem(fmt::format("{} is no number: {}", key, shown(value)), "a finite number, or null");
  return std::nullopt;
}

std::optional<int> ConfigReader::count_within(std::string_view outer, std::string_view key) {
  const nlohmann::json& object = find(outer);
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : count_of(*found, fmt::format("{}.{}", outer, key), 1);
}

std::optional<std::string> ConfigReader::word(std::string_view key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  problem(fmt::format("{} is no word: {}", key, shown(value)), "a word, or null");
  return std::nullopt;
}

std::optional<std::string> ConfigReader::word_anywhere(std::string_view key) {
  if (text_model_ == nullptr || has(key)) return word(key);
  const auto found = config_.find(key);
  return found != config_.end() && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::optional<bool> ConfigReader::flag(std::string_view key) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return std::nullopt;
  if (value.is_boolean()) return value.get<bool>();
  problem(fmt::format("{} is neither true nor false: {}", key, shown(value)), "true, false or null");
  return std::nullopt;
}

const nlohmann::json* ConfigReader::list(std::string_view key, const char* of) {
  const nlohmann::json& value = find(key);
  if (value.is_null()) return nullptr;
  if (!value.is_array()) {
    problem(fmt::format("{} is no list of {}", key, of), fmt::format("a list of {}, or null", of));
    return nullptr;
  }
  if (value.size() > most_layers) {
    problem(fmt::format("{} has {} entries", key, value.size()),
            fmt::format("one for each layer, of which there are at most {}", most_layers));
    return nullptr;
  }
  return &value;
}

std::vector<std::string> ConfigReader::words(std::string_view key) {
  const nlohmann::json* value = list(key, "words");
  if (value == nullptr) return {};
  if (std::ranges::all_of(*value, [](const nlohmann::json& item) { return item.is_string(); })) {
    return value->get<std::vector<std::string>>();
  }
  problem(fmt::format("{} is no list of words", key), "a list of words, or null");
  return {};
}

std::vector<int> ConfigReader::counts(std::string_view key) {
  const nlohmann::json* value = list(key, "counts");
  std::vector<int> result;
  if (value == nullptr) return result;
  for (const nlohmann::json& item : *value) {
    const std::optional<int> count = count_of(item, fmt::format("{}[{}]", key, result.size()), 0);
    if (!count) return {};
    result.push_back(*count);
  }
  return result;
}

bool ConfigReader::says(std::string_view key) const {
  const nlohmann::json& value = find(key);
  return value == true || value == "all" || value == "alibi" || (value.is_number() && value > 0);
}

}  // namespace attune::cli
