// The layers of a model's config.json, one by one, and which of them are alike.
#pragma once

#include <vector>

#include "runtime/cli/config_reader.hpp"
#include "runtime/cli/model_config.hpp"
#include "runtime/cli/model_families.hpp"

namespace attune::cli {

/// Gives the model its groups of layers, in order of their first; `shape` is what all layers have in common: heads and
/// dimensions. `family` is null for types that are not known. What was taken for missing fields goes to model.assumed.
void read_layers(ConfigReader& reader, const Family* family, const LayerShape& shape, ModelConfig& model);

}  // namespace attune::cli
