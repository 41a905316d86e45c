// Folders for temporary files, and the environment that names them.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "generator/files.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using testing::EnvironmentVariable;
namespace fs = std::filesystem;

namespace {

void make_old(const fs::path& folder) {
  fs::last_write_time(folder, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

}  // namespace

TEST_CASE("a scratch folder that a killed process left goes with the next one, and nothing else does") {
  const ScratchFolder outer("attune-cli-");
  const EnvironmentVariable variable("TMPDIR", outer.path().string());
  const ScratchFolder held;
  make_old(held.path());
  const fs::path left = outer.path() / "attune-scratch-Ab12Cd";
  const fs::path young = outer.path() / "attune-scratch-Young1";
  const fs::path shared = outer.path() / "attune-scratch-Shared";
  const fs::path notes = outer.path() / "attune-scratch-of-mine";
  const fs::path link = outer.path() / "attune-scratch-Linked";
  for (const fs::path& folder : {left, young, shared, notes}) {
    fs::create_directory(folder);
    fs::permissions(folder, fs::perms::owner_all);
    write_file(folder / "file", "text");
  }
  fs::create_directory_symlink(notes, link);
  fs::permissions(shared, fs::perms::owner_all | fs::perms::others_all);
  for (const fs::path& folder : {left, shared, notes}) make_old(folder);
  { const ScratchFolder next; }
  CHECK_FALSE(fs::exists(left));
  for (const fs::path& folder : {held.path(), young, shared, notes, link}) {
    CAPTURE(folder);
    CHECK(fs::exists(folder));
  }
  CHECK(fs::exists(notes / "file"));
}

TEST_CASE("a TMPDIR that is missing is said so, and not that there is no host compiler") {
  const EnvironmentVariable variable("TMPDIR", "/nonexistent/scratch");
  const EnvironmentVariable compiler("CXX", "/bin/true");
  std::string message;
  try {
    const emulator::HostCompiler opened;
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message.find("/bin/true has no folder to work in: ") != std::string::npos);
  CHECK(message.find("TMPDIR names no folder") != std::string::npos);
  CHECK(message.find("/nonexistent/scratch") != std::string::npos);
}

TEST_CASE("the environment is read in one place, which gives a setuid program nothing") {
  const fs::path root = ATTUNE_SOURCE_DIR;
  for (const char* room : {"runtime", "generator"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
      const std::string extension = entry.path().extension();
      if ((extension != ".cpp" && extension != ".hpp") || entry.path().filename() == "environment.cpp") continue;
      CAPTURE(entry.path());
      CHECK(read_bytes(entry.path()).find("getenv(") == std::string::npos);
      CHECK(read_bytes(entry.path()).find("temp_directory_path(") == std::string::npos);
    }
  }
  CHECK(read_bytes(root / "runtime/base/environment.cpp").find("::secure_getenv(") != std::string::npos);
}
