// Kernels in a file beside the program, as a wheel has them.
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "generator/bundle.hpp"
#include "runtime/base/files.hpp"
#include "runtime/bundle/embedded.hpp"

namespace {

namespace fs = std::filesystem;
using namespace attune;

/// A program in `bin` of a folder of its own.
class Installation {
 public:
  Installation() {
    fs::create_directory(folder_.path() / "bin");
    fs::copy_file(ATTUNE_EMBEDDED_FILE_PROBE, folder_.path() / "bin/probe");
  }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_.path() / name, std::ios::binary) << bytes;
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return folder_.path() / name; }

  /// What a shell's command prints, stderr included.
  static std::string printed(const std::string& command) {
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>&1").c_str(), "r"), pclose);
    REQUIRE(pipe != nullptr);
    std::string text;
    std::array<char, 512> piece{};
    while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) text += piece.data();
    return text;
  }

  /// What the program says of itself.
  [[nodiscard]] std::string says() const { return printed(path("bin/probe").string()); }

 private:
  ScratchFolder folder_{"attune-embedded-"};
};

std::string one_kernel() {
  const Variant variant = families()[0].defaults;
  return write_bundle({.kernels = {{variant, variant.name(), "an image"}}, .tables = {}});
}

}  // namespace

TEST_CASE("a program finds its kernels in the file beside it or above it, however it is called") {
  for (const char* place : {"bin/kernels.attune", "kernels.attune"}) {
    CAPTURE(place);
    const Installation installation;
    installation.write(place, one_kernel());
    CHECK(installation.says() == "1 kernels, 0 tables\n");
    const std::string bin = installation.path("bin").string();
    CHECK(Installation::printed("cd " + bin + " && ./probe") == "1 kernels, 0 tables\n");
    CHECK(Installation::printed("cd / && PATH=" + bin + " probe") == "1 kernels, 0 tables\n");
    fs::create_symlink(installation.path("bin/probe"), installation.path("link"));
    CHECK(Installation::printed(installation.path("link").string()) == "1 kernels, 0 tables\n");
  }
}

TEST_CASE("a program whose file of kernels is missing or unreadable says so, and has the tables of its image") {
  const Installation installation;
  const std::string own = "0 kernels, " + std::to_string(embedded_tables().size()) + " tables\n";
  CHECK(installation.says().starts_with("attune: the kernels of this installation are missing: there is no "));
  CHECK(installation.says().ends_with(own));
  installation.write("kernels.attune", "no bundle");
  CHECK(installation.says().starts_with("attune: the kernels of this installation are not used: "));
  CHECK(installation.says().ends_with(own));
}
