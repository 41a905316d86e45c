// manifest.json: what a folder of emitted sources holds.
#pragma once

#include <span>
#include <string>

#include "generator/collect.hpp"

namespace attune {

/// The manifest of these sources as JSON text.
std::string manifest_json(std::span<const Wanted> wanted);

}  // namespace attune
