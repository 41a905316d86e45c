// A field of a variant as C++ writes it.
#pragma once

#include <string>

#include "generator/variant.hpp"

namespace attune {

/// The type of its constant: a choice is an enum of its own name.
std::string constant_type(const Field& field);

/// A value of it: `128`, `true`, `Dtype::bf16`.
std::string constant_value(const Field& field, int value);

/// `constexpr int head_dim = 128;`
std::string constant_definition(const Field& field, int value);

}  // namespace attune
