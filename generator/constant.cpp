#include "generator/constant.hpp"

#include <fmt/format.h>

namespace attune {

std::string constant_type(const Field& field) {
  if (field.kind == FieldKind::boolean || field.kind == FieldKind::expression) return "bool";
  if (field.kind == FieldKind::integer) return "int";
  std::string type{field.key};
  type.front() = static_cast<char>(type.front() - 'a' + 'A');
  return type;
}

std::string constant_value(const Field& field, int value) {
  if (field.kind == FieldKind::integer) return std::to_string(value);
  if (field.kind == FieldKind::boolean || field.kind == FieldKind::expression) return value != 0 ? "true" : "false";
  return fmt::format("{}::{}", constant_type(field), value_text(field, value));
}

std::string constant_definition(const Field& field, int value) {
  return fmt::format("constexpr {} {} = {};", constant_type(field), field.key, constant_value(field, value));
}

}  // namespace attune
