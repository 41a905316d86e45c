// What holds for every source of the shipped specs.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "generator/collect.hpp"

namespace {

using namespace attune;

constexpr int most_lines = 999;

TEST_CASE("every shipped prefill source has at most 999 lines") {
  const std::filesystem::path root = ATTUNE_SOURCE_DIR;
  const std::vector<std::filesystem::path> specs{root / "specs/prefill_sm80.yaml", root / "specs/prefill_sm90.yaml",
                                                 root / "specs/quickstart.yaml"};
  const Result<TemplateFiles> templates = read_templates(root / "templates");
  const Result<Collection> collected = collect(specs);
  REQUIRE(templates.ok());
  REQUIRE(collected.ok());
  const Result<std::vector<Source>> sources = emit_all(collected.value.wanted, templates.value);
  REQUIRE(sources.ok());
  for (const Source& source : sources.value) {
    CAPTURE(source.name);
    CHECK(std::ranges::count(source.text, '\n') <= most_lines);
  }
}

}  // namespace
