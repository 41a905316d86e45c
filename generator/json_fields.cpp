#include "generator/json_fields.hpp"

#include "generator/problem_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace attune {
namespace {

constexpr int most_levels = 4;
constexpr std::size_t longest_word = 120;

bool is_plain(const std::string& text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  return !text.empty() && text.size() <= longest_word && std::ranges::none_of(text, is_control);
}

}  // namespace

std::string shown_as(const Json& value) {
  constexpr std::size_t shown = 40;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= shown ? text : text.substr(0, shown) + "...";
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::optional<long long> whole_number(const Json& value, long long least, long long most) {
  if (!value.is_number_integer()) return std::nullopt;
  // Half of the unsigned ones are above all that are signed, and would be read as negative.
  if (value.is_number_unsigned() && !std::in_range<long long>(value.get<std::uint64_t>())) return std::nullopt;
  const auto number = value.get<long long>();
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

Json parse_json(std::string_view text) {
  constexpr int deepest = 8;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t /*event*/, const Json& /*parsed*/) {
    too_deep = too_deep || depth > deepest;
    return !too_deep;
  };
  try {
    Json result = Json::parse(text, watch, /*allow_exceptions=*/false);
    if (!too_deep) return result;
  } catch (const Json::out_of_range&) {  // thrown whatever is asked for: 1e400
  }
  return Json(Json::value_t::discarded);
}

std::optional<Json> parse_json_object(std::string_view text, const Location& where, std::vector<Diagnostic>& problems) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second && twice.empty()) {
      twice = shown_as(parsed);
    }
    too_deep = too_deep || depth > most_levels;
    return !too_deep;
  };
  constexpr const char* form = R"(a JSON object on one line: {"key": value, ...})";
  try {
    Json object = Json::parse(text, watch);
    if (too_deep) {
      add_problem(problems, {where, fmt::format("the line has more than {} levels", most_levels), ""});
    } else if (!twice.empty()) {
      add_problem(problems, {where, fmt::format("the key {} is given twice", twice), "keep one"});
    } else if (!object.is_object()) {
      add_problem(problems, {where, "the line holds no object", form});
    } else {
      return object;
    }
  } catch (const Json::parse_error& error) {
    Location place = where;
    place.column += static_cast<int>(std::min(error.byte > 0 ? error.byte - 1 : 0, text.size()));
    add_problem(problems, {place, "the line is not JSON from here on", form});
  } catch (const Json::exception&) {
    add_problem(problems, {where, "the line has a number beyond every range", ""});
  }
  return std::nullopt;
}

void JsonFields::problem(std::string what, std::string fix) {
  add_problem(problems_, {where_, std::move(what), std::move(fix)});
}

const Json* JsonFields::find(std::string_view key) {
  known_.emplace_back(key);
  const auto found = object_.find(known_.back());
  return found == object_.end() ? nullptr : &*found;
}

const Json* JsonFields::required(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) problem(fmt::format("{} has no {}", name_, key), fmt::format("add \"{}\"", key));
  return value;
}

int JsonFields::integer(std::string_view key, int minimum, int maximum, std::optional<int> otherwise) {
  const Json* value = otherwise ? find(key) : required(key);
  if (value == nullptr) return otherwise.value_or(minimum);
  if (const auto number = whole_number(*value, minimum, maximum)) return static_cast<int>(*number);
  problem(fmt::format("{} of {} is {}", key, name_, shown_as(*value)),
          fmt::format("a whole number from {} to {}", minimum, maximum));
  return minimum;
}

double JsonFields::number(std::string_view key, double minimum, double maximum, std::optional<double> otherwise) {
  const Json* value = otherwise ? find(key) : required(key);
  if (value == nullptr) return otherwise.value_or(minimum);
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= minimum && number <= maximum) return number;
  }
  problem(fmt::format("{} of {} is {}", key, name_, shown_as(*value)),
          fmt::format("a number from {} to {}", minimum, maximum));
  return minimum;
}

bool JsonFields::flag(std::string_view key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  problem(fmt::format("{} of {} is {}", key, name_, shown_as(*value)), "true or false");
  return false;
}

std::string JsonFields::word(std::string_view key) {
  const Json* value = required(key);
  if (value == nullptr) return {};
  if (value->is_string() && is_plain(value->get_ref<const std::string&>())) return value->get<std::string>();
  problem(fmt::format("{} of {} is {}", key, name_, shown_as(*value)),
          fmt::format("text of 1 to {} characters", longest_word));
  return {};
}

int JsonFields::value_of(const Field& field, std::optional<int> otherwise) {
  const Json* value = otherwise ? find(field.key) : required(field.key);
  if (value == nullptr) return otherwise.value_or(0);
  const std::string word = value->is_string() ? value->get<std::string>() : value->dump();
  const std::optional<int> parsed = parse_value(field, word);
  // A number or a truth value in quotes is another word to YAML.
  if (parsed && json_value(field, *parsed) == *value) return *parsed;
  problem(fmt::format("{} of {} is {}", field.key, name_, shown_as(*value)), accepted_values(field));
  return otherwise.value_or(0);
}

const Json* JsonFields::object(std::string_view key) {
  const Json* value = required(key);
  if (value == nullptr || value->is_object()) return value;
  problem(fmt::format("{} of {} is {}", key, name_, shown_as(*value)), "an object");
  return nullptr;
}

void JsonFields::finish() {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    const std::string near = nearest_word(key, known_);
    problem(fmt::format("{} has a key {}, which is unknown", name_, shown_as(key)),
            near.empty() ? fmt::format("keys are {}", fmt::join(known_, ", ")) : fmt::format("did you mean {}?", near));
  }
}

Json json_value(const Field& field, int value) {
  if (field.kind == FieldKind::boolean) return value != 0;
  if (field.kind == FieldKind::integer && (value != 0 || field.choices.empty())) return value;
  return value_text(field, value);
}

std::string json_line(const Json& object) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : object.items()) {
    parts.push_back(
        fmt::format("{}: {}", json_text(Json(key)), value.is_object() ? json_line(value) : json_text(value)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace attune
