// A variant as JSON: what manifests say of a kernel.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "generator/variant.hpp"

namespace attune {

/// The values of the variant's fields by key, in the words of a spec: {"dtype": "bf16", "head_dim": "128", ...}. The
/// template and the set of GPUs are not among them.
nlohmann::ordered_json values_json(const Variant& variant);

/// The variant of a family with these values, of which each of its keys needs one. Says in `problem` what is wrong.
std::optional<Variant> variant_of(int family, const nlohmann::ordered_json& values, std::string& problem);

}  // namespace attune
