// Why a variant cannot serve, as far as that is the same for several operations.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/device.hpp"

namespace attune {

/// What stands against a problem of this operation and element type, whatever its shape; empty when nothing does.
std::vector<std::string> common_refusals(const Variant& variant, Operation operation, Dtype dtype,
                                         const Device& device);

}  // namespace attune
