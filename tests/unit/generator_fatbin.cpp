// Compiling with nvcc, or with a script in its place: what is compiled again, and what is not.
#include "generator/fatbin.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "generator/collect.hpp"
#include "generator/files.hpp"
#include "runtime/base/files.hpp"

namespace {

using namespace attune;
namespace fs = std::filesystem;

TEST_CASE("a kernel for any GPU carries code for 8.0 and 9.0 and PTX for the others") {
  CHECK(gencode_options(Variant{}) ==
        "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 "
        "-gencode arch=compute_80,code=compute_80");
}

TEST_CASE("a kernel too large for a GPU carries no code for it") {
  Variant variant;
  variant.B_r = 64;
  variant.head_dim = 256;
  variant.stages = 3;  // 229,376 bytes
  CHECK(gencode_options(variant) == "-gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80");
}

TEST_CASE("a kernel for named GPUs carries code for each of them") {
  Variant variant;
  variant.arch = 1U << 1U | 1U << 4U;
  CHECK(gencode_options(variant) == "-gencode arch=compute_86,code=sm_86 -gencode arch=compute_90,code=sm_90");
}

TEST_CASE("a kernel for one architecture carries its machine code and no PTX, which would run nowhere else") {
  Variant variant = families()[prefill_sm90].defaults;
  CHECK(gencode_options(variant) == "-gencode arch=compute_90a,code=sm_90a");
  variant.arch = 1U << 4U;
  CHECK(gencode_options(variant) == "-gencode arch=compute_90a,code=sm_90a");
}

TEST_CASE("variants are narrowed to the GPUs asked for, and those for none of them are named") {
  std::vector<Wanted> wanted{{Variant{}, "a"}, {families()[prefill_sm90].defaults, "a"}};
  CHECK(narrow(wanted, 0).empty());
  CHECK(wanted.front().variant.arch == 0);
  const ArchSet asked = set_of(*find_arch("sm_80")) | set_of(*find_arch("sm_86"));
  CHECK(narrow(wanted, asked) == std::vector{families()[prefill_sm90].defaults.name()});
  REQUIRE(wanted.size() == 1);
  CHECK(wanted.front().variant.arch == asked);
}

/// A folder with a script that does as nvcc does, as far as the build sees, and counts its compilations.
class Workshop {
 public:
  Workshop() { write_compiler("1"); }

  void write_compiler(const std::string& version) const {
    std::ofstream(nvcc()) << "#!/bin/sh\n"
                             "if [ \"$1\" = --version ]; then echo "
                          << version << "; exit; fi\n"
                          << "for word; do case $word in *.cu) in=$word;; esac; last=$out; out=$word; done\n"
                             "echo $in >> ../runs\n"
                             "if grep -q wrong $in; then echo $in: error; exit 1; fi\n"
                             "while [ \"$1\" != -o ]; do shift; done\n"
                             "cp $in $2\n";
    fs::permissions(nvcc(), fs::perms::owner_all);
  }

  [[nodiscard]] Result<Fatbins> build(const std::vector<Source>& sources) const {
    return build_fatbins(sources,
                         {.nvcc = nvcc(), .folder = folder_.path() / "kernels", .say = [](const std::string&) {}});
  }

  [[nodiscard]] std::vector<std::string> fatbins() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path() / "kernels")) {
      if (entry.path().extension() != ".cu") names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  [[nodiscard]] fs::path nvcc() const { return folder_.path() / "nvcc"; }

  ScratchFolder folder_{"attune it's a test-"};
};

Source source_of(int head_dim, const std::string& text) {
  Variant variant;
  variant.head_dim = head_dim;
  return {variant, variant.name(), "// " + variant.name() + "\n" + text};
}

TEST_CASE("only what changed is compiled: a source, the options or the compiler") {
  const Workshop workshop;
  std::vector<Source> sources{source_of(64, "a"), source_of(128, "b"), source_of(256, "c")};
  Result<Fatbins> built = workshop.build(sources);
  REQUIRE(built.ok());
  CHECK(built.value.compiled == 3);
  REQUIRE(built.value.images.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(built.value.images[i] == sources[i].text);
  CHECK(workshop.build(sources).value.compiled == 0);

  sources[1].text += "changed";
  built = workshop.build(sources);
  CHECK(built.value.compiled == 1);
  CHECK(built.value.images[1] == sources[1].text);

  sources[2].variant.arch = set_of(*find_arch("sm_90"));
  CHECK(workshop.build(sources).value.compiled == 1);

  sources.push_back(source_of(32, "d"));
  CHECK(workshop.build(sources).value.compiled == 1);

  workshop.write_compiler("2");
  CHECK(workshop.build(sources).value.compiled == 4);
}

TEST_CASE("the folder keeps nothing of kernels that are not asked for any more") {
  const Workshop workshop;
  std::vector<Source> sources{source_of(64, "a"), source_of(128, "b")};
  REQUIRE(workshop.build(sources).ok());
  CHECK(workshop.fatbins().size() == 2);
  sources.pop_back();
  REQUIRE(workshop.build(sources).ok());
  CHECK(workshop.fatbins().size() == 1);
}

TEST_CASE("what the compiler says of a source is a problem with the file's name, and the others are compiled") {
  const Workshop workshop;
  const Result<Fatbins> built = workshop.build({source_of(64, "wrong"), source_of(128, "b")});
  REQUIRE(built.problems.size() == 1);
  CHECK(built.problems.front().where.file.ends_with("kernels/" + source_of(64, "").name + ".cu"));
  CHECK(built.problems.front().what.find("error") != std::string::npos);
  CHECK(workshop.build({source_of(128, "b")}).value.compiled == 0);
}

}  // namespace
