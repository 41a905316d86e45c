// What a program reads on stdout where a command with --json ends before it has a result.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

/// The error of a command, which is all that stdout has and is not on stderr as well.
json error_of(const std::vector<std::string>& arguments, int exit_code, const std::string& status,
              const std::vector<std::string>& environment = {}) {
  std::string command = "attune";
  for (const std::string& argument : arguments) command += " " + argument;
  CAPTURE(command);
  const ToolResult result = attune_tool(arguments, environment);
  CHECK(result.exit_code == exit_code);
  const json parsed = parsed_json(result.out);
  REQUIRE_MESSAGE(parsed.contains("error"), result.out);
  const json error = parsed["error"];
  CHECK(parsed.size() == 1);
  CHECK(error["status"] == status);
  CHECK(error["exit_code"] == exit_code);
  CHECK_FALSE(error["message"].get<std::string>().empty());
  CHECK_FALSE(error["message"].get<std::string>().starts_with("attune:"));
  CHECK_FALSE(contains(result.err, error["message"]));
  CHECK_FALSE(error["problems"].empty());
  return error;
}

}  // namespace

TEST_CASE("with --json the problems of specs are JSON on stdout, each with its place") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("bad.yaml", "template: prefill_sm80\nhead_dmi: 64\ndtype: bf61\n");
  const std::string out = (folder.path() / "out").string();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"generate", spec, "--out", out},
                                             {"compile", spec},
                                             {"pack", spec, "-o", out},
                                             {"run", spec},
                                             {"tune", spec, "--cases", "gqa", "--dry-run", "--arch", "sm_90"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--json");
    const json error = error_of(arguments, 2, "bad_usage");
    const json problems = error["problems"];
    REQUIRE(problems.size() == 2);
    CHECK(problems[0]["file"] == spec);
    CHECK(problems[0]["line"] == 2);
    CHECK(problems[0]["column"] == 1);
    CHECK(contains(problems[0]["fix"], "head_dim"));
    CHECK(problems[1]["line"] == 3);
    CHECK(contains(error["message"], spec + ":2:1: "));
    CHECK(contains(error["message"], spec + ":3:"));
  }
}

TEST_CASE("with --json a wrong command line is JSON on stdout") {
  const std::string quickstart = source_file("specs/quickstart.yaml");
  CHECK(contains(error_of({"run", quickstart, "--json", "--device", "tpu"}, 2, "bad_usage")["message"], "tpu"));
  error_of({"run", "--json"}, 2, "bad_usage");
  error_of({"frobnicate", "--json"}, 2, "bad_usage");
  error_of({"cache", "--json"}, 2, "bad_usage");
  error_of({"doctor", "--json", "--frobnicate"}, 2, "bad_usage");
  error_of({"cache", "prune", "--bytes", "many", "--json"}, 2, "bad_usage");
  error_of({"tune", "--merge", "a.yaml", "--json"}, 2, "bad_usage");
  error_of({"tune", "--json"}, 2, "bad_usage");
  error_of({"run", quickstart, "--device", "none", "--bank-conflicts", "--json"}, 2, "bad_usage");
  const json unsound =
      error_of({"explain", "--heads-q", "3", "--heads-kv", "2", "--head-dim", "300", "--json"}, 2, "bad_usage");
  CHECK(unsound["problems"].size() == 2);
  CHECK_FALSE(unsound["problems"][0].contains("file"));
}

TEST_CASE("with --json files that cannot be read, and what the machine lacks, are JSON on stdout") {
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "missing").string();
  error_of({"list", "--bundle", missing, "--json"}, 2, "bad_usage");
  CHECK(error_of({"spec-from", missing, "--json"}, 2, "bad_usage")["problems"][0]["file"] == missing);
  error_of({"tune", "--report", missing + ".svg", "--journal", missing, "--json"}, 2, "bad_usage");
  const std::string model = folder.file("model.txt", "no JSON");
  CHECK(error_of({"spec-from", model, "--json"}, 2, "bad_usage")["problems"][0]["file"] == model);
  const std::string file = folder.file("file", "");
  error_of({"generate", source_file("specs/quickstart.yaml"), "--out", file + "/below", "--json"}, 2, "bad_usage");
  error_of({"run", source_file("specs/quickstart.yaml"), "--device", "emulator", "--bank-conflicts", "--json"}, 3,
           "machine_lacks", {"CXX=/nowhere/c++"});
}

TEST_CASE("help that is asked for stays text") {
  const ToolResult help = attune_tool({"run", "--json", "--help"});
  CHECK(help.exit_code == 0);
  CHECK(contains(help.out, "--device"));
}
