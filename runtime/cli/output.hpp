// What the tool hands over: JSON on stdout, files written whole.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "runtime/cli/specs.hpp"

namespace attune::cli {

/// Indented, with a newline at the end, on stdout.
void print_json(const nlohmann::ordered_json& json);

/// `{variant, reasons}` for each refused combination.
nlohmann::ordered_json refusals_json(const Collection& request);

/// Makes the folder, and writes as write_bytes() does. Throws std::filesystem::filesystem_error.
void write_output(const std::filesystem::path& path, std::string_view bytes);

}  // namespace attune::cli
