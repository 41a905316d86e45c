// The specs whose kernels are shipped.
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

namespace attune::testing {

/// specs/*.yaml, sorted.
inline std::vector<std::filesystem::path> shipped_specs() {
  std::vector<std::filesystem::path> specs;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs")) {
    if (entry.path().extension() == ".yaml") specs.push_back(entry.path());
  }
  std::ranges::sort(specs);
  return specs;
}

}  // namespace attune::testing
