// What holds for every kernel of the shipped specs, on any machine.
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "generator/collect.hpp"
#include "runtime/compile.hpp"
#include "runtime/error.hpp"
#include "runtime/parallel.hpp"

namespace attune {
namespace {

const std::filesystem::path root = ATTUNE_SOURCE_DIR;

std::vector<Wanted> shipped() {
  const std::vector<std::filesystem::path> specs{root / "specs/prefill_sm80.yaml", root / "specs/quickstart.yaml"};
  const Result<Collection> collected = collect(specs);
  REQUIRE(collected.ok());
  return collected.value.wanted;
}

}  // namespace

TEST_CASE("every shipped kernel compiles with NVRTC for 8.0 and 9.0, and none spills") {
  std::optional<Compiler> compiler;
  try {
    compiler.emplace();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Result<TemplateFiles> templates = read_templates(root / "templates");
  REQUIRE(templates.ok());
  const std::vector<Wanted> wanted = shipped();
  const Result<std::vector<Source>> sources = emit_all(wanted, templates.value);
  REQUIRE(sources.ok());

  std::vector<ResourceUsage> usages(2 * sources.value.size());
  parallel_for(static_cast<long long>(usages.size()), 0, [&](long long i) {
    const auto at = static_cast<std::size_t>(i);
    usages[at] = compiler->compile(sources.value[at / 2], at % 2 == 0 ? 80 : 90).usage;
  });
  for (std::size_t i = 0; i < usages.size(); ++i) {
    CAPTURE(sources.value[i / 2].name);
    CAPTURE(i % 2);  // 0: sm_80, 1: sm_90
    CHECK(usages[i].registers > 0);
    CHECK(usages[i].spill_stores + usages[i].spill_loads == 0);
    CHECK(usages[i].static_shared_bytes == 0);
  }
}

}  // namespace attune
