// Why a variant cannot serve, as far as that is the same for several operations.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/problem/device.hpp"

namespace attune {

/// What stands against a problem of this operation and element type, whatever its shape; empty when nothing does.
std::vector<std::string> common_refusals(const Variant& variant, Operation operation, Dtype dtype,
                                         const Device& device);

/// Adds why a kernel that has this boolean knob or has it not cannot serve a problem that is the other way.
void check_knob(std::vector<std::string>& result, const Variant& variant, const char* key, bool wanted);

/// The same of the rotation of keys and queries.
void check_rotary(std::vector<std::string>& result, const Variant& variant, Rotary wanted);

}  // namespace attune
