// Compiled kernels, of the library or of a bundle, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "runtime/embedded.hpp"

namespace attune::cli {

/// A row for each kernel, and a last line with their number and the bytes of their images.
std::string kernel_table(std::span<const EmbeddedKernel> kernels);

nlohmann::ordered_json kernels_json(std::span<const EmbeddedKernel> kernels);

}  // namespace attune::cli
