// From a spec to the variants it asks for.
#pragma once

#include <vector>

#include "generator/spec.hpp"

namespace attune {

/// A combination that a rule of check() refuses.
struct RefusedVariant {
  Variant variant;
  std::vector<Diagnostic> reasons;
};

struct Expansion {
  std::vector<Variant> variants;        ///< feasible, unique, in the order of the spec
  std::vector<RefusedVariant> refused;  ///< combinations that a rule refuses
};

/// Multiplies lists out, drops what `exclude` matches and checks the rest. A refused combination is a
/// problem of the spec (its Diagnostic points at the key to change) unless the spec multiplied lists
/// and at least one combination passed: then it is listed in `refused`. A spec that comes to nothing,
/// or to more than max_variants, is a problem.
Result<Expansion> expand(const Spec& spec);

/// What the spec says multiplied out, `tune:` among it, with the values of `base` where it says nothing; without what
/// `exclude` matches, each once, in the order of the spec, unchecked. More than max_variants of them are a problem.
Result<std::vector<Variant>> combinations(const Spec& spec, const Variant& base);

}  // namespace attune
