// Writing JSON, and reading objects whose keys are known: what is unknown, missing, given twice or illegal is a problem
// with a place.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace attune {

using Json = nlohmann::ordered_json;

/// A JSON value of a file as a message shows it: on one line, and short.
std::string shown_as(const Json& value);

/// A value as a file or an output has it, on one line or indented by so many spaces; what is no UTF-8 is replaced,
/// since a path need not be UTF-8 and JSON must. In one place, as the library's writer and reader are slow to compile.
std::string json_text(const Json& value, int indent = -1);

/// The whole number that a value is, where it lies between both ends; one that no 64 bits hold does not wrap.
std::optional<long long> whole_number(const Json& value, long long least, long long most);

/// What this text says; discarded (is_discarded()) where it is no JSON, has a number that no double holds, or is
/// nested deeper than eight levels. Those
/// that anyone may have written are to be read so: an ordered object copies what it holds, level by level, as it grows.
Json parse_json(std::string_view text);

/// The object that this text of one line is. Adds a problem, and returns nothing, where it is none, where it is nested
/// deeper than four levels, or where an object has a key twice. `where` is the text's first character.
std::optional<Json> parse_json_object(std::string_view text, const Location& where, std::vector<Diagnostic>& problems);

/// Takes the keys of one object, one by one. Each function adds a problem where the value is missing or illegal, and
/// returns what can be gone on with.
class JsonFields {
 public:
  /// `name` is how messages call the object: "problem". All three are kept by reference.
  JsonFields(const Json& object, std::string_view name, const Location& where, std::vector<Diagnostic>& problems)
      : object_(object), name_(name), where_(where), problems_(problems) {}

  /// The value, whatever it is; null, and no problem, where there is none.
  const Json* find(std::string_view key);

  /// A whole number from `minimum` to `maximum`; where the key is missing `otherwise`, if there is such.
  int integer(std::string_view key, int minimum, int maximum, std::optional<int> otherwise = std::nullopt);

  /// A number from `minimum` to `maximum`; where the key is missing `otherwise`, if there is such.
  double number(std::string_view key, double minimum, double maximum, std::optional<double> otherwise = std::nullopt);

  /// true or false; `otherwise` where the key is missing.
  bool flag(std::string_view key, bool otherwise = false);

  /// Text without control characters, not empty and not longer than a line of a message.
  std::string word(std::string_view key);

  /// A value of a variant's field, as its word, its number, true or false; where the key is missing `otherwise`.
  int value_of(const Field& field, std::optional<int> otherwise = std::nullopt);

  /// An object; null where there is none.
  const Json* object(std::string_view key);

  /// Every key that was not asked for is a problem.
  void finish();

  void problem(std::string what, std::string fix = "");

 private:
  const Json* required(std::string_view key);

  const Json& object_;
  std::string_view name_;
  const Location& where_;
  std::vector<Diagnostic>& problems_;
  std::vector<std::string> known_;
};

/// The value of a variant's field as JSON: true, 128 or "any".
Json json_value(const Field& field, int value);

/// An object of plain values and such objects on one line, with a space after each comma and colon.
std::string json_line(const Json& object);

}  // namespace attune
