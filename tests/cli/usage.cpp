// Help, bad usage and bad specs: what a person meets first.
#include <doctest/doctest.h>

#include "tests/cli/tool.hpp"

using namespace attune::testing;

TEST_CASE("help names every subcommand, each with its own help and examples") {
  const ToolResult help = attune_tool({"--help"});
  CHECK(help.exit_code == 0);
  for (const char* name :
       {"generate", "compile", "pack", "run", "list", "explain", "bench", "tune", "spec-from", "cache", "doctor"}) {
    CAPTURE(name);
    CHECK(contains(help.out, name));
    const ToolResult own = attune_tool({name, "--help"});
    CHECK(own.exit_code == 0);
    CHECK(contains(own.out, "--json"));
  }
  CHECK(contains(attune_tool({"--version"}).out, "0.1.0"));
}

TEST_CASE("bad usage is exit 2 and says what is wrong") {
  CHECK(attune_tool({}).exit_code == 2);
  CHECK(contains(attune_tool({}).err, "Subcommands"));
  CHECK(attune_tool({"frobnicate"}).exit_code == 2);
  CHECK(attune_tool({"run"}).exit_code == 2);
  CHECK(attune_tool({"run", "--device", "tpu", source_file("specs/quickstart.yaml")}).exit_code == 2);
  CHECK(attune_tool({"run", "--device", "none", "--bank-conflicts", source_file("specs/quickstart.yaml")}).exit_code ==
        2);
  CHECK(attune_tool({"cache"}).exit_code == 2);
  const ToolResult arch = attune_tool({"compile", source_file("specs/quickstart.yaml"), "--arch", "sm_12"});
  CHECK(arch.exit_code == 2);
  CHECK(contains(arch.err, "unknown architecture 'sm_12'"));
  CHECK(contains(arch.err, "sm_90"));
  for (const char* name : {"90", "9.0", "sm90", "sm_90a"}) {
    CAPTURE(name);
    const ToolResult near = attune_tool({"compile", source_file("specs/quickstart.yaml"), "--arch", name});
    CHECK(near.exit_code == 2);
    CHECK(contains(near.err, "did you mean sm_90?"));
  }
}

TEST_CASE("a bad spec is exit 2, all problems with file and line, nothing written") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("bad.yaml", "template: prefill_sm80\nhead_dmi: 64\ndtype: bf61\n");
  const std::string out = (folder.path() / "out").string();
  for (const std::string command : {"generate", "compile", "run"}) {
    CAPTURE(command);
    std::vector<std::string> arguments{command, spec};
    if (command != "run") arguments.insert(arguments.end(), {"--out", out});
    const ToolResult result = attune_tool(arguments);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, spec + ":2:"));
    CHECK(contains(result.err, "head_dim"));
    CHECK(contains(result.err, spec + ":3:"));
    CHECK(contains(result.err, "bf16"));
    CHECK(result.out.empty());
    CHECK_FALSE(std::filesystem::exists(out));
  }
}

TEST_CASE("the problems of all specs are reported together") {
  const TemporaryFolder folder;
  const std::string first = folder.file("first.yaml", "template: prefil_sm80\n");
  const std::string second = (folder.path() / "missing.yaml").string();
  const ToolResult result = attune_tool({"generate", first, second, "--out", (folder.path() / "out").string()});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "prefill_sm80"));
  CHECK(contains(result.err, "missing.yaml"));
}

TEST_CASE("a path that is not UTF-8 is no reason not to print JSON") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "na\xefve").string();
  const ToolResult result = attune_tool({"generate", source_file("specs/quickstart.yaml"), "--out", out, "--json"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "na\xef\xbf\xbdve"));
}

TEST_CASE("combinations that are refused for one reason are one entry") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("s.yaml",
                                       "template: prefill_sm80\nhead_dim: [64, 128]\nB_r: [80, 128]\n"
                                       "dtype: [fp16, bf16]\n");
  const ToolResult result = attune_tool({"generate", spec, "--out", (folder.path() / "out").string()});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "4 variants, 4 refused"));
  CHECK(contains(result.out, "refused prefill_sm80_fp16_d64_r80_c64_w4_s2 and 3 others:"));
}

TEST_CASE("JSON has no more digits of a number than it is known to") {
  const TemporaryFolder folder;
  const ToolResult result = attune_tool(
      {"generate", source_file("specs/quickstart.yaml"), "--out", (folder.path() / "out").string(), "--json"});
  const std::size_t at = result.out.find("\"estimated_seconds\": ");
  REQUIRE(at != std::string::npos);
  CHECK(result.out.find(',', at) - at <= std::string("\"estimated_seconds\": 0.123456").size());
}

TEST_CASE("doctor tells a cache folder that is unsafe from one that is missing, and names TMPDIR") {
  const TemporaryFolder folder;
  const std::filesystem::path open_to_all = folder.path() / "cache";
  std::filesystem::create_directory(open_to_all);
  std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
  const ToolResult result =
      attune_tool({"doctor"}, {"ATTUNE_CACHE_DIR=" + open_to_all.string(), "TMPDIR=/nonexistent/tmp", "CXX=/bin/true"});
  CHECK(contains(result.out, "cache folder      unusable"));
  CHECK(contains(result.out, "host compiler     unusable"));
  CHECK(contains(result.out, "set TMPDIR to a folder that can be written"));
}
