// A variant as JSON: in manifests, and in tables and journals of tuning.
#pragma once

#include <optional>
#include <string>

#include "generator/json_fields.hpp"
#include "generator/variant.hpp"

namespace attune {

/// The values of the variant's fields by key, in the words of a spec: {"dtype": "bf16", "head_dim": "128", ...}. The
/// template and the set of GPUs are not among them.
Json values_json(const Variant& variant);

/// The variant of a family with these values, of which each of its keys needs one. Says in `problem` what is wrong.
std::optional<Variant> variant_of(int family, const Json& values, std::string& problem);

/// A variant in a row of a table: its template, and the fields in which it is unlike its family's defaults.
Json variant_json(const Variant& variant);

}  // namespace attune
