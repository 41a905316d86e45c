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
