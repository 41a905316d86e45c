// Compiled kernels, of the library or of a bundle, as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bundle/embedded.hpp"

namespace attune::cli {

/// The GPUs that a build makes machine code of the variant for: "sm_80", "sm_90".
std::vector<std::string_view> arch_names(const Variant& variant);

/// A row for each kernel, and a last line with their number, the bytes of their images, and the tables of tuned
/// problems.
std::string kernel_table(std::span<const ReadyKernel> kernels, std::span<const BundledTable> tables);

nlohmann::ordered_json kernels_json(std::span<const ReadyKernel> kernels);

/// The names of their files.
std::vector<std::string> names_of(std::span<const BundledTable> tables);

}  // namespace attune::cli
