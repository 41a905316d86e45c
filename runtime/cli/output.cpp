#include "runtime/cli/output.hpp"

#include <fmt/format.h>

#include "generator/files.hpp"

namespace attune::cli {

void print_json(const nlohmann::ordered_json& json) { fmt::print("{}\n", json.dump(2)); }

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
