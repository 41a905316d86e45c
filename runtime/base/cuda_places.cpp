#include "runtime/base/cuda_places.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/environment.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

/// Adds the folders of the nvidia-* wheels of one environment: nvidia/cu13 and the like, before CUDA 13 one for each
/// part.
void add_wheels(std::vector<fs::path>& roots, const fs::path& site_packages) {
  std::error_code none;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(site_packages / "nvidia", none)) {
    if (entry.is_directory(none)) found.push_back(entry.path());
  }
  std::ranges::sort(found, std::ranges::greater());  // the newest toolkit first, and the same order everywhere
  roots.insert(roots.end(), found.begin(), found.end());
}

/// The folder that holds the Python package which this code is in, if it is in one.
fs::path own_site_packages() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&cuda_roots), &here) == 0 || here.dli_fname == nullptr) return {};
  return fs::path(here.dli_fname).parent_path().parent_path();
}

}  // namespace

std::vector<fs::path> cuda_roots() {
  std::vector<fs::path> roots;
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"}) {
    if (std::string folder = environment(home); !folder.empty()) roots.emplace_back(std::move(folder));
  }
  roots.emplace_back("/usr/local/cuda");
  if (const fs::path own = own_site_packages(); !own.empty()) add_wheels(roots, own);
  for (const char* prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string folder = environment(prefix);
    if (folder.empty()) continue;
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / "lib", none)) {
      if (entry.path().filename().string().starts_with("python3")) add_wheels(roots, entry.path() / "site-packages");
    }
  }
  return roots;
}

}  // namespace attune
