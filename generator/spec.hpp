// Reading specs/*.yaml: the keys of the field table, each a value or a list of values.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "generator/diagnostic.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The values one key may take, and where the spec says so.
struct Choice {
  std::vector<int> values;
  Location where;
};

/// A set of keys with values: the top level of a spec, a row of `variants:`, a row of `exclude:`, `tune:`.
struct Settings {
  std::map<std::string, Choice> keys;  ///< by field key
  Location where;
};

/// What a YAML file said. Lists are not multiplied out yet.
struct Spec {
  std::string name;  ///< file name without folder and extension
  std::string file;  ///< as given, for messages
  int family = 0;
  ArchSet arch = 0;                ///< `arch:` names a set of GPUs; it does not multiply
  Settings common;                 ///< top-level keys
  std::vector<Settings> rows;      ///< `variants:` rows, each completing or overriding `common`
  std::vector<Settings> excludes;  ///< `exclude:` rows; a combination that matches one is dropped
  Settings tune;                   ///< `tune:` keys, which `attune tune` searches; elsewhere they are lists as others
};

/// Limits that keep a hostile file from costing more than a message.
inline constexpr std::size_t max_spec_bytes = 1 << 20;
inline constexpr int max_spec_depth = 16;
inline constexpr std::size_t max_variants = 32768;

/// Parses spec text. `file` is used in messages and for the spec's name. Reports every problem.
Result<Spec> parse_spec(std::string_view text, const std::string& file);

/// Reads and parses a file; a missing, unreadable or oversized one is a problem too.
Result<Spec> read_spec(const std::filesystem::path& path);

}  // namespace attune
