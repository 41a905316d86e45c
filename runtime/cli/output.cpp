#include "runtime/cli/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

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
  std::filesystem::path beside = path;
  beside += fmt::format(".{}.tmp", ::getpid());
  {
    std::ofstream file(beside, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) {
      const std::error_code why(errno, std::generic_category());
      std::error_code ignored;
      std::filesystem::remove(beside, ignored);
      throw std::filesystem::filesystem_error("cannot write", path, why);
    }
  }
  std::filesystem::rename(beside, path);
}

}  // namespace attune::cli
