#include "generator/variant_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace attune {

Json values_json(const Variant& variant) {
  auto values = Json::object();
  for (const std::string_view key : family_of(variant).keys) {
    const Field& field = *find_field(key);
    values[std::string{key}] = value_text(field, variant.*field.member);
  }
  return values;
}

std::string values_line(const Variant& variant) {
  std::vector<std::string> values;
  for (const std::string_view key : family_of(variant).keys) {
    const Field& field = *find_field(key);
    values.push_back(value_text(field, variant.*field.member));
  }
  return fmt::format("{}", fmt::join(values, ";"));
}

std::string keys_line(const Family& family) { return fmt::format("{}", fmt::join(family.keys, ";")); }

std::optional<Variant> variant_of(int family, std::string_view values, std::string& problem) {
  const Family& known = families()[static_cast<std::size_t>(family)];
  const auto refuse = [&](std::string what) {
    problem = std::move(what);
    return std::nullopt;
  };
  const auto given = static_cast<std::size_t>(std::ranges::count(values, ';')) + 1;
  if (given != known.keys.size()) {
    return refuse(
        fmt::format("the kernel has {} values for the {} keys of template {}", given, known.keys.size(), known.name));
  }
  Variant variant = known.defaults;
  for (const std::string_view key : known.keys) {
    const Field& field = *find_field(key);
    const std::string_view word = values.substr(0, values.find(';'));
    values.remove_prefix(std::min(word.size() + 1, values.size()));
    const std::optional<int> parsed = parse_value(field, word);
    if (!parsed) return refuse(fmt::format("{} is {}; {}", key, word, accepted_values(field)));
    variant.*field.member = *parsed;
  }
  return variant;
}

Json variant_json(const Variant& variant) {
  const Family& family = family_of(variant);
  Json object{{"template", family.name}};
  for (const std::string_view key : family.keys) {
    const Field& field = *find_field(key);
    const int value = variant.*field.member;
    if (value != family.defaults.*field.member) object[std::string(key)] = json_value(field, value);
  }
  return object;
}

}  // namespace attune
