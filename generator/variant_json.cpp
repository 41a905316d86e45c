#include "generator/variant_json.hpp"

#include <fmt/format.h>

namespace attune {

Json values_json(const Variant& variant) {
  auto values = Json::object();
  for (const std::string_view key : family_of(variant).keys) {
    const Field& field = *find_field(key);
    values[std::string{key}] = value_text(field, variant.*field.member);
  }
  return values;
}

std::optional<Variant> variant_of(int family, const Json& values, std::string& problem) {
  const Family& known = families()[static_cast<std::size_t>(family)];
  const auto refuse = [&](std::string what) {
    problem = std::move(what);
    return std::nullopt;
  };
  if (!values.is_object()) return refuse("the kernel has no values");
  Variant variant = known.defaults;
  for (const auto& [key, value] : values.items()) {
    const Field* field = known.has_key(key) ? find_field(key) : nullptr;
    if (field == nullptr) return refuse(fmt::format("template {} has no key {} here", known.name, key));
    const auto* const word = value.get_ptr<const std::string*>();
    const std::optional<int> parsed = word != nullptr ? parse_value(*field, *word) : std::nullopt;
    if (!parsed) {
      const std::string_view given = word != nullptr ? std::string_view{*word} : "no word";
      return refuse(fmt::format("{} is {}; {}", key, given, accepted_values(*field)));
    }
    variant.*field->member = *parsed;
  }
  if (values.size() != known.keys.size()) {
    return refuse(
        fmt::format("the kernel has {} of the {} keys of template {}", values.size(), known.keys.size(), known.name));
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
