#include "generator/schema.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "generator/spec.hpp"
#include "generator/variant.hpp"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

/// One value of the field.
Json value_schema(const Field& field) {
  if (field.kind == FieldKind::boolean) return {{"type", "boolean"}};
  if (field.kind == FieldKind::choice) return {{"enum", accepted_words(field)}};
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

/// A non-empty list of rows of field keys.
Json rows_schema(std::string_view description) {
  Json properties = Json::object();
  for (const Field& field : fields())
    properties[std::string{field.key}] = {{"$ref", "#/definitions/" + std::string{field.key}}};
  const Json row{{"type", "object"}, {"minProperties", 1}, {"additionalProperties", false}, {"properties", properties}};
  return {{"description", description}, {"type", "array"}, {"minItems", 1}, {"maxItems", max_variants}, {"items", row}};
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

  const Variant defaults;
  for (const Field& field : fields()) {
    const std::string key{field.key};
    const int value = defaults.*field.member;
    Json definition{{"description", std::string{field.doc} + " (" + accepted_values(field) + ")"}};
    if (field.kind == FieldKind::boolean) {
      definition["default"] = value != 0;
    } else if (field.kind == FieldKind::integer && (value != 0 || field.choices.empty())) {
      definition["default"] = value;
    } else {
      definition["default"] = value_text(field, value);
    }
    definition.update(value_or_list(value_schema(field)));
    definitions[key] = definition;
    properties[key] = {{"$ref", "#/definitions/" + key}};
  }
  properties["variants"] = rows_schema("rows of keys, each of which completes or overrides the keys of the top level");
  properties["exclude"] = rows_schema("combinations to leave out: those that match every key of a row");

  const Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                    {"title", "Attune spec"},
                    {"description", "The attention kernels to generate. Lists multiply out."},
                    {"type", "object"},
                    {"required", {"template"}},
                    {"additionalProperties", false},
                    {"properties", properties},
                    {"definitions", definitions}};
  return schema.dump(2) + "\n";
}

}  // namespace attune
