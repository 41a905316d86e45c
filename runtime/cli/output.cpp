#include "runtime/cli/output.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <string>

#include "generator/files.hpp"
#include "generator/json_fields.hpp"

namespace attune::cli {
namespace {

/// Six digits of each number that is measured or estimated: 0.4704, not 0.47040000000000004.
void round_numbers(nlohmann::ordered_json& json) {
  if (json.is_number_float() && std::isfinite(json.get<double>())) {
    json = std::strtod(fmt::format("{:.6g}", json.get<double>()).c_str(), nullptr);
  } else if (json.is_structured()) {
    for (auto& value : json) round_numbers(value);
  }
}

}  // namespace

void print_json(const nlohmann::ordered_json& json) {
  nlohmann::ordered_json rounded = json;
  round_numbers(rounded);
  fmt::print("{}\n", json_text(rounded, 2));
}

nlohmann::ordered_json refusals_json(const Collection& request) {
  auto rows = nlohmann::ordered_json::array();
  for (const RefusedVariant& refused : request.refused) {
    auto reasons = nlohmann::ordered_json::array();
    for (const Diagnostic& reason : refused.reasons) reasons.push_back(reason.text());
    rows.push_back({{"variant", refused.variant.name()}, {"reasons", reasons}});
  }
  return rows;
}

void write_output(const std::filesystem::path& path, std::string_view bytes) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  write_bytes(path, bytes);
}

}  // namespace attune::cli
