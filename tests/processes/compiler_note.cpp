// Which NVRTC there is, told from one process to the next.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"
#include "runtime/compiler/compile.hpp"
#include "tests/processes/kernels.hpp"
#include "tests/processes/processes.hpp"

using namespace attune;
using namespace attune::process_tests;
namespace fs = std::filesystem;

namespace {

/// Whether a new process had its kernel without opening libnvrtc.
bool without_nvrtc(const Workplace& place, const std::vector<std::string>& settings = {}) {
  Gate gate;
  const pid_t process = start_worker(place, gate, {"load", place.root().string()}, settings);
  gate.open();
  const int how = wait_for(process);
  CHECK((how == 0 || how == 1));
  return how == 0;
}

nlohmann::json read_note(const fs::path& note) {
  std::ifstream file(note);
  return nlohmann::json::parse(file);
}

}  // namespace

TEST_CASE("a process that finds its kernel on the disk does not open libnvrtc") {
  try {
    const Compiler compiler;
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Workplace place;
  const fs::path note = place.root() / "v1" / ".nvrtc.json";
  CHECK_FALSE(without_nvrtc(place));  // the first compiles
  REQUIRE(fs::exists(note));
  CHECK(without_nvrtc(place));
  const nlohmann::json before = read_note(note);

  SUBCASE("a note that is lost is written again") {
    fs::remove(note);
    CHECK_FALSE(without_nvrtc(place));
    CHECK(read_note(note) == before);
  }
  SUBCASE("half a note is none") {
    fs::resize_file(note, 50);
    CHECK_FALSE(without_nvrtc(place));
    CHECK(read_note(note) == before);
  }
  SUBCASE("a library that is another file by now is looked at") {
    nlohmann::json other = before;
    other["state"] = "1 bytes, 2.000000003";
    std::ofstream(note) << other;
    CHECK_FALSE(without_nvrtc(place));
    CHECK(read_note(note) == before);
  }
  SUBCASE("where libraries are looked for in other places, it is looked for") {
    const std::string elsewhere = "CUDA_PATH=" + place.folder().string();
    CHECK_FALSE(without_nvrtc(place, {elsewhere}));
    CHECK(without_nvrtc(place, {elsewhere}));
  }
  SUBCASE("what others may have written is not believed") {
    REQUIRE(::chmod(note.c_str(), 0666) == 0);
    CHECK_FALSE(without_nvrtc(place));
  }
  SUBCASE("a kernel of another compiler than the noted one is made by the one that is there") {
    nlohmann::json other = before;
    other["identity"] = "12.9+1";
    std::ofstream(note) << other;
    CHECK_FALSE(without_nvrtc(place));
    CHECK(read_note(note) == before);
    CHECK(Cache(place.root()).list().size() == 1);  // found under its own key: nothing was compiled
  }
  CHECK(place.said() == "");
}
