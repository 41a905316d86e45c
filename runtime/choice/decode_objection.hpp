// What a decode problem has against a tuned row's kernel though that could serve it.
#pragma once

#include <string>

#include "generator/variant.hpp"
#include "runtime/call/device.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune {

/// Why the variant that a race found for `own` is not for `problem`, a sentence that names a field; empty where it is.
std::string decode_objection(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem,
                             const Device& device);

}  // namespace attune
