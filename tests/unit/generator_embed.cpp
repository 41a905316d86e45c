// The files through which the build compiles and embeds kernels.
#include <doctest/doctest.h>

#include "generator/embed.hpp"
#include "generator/manifest.hpp"

namespace {

using namespace attune;

Source source_of(const Variant& variant) { return {variant, variant.name(), "text\n"}; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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

TEST_CASE("the ninja file compiles every kernel with the flags of both compilers") {
  const std::string ninja = kernels_ninja(std::vector{source_of(Variant{})}, "/opt/my $cuda/it's/nvcc");
  CHECK(contains(ninja, "nvcc = '/opt/my $$cuda/it'\\''s/nvcc'\n"));
  CHECK(contains(ninja, "flags = -std=c++20 --compress-mode=size -Werror all-warnings\n"));
  CHECK(contains(ninja,
                 "build prefill_sm80_bf16_d128_r128_c64_w4_s2.fatbin: fatbin "
                 "prefill_sm80_bf16_d128_r128_c64_w4_s2.cu\n  gencode = -gencode "));
}

TEST_CASE("the table and the blobs name the same symbols") {
  Variant variant;
  variant.causal = 1;
  const std::vector sources{source_of(variant)};
  const std::string symbol = "attune_fatbin_prefill_sm80_bf16_d128_r128_c64_w4_s2_causal";
  const std::string table = kernel_table(sources);
  CHECK(contains(table, "extern const char " + symbol + "_begin[];"));
  CHECK(contains(table, ".arch = 0x0"));
  CHECK(contains(table, ".causal = 1, .window = 0"));
  CHECK(contains(
      kernel_blobs(sources),
      symbol + "_begin:\n  .incbin \"prefill_sm80_bf16_d128_r128_c64_w4_s2_causal.fatbin\"\n" + symbol + "_end:\n"));
}

TEST_CASE("without kernels the table is empty and the blobs are a valid file") {
  CHECK(contains(kernel_table({}), "embedded_kernels() { return {}; }"));
  CHECK(contains(kernel_blobs({}), ".note.GNU-stack"));
  CHECK_FALSE(contains(kernel_blobs({}), ".incbin"));
}

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
