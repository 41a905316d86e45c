// Parts of the CUDA toolkit are found where people have them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/base/cuda_places.hpp"
#include "tests/unit/environment.hpp"

namespace attune {
namespace fs = std::filesystem;
using testing::EnvironmentVariable;

TEST_CASE("a toolkit that the environment names comes first, PyPI's wheels in a virtual environment last") {
  std::string folder = (fs::temp_directory_path() / "attune-places-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const fs::path packages = fs::path(folder) / "lib/python3.11/site-packages";
  fs::create_directories(packages / "nvidia/cu13/lib");
  fs::create_directories(packages / "nvidia/cuda_nvrtc/lib");
  const EnvironmentVariable home("CUDA_HOME", "/opt/cuda");
  const EnvironmentVariable environment("VIRTUAL_ENV", folder);
  const auto roots = cuda_roots();
  const auto place = [&](const fs::path& root) { return std::ranges::find(roots, root) - roots.begin(); };
  CHECK(roots.front() == "/opt/cuda");
  CHECK(place("/usr/local/cuda") < place(packages / "nvidia/cu13"));
  CHECK(place(packages / "nvidia/cu13") < std::ssize(roots));
  CHECK(place(packages / "nvidia/cuda_nvrtc") < std::ssize(roots));
  fs::remove_all(folder);
}

}  // namespace attune
