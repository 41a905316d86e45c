// What a registry has to say without being asked.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/base/log.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using testing::EnvironmentVariable;

TEST_CASE("whatever the environment names and cannot be used is said through the registry's own log, and only there") {
  const EnvironmentVariable bundles("ATTUNE_BUNDLES", "/nowhere/kernels.bundle");
  const EnvironmentVariable tuned("ATTUNE_TUNED", "/nowhere/tuned.yaml");
  const EnvironmentVariable bytes("ATTUNE_CACHE_BYTES", "lots");
  const EnvironmentVariable record("ATTUNE_RECORD", "/nowhere/calls.jsonl");
  const EnvironmentVariable cache("ATTUNE_CACHE_DIR", "/nowhere/cache");
  std::vector<std::string> said;
  RegistryOptions options;
  options.log = [&](attune_log_level level, const std::string& line) {
    CHECK(level == ATTUNE_LOG_WARNING);
    said.push_back(line);
  };
  const Registry registry(std::move(options));
  for (const char* part : {"$ATTUNE_BUNDLES: ", "the tuned table is not used: /nowhere/tuned.yaml",
                           "ATTUNE_CACHE_BYTES is lots", "calls are not recorded: /nowhere/calls.jsonl"}) {
    CAPTURE(part);
    CHECK(std::ranges::count_if(said, [&](const std::string& line) { return line.starts_with(part); }) == 1);
  }
  CHECK(said.size() == 4);
}

TEST_CASE("ATTUNE_LOG says what goes to stderr: off, warning, info; unset, warnings") {
  const auto logged = [](const char* word) {
    const EnvironmentVariable level("ATTUNE_LOG", word);
    return std::pair(is_logged(ATTUNE_LOG_INFO), is_logged(ATTUNE_LOG_WARNING));
  };
  CHECK(logged("") == std::pair(false, true));
  CHECK(logged("off") == std::pair(false, false));
  CHECK(logged("warning") == std::pair(false, true));
  CHECK(logged("info") == std::pair(true, true));
  CHECK(logged("debug") == std::pair(true, true));
}

TEST_CASE("a registry of the emulator reads no tuned tables") {
  const EnvironmentVariable tuned("ATTUNE_TUNED", "/nowhere/tuned.yaml");
  int lines = 0;
  RegistryOptions options;
  options.device = ATTUNE_DEVICE_EMULATOR;
  options.log = [&](attune_log_level, const std::string&) { ++lines; };
  const Registry registry(std::move(options));
  CHECK(lines == 0);
}
