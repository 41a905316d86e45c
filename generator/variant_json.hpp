// A variant as text: in manifests, bundles, and in tables and journals of tuning.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "generator/json_fields.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The values of the variant's fields by key, in the words of a spec: {"dtype": "bf16", "head_dim": "128", ...}. The
/// template and the set of GPUs are not among them.
Json values_json(const Variant& variant);

/// The same on one line, in the order of the family's keys: "bf16;128;...". No value has a semicolon.
std::string values_line(const Variant& variant);

/// The keys that such a line has values of: "dtype;head_dim;...".
std::string keys_line(const Family& family);

/// The variant of a family with the values of such a line. Says in `problem` what is wrong.
std::optional<Variant> variant_of(int family, std::string_view values, std::string& problem);

/// A variant in a row of a table: its template, and the fields in which it is unlike its family's defaults.
Json variant_json(const Variant& variant);

}  // namespace attune
