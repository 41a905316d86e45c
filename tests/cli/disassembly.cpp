// Counting instructions in what a disassembler prints, and what compile says with and without one.
#include "runtime/cli/disassembly.hpp"

#include <doctest/doctest.h>

#include "runtime/cli/machine.hpp"
#include "tests/cli/tool.hpp"

using namespace attune::cli;
using namespace attune::testing;
using nlohmann::json;

TEST_CASE("instructions are counted by name, predicated ones too, and nothing else on a line") {
  const InstructionCounts counts = count_instructions(
      "        .headerflags    @\"EF_CUDA_SM90\"\n"
      "        /*0040*/                   LDL.64 R2, [R1+0x8] ;                  /* 0x0000000000007b1d */\n"
      "        /*0050*/              @!P0 STL [R1], R5 ;\n"
      "        /*0060*/              @UP0 HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0 ;\n"
      "        /*0070*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24 ;\n"
      "        /*0080*/                   { HMMA.16816.F32 R4, R8, R2, R4 ;\n"
      "        /*0090*/                   LDLX R2 ;\n"
      "        /*00a0*/                   MOV R1, c[0x0][0x28] ;  // not an HMMA\n"
      "LDL\n"
      "        /*00b0*/                   LDL R2, [R1] ;");
  CHECK(counts == InstructionCounts{.HGMMA = 2, .HMMA = 1, .LDL = 2, .STL = 1});
  CHECK(count_instructions("") == InstructionCounts{});
  CHECK(count_instructions("*/") == InstructionCounts{});
  CHECK(count_instructions("/*0000*/ @P0") == InstructionCounts{});
}

TEST_CASE("compile counts tensor-core and local-memory instructions, or says that it cannot") {
  if (!find_compiler()) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  const TemporaryFolder folder;
  const std::string spec = folder.file("some.yaml", "template: prefill_sm90\nhead_dim: 64\nB_c: 64\n");
  const json report = parsed_json(attune_tool({"compile", spec, "--arch", "sm_90", "--json"}).out);
  const json& kernel = report["kernels"].at(0);
  CHECK(kernel["spill_store_bytes"] == 0);
  if (!find_disassembler()) {
    CHECK(contains(report["not_counted"], "nvdisasm"));
    CHECK_FALSE(kernel.contains("instructions"));
    CHECK(contains(attune_tool({"compile", spec, "--arch", "sm_90"}).out, "instructions were not counted: neither"));
    return;
  }
  CHECK(kernel["instructions"]["HGMMA"] > 0);
  CHECK(kernel["instructions"]["HMMA"] == 0);
  CHECK(kernel["instructions"]["LDL"] == 0);
  CHECK(kernel["instructions"]["STL"] == 0);
  CHECK(contains(attune_tool({"compile", spec, "--arch", "sm_90"}).out, "LDL + STL"));
}

TEST_CASE("a spec for one architecture compiles for no other, in words") {
  if (!find_compiler()) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  const TemporaryFolder folder;
  const std::string spec = folder.file("some.yaml", "template: prefill_sm90\n");
  const ToolResult result = attune_tool({"compile", spec, "--arch", "sm_100"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "no variant fits the architectures asked for"));
}
