// The files through which the build embeds texts, and the manifest of generated sources.
#include <doctest/doctest.h>

#include "generator/embed.hpp"
#include "generator/manifest.hpp"

namespace {

using namespace attune;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("embedded texts keep every byte, in literals of a portable length") {
  const std::string long_text(20000, 'x');
  const std::string table =
      text_table({{"a.cu", long_text}, {"blocks/b.cuh", "\"\\\n)\""}}, "attune::some::files", "runtime/some.hpp");
  CHECK(contains(table, "#include \"runtime/some.hpp\"\n"));
  CHECK(contains(table, "const attune::TemplateFiles& attune::some::files() {"));
  CHECK(contains(table, "all[\"a.cu\"]"));
  CHECK(contains(table, "text += R\"~~~~(" + std::string(8192, 'x') + ")~~~~\";\n"));
  CHECK(contains(table, "text += R\"~~~~(" + std::string(20000 - 2 * 8192, 'x') + ")~~~~\";\n"));
  CHECK(contains(table, "R\"~~~~(\"\\\n)\")~~~~\""));
}

TEST_CASE("the manifest says what every source is for") {
  Variant variant;
  variant.arch = 1;
  const std::string json = manifest_json(std::vector<Wanted>{{variant, "some"}});
  for (const char* part : {"\"name\": \"prefill_sm80_bf16_d128_r128_c64_w4_s2\"",
                           "\"source\": \"prefill_sm80_bf16_d128_r128_c64_w4_s2.cu\"", "\"spec\": \"some\"",
                           "\"template\": \"prefill_sm80\"", "\"sm_80\"", "\"threads\": 128", "\"shared_bytes\": 98304",
                           "\"accumulator_registers\": 192", "\"gqa_ratio\": \"any\""}) {
    CAPTURE(part);
    CHECK(contains(json, part));
  }
  CHECK_FALSE(contains(json, "\"sm_86\""));
}

}  // namespace
