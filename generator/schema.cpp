#include "generator/schema.hpp"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "generator/json_fields.hpp"
#include "generator/spec.hpp"
#include "generator/variant.hpp"

namespace attune {
namespace {

/// One value of the field.
Json value_schema(const Field& field) {
  if (field.kind == FieldKind::boolean) return {{"type", "boolean"}};
  if (field.kind == FieldKind::choice) return {{"enum", accepted_words(field)}};
  if (field.kind == FieldKind::expression) return {{"type", "string"}, {"minLength", 1}};
  Json number{{"type", "integer"}, {"minimum", field.minimum}, {"maximum", field.maximum}};
  if (field.step != 1) number["multipleOf"] = field.step;
  if (field.choices.empty()) return number;
  return {{"anyOf", Json::array({{{"enum", accepted_words(field)}}, number})}};
}

/// A value, or a list of different values.
Json value_or_list(const Json& value) {
  const Json list{{"type", "array"}, {"items", value}, {"minItems", 1}, {"uniqueItems", true}};
  return {{"anyOf", Json::array({value, list})}};
}

template <class Range>
Json names_of(const Range& range) {
  Json names = Json::array();
  for (const auto& element : range) names.push_back(element.name);
  return names;
}

/// The field's default, which families may set apart; null where they differ.
Json default_value(const Field& field) {
  std::optional<int> common;
  for (const Family& family : families()) {
    if (!family.has_key(field.key)) continue;
    const int value = family.defaults.*field.member;
    if (common && *common != value) return nullptr;
    common = value;
  }
  const int value = common.value_or(0);
  if (field.kind == FieldKind::boolean) return value != 0;
  if (field.kind == FieldKind::integer && (value != 0 || field.choices.empty())) return value;
  return value_text(field, value);
}

/// What the field means, what it may be, and what differs between families.
std::string description(const Field& field) {
  std::vector<std::string> having;
  std::vector<std::string> defaults;
  for (const Family& family : families()) {
    if (!family.has_key(field.key)) continue;
    having.emplace_back(family.name);
    defaults.push_back(fmt::format("{} in {}", value_text(field, family.defaults.*field.member), family.name));
  }
  std::string text = fmt::format("{}: {} ({})", role_text(field.role), field.doc, accepted_values(field));
  if (having.size() < families().size()) text += fmt::format("; {} only", fmt::join(having, ", "));
  if (default_value(field).is_null()) text += fmt::format("; default {}", fmt::join(defaults, ", "));
  return text;
}

/// The keys that a spec of this family may have, on the top level and in rows.
Json family_schema(const Family& family) {
  Json in_rows = Json::array();
  for (const std::string_view key : family.keys) in_rows.push_back(key);
  Json on_top = in_rows;
  for (const char* key : {"template", "arch", "variants", "exclude", "tune"}) on_top.push_back(key);
  const Json row{{"propertyNames", {{"enum", in_rows}}}};
  const Json rows{{"items", row}};
  return {{"if", {{"properties", {{"template", {{"const", family.name}}}}}}},
          {"then",
           {{"propertyNames", {{"enum", on_top}}},
            {"properties", {{"variants", rows}, {"exclude", rows}, {"tune", row}}}}}};
}

/// A non-empty list of rows of field keys.
Json rows_schema(std::string_view description) {
  Json properties = Json::object();
  for (const Field& field : fields())
    properties[std::string{field.key}] = {{"$ref", "#/definitions/" + std::string{field.key}}};
  const Json row{{"type", "object"}, {"minProperties", 1}, {"additionalProperties", false}, {"properties", properties}};
  return {{"description", description}, {"type", "array"}, {"minItems", 1}, {"maxItems", max_variants}, {"items", row}};
}

/// The keys to search: a value, a list, or a range of numbers.
Json tune_schema() {
  const Json number{{"type", "integer"}, {"minimum", 1}};
  const Json range{{"type", "object"},
                   {"required", {"from", "to", "step"}},
                   {"additionalProperties", false},
                   {"properties", {{"from", number}, {"to", number}, {"step", number}}}};
  Json properties = Json::object();
  for (const Field& field : fields()) {
    const Json values{{"$ref", "#/definitions/" + std::string{field.key}}};
    properties[std::string{field.key}] =
        field.kind == FieldKind::integer ? Json{{"anyOf", Json::array({values, range})}} : values;
  }
  return {
      {"description", "keys whose values `attune tune` tries on the GPU; what is left out is as the heuristic has it"},
      {"type", "object"},
      {"minProperties", 1},
      {"additionalProperties", false},
      {"properties", properties}};
}

}  // namespace

std::string json_schema() {
  Json definitions = Json::object();
  Json properties = Json::object();
  properties["template"] = {{"description", "the kernel family: a file of templates/"}, {"enum", names_of(families())}};

  Json arch = value_or_list({{"enum", names_of(all_archs())}});
  arch["anyOf"].insert(arch["anyOf"].begin(), Json{{"const", "any"}});
  arch["description"] = "GPUs the kernels are for, each of which they must fit; any: every one that they fit";
  arch["default"] = "any";
  properties["arch"] = arch;

  for (const Field& field : fields()) {
    const std::string key{field.key};
    Json definition{{"description", description(field)}};
    if (const Json value = default_value(field); !value.is_null()) definition["default"] = value;
    definition.update(value_or_list(value_schema(field)));
    definitions[key] = definition;
    properties[key] = {{"$ref", "#/definitions/" + key}};
  }
  const Json dimension{
      {"anyOf", Json::array({{{"enum", expression::per_words}},
                             {{"type", "integer"}, {"minimum", 1}, {"maximum", expression::most_extent}}})}};
  const Json parameter{
      {"type", "object"},
      {"required", {"per", "dtype"}},
      {"additionalProperties", false},
      {"properties",
       {{"per", {{"type", "array"}, {"items", dimension}, {"minItems", 1}, {"maxItems", expression::most_dimensions}}},
        {"dtype", {{"enum", {"fp32", "int32"}}}}}}};
  properties["params"] = {{"description",
                           "arrays that the expressions of score and mask look up, and what each of their "
                           "dimensions is counted by"},
                          {"type", "object"},
                          {"minProperties", 1},
                          {"additionalProperties", parameter}};
  properties["variants"] = rows_schema("rows of keys, each of which completes or overrides the keys of the top level");
  properties["exclude"] = rows_schema("combinations to leave out: those that match every key of a row");
  properties["tune"] = tune_schema();

  Json per_family = Json::array();
  for (const Family& family : families()) per_family.push_back(family_schema(family));

  const Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                    {"title", "Attune spec"},
                    {"description", "The attention kernels to generate. Lists multiply out."},
                    {"type", "object"},
                    {"required", {"template"}},
                    {"additionalProperties", false},
                    {"properties", properties},
                    {"allOf", per_family},
                    {"definitions", definitions}};
  return json_text(schema, 2) + "\n";
}

}  // namespace attune
