// `attune run` on kernels of every family: most of it is the emulator's time.
#include <doctest/doctest.h>

#include <array>
#include <fstream>

#include "runtime/cli/machine.hpp"
#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

const bool has_host_compiler = static_cast<bool>(attune::cli::find_host_compiler());

}  // namespace

TEST_CASE("run holds each kernel of the backward pass to the reference, with those that go with it") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  const auto checks_of = [&](const char* text) {
    const std::filesystem::path spec = folder.path() / "backward.yaml";
    std::ofstream(spec) << text;
    const ToolResult result = attune_tool({"run", spec.string(), "--device", "emulator", "--json"});
    CHECK(result.exit_code == 0);
    const json checks = parsed_json(result.out)["checks"];
    for (const json& check : checks) {
      CHECK(check["ok"] == true);
      CHECK(check["error_over_tolerance"] > 0.01);
      CHECK(check["problems"] == 6);
    }
    return checks.size();
  };
  CHECK(checks_of("template: backward_sm80\nhead_dim: 64\nB_r: 32\nB_c: 128\nwarps: 4\ncausal: true\n"
                  "deterministic: [false, true]\n") == 2);
  CHECK(checks_of("template: backward_sm80\nhead_dim: 64\nB_r: 32\nB_c: 128\nwarps: 4\ndropout: true\n") == 1);
  CHECK(checks_of("template: backward_dq_sm80\nhead_dim: 64\nB_r: 64\nwarps: 4\nwindow: true\nsoftcap: true\n"
                  "ragged: [false, true]\n") == 2);
  CHECK(checks_of("template: backward_sm80\nhead_dim: 64\nB_r: 32\nB_c: 128\nwarps: 4\ndeterministic: [false, true]\n"
                  "score: s + slope[h] * (k - p)\nmask: k <= p and doc[b, p] == doc[b, k]\n"
                  "params: {slope: {per: [head], dtype: fp32}, doc: {per: [batch, position], dtype: int32}}\n") == 2);
  CHECK(checks_of("template: backward_dq_sm80\nhead_dim: 64\nB_r: 64\nwarps: 4\nmask: (k + q) % 3 != 0\n") == 1);
  CHECK(checks_of("template: backward_rows\nhead_dim: 64\n") == 1);
  CHECK(checks_of("template: backward_convert\nhead_dim: 64\n") == 1);
}

TEST_CASE("scores that are nearly the lowest number weigh nothing, in every family") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  for (const char* family : {"prefill_sm80", "prefill_sm90", "decode_sm80"}) {
    for (const char* more : {"", "split_rows: true\nwarps: 2\nB_r: 32\n"}) {
      if (*more != '\0' && std::string_view(family) != "decode_sm80") continue;
      CAPTURE(family);
      const std::string spec = folder.file("low.yaml", std::string("template: ") + family + "\nhead_dim: 64\n" + more +
                                                           "score: s + select(k <= max(p, 0), 0.0, -3.4e38)\n");
      const ToolResult result = attune_tool({"run", spec, "--device", "emulator", "--json"});
      CHECK(result.exit_code == 0);
      CHECK_MESSAGE(parsed_json(result.out)["checks"][0]["ok"] == true, result.err);
    }
  }
}

TEST_CASE("a score of -inf is a key that is not seen, in every family, and rows of nothing else have no gradient") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  constexpr std::array<std::array<const char*, 2>, 7> kernels{{{"prefill_sm80", ""},
                                                               {"prefill_sm90", ""},
                                                               {"decode_sm80", ""},
                                                               {"decode_sm80", "split_rows: true\nwarps: 2\nB_r: 32\n"},
                                                               {"backward_sm80", "B_r: 32\nB_c: 128\nwarps: 4\n"},
                                                               {"backward_dq_sm80", "B_r: 64\nwarps: 4\n"},
                                                               {"backward_sm90", ""}}};
  for (const auto& [family, more] : kernels) {
    CAPTURE(family);
    const std::string spec =
        folder.file("hidden.yaml", std::string("template: ") + family + "\nhead_dim: 64\n" + more +
                                       "score: select(k % 3 != 1 and p % 4 != 1 and k >= 70, s, -inf)\n");
    std::vector<std::string> arguments{"run", spec, "--device", "emulator", "--json"};
    // Of several tiles; a decode kernel takes few queries.
    const bool decodes = std::string_view(family) == "decode_sm80";
    for (const char* word : {"--heads-q", "4", "--heads-kv", "2", "--seqlen-k", "150", "--seqlen-q"})
      arguments.emplace_back(word);
    arguments.emplace_back(decodes ? "6" : "140");
    const ToolResult result = attune_tool(arguments);
    CHECK(result.exit_code == 0);
    CHECK_MESSAGE(parsed_json(result.out)["checks"][0]["ok"] == true, result.err);
  }
}

TEST_CASE("run emulates kernels for compute capability 9.0 as those for others") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  const std::filesystem::path spec = folder.path() / "sm90.yaml";
  std::ofstream(spec) << "template: prefill_sm90\nhead_dim: 64\nB_r: 64\nB_c: 64\nping_pong: false\n"
                         "P_residual_keys: 16\ncausal: [false, true]\nragged: [false, true]\n";
  const ToolResult result = attune_tool({"run", spec.string(), "--device", "emulator", "--json"});
  CHECK(result.exit_code == 0);
  const json report = parsed_json(result.out);
  CHECK(report["device"] == "emulator");
  CHECK(report["checks"].size() == 4);
  for (const json& check : report["checks"]) {
    CHECK(check["ok"] == true);
    CHECK(check["problems"] > 5);
  }
}

TEST_CASE("run holds decode kernels to the reference, on small problems or on the one whose sizes are given") {
  const TemporaryFolder folder;
  const std::filesystem::path spec = folder.path() / "decode.yaml";
  std::ofstream(spec) << "template: decode_sm80\ndtype: fp16\nhead_dim: 64\nB_r: 16\nB_c: 64\nwarps: 4\nstages: 2\n"
                         "paged: [false, true]\nsoftcap: true\nrotary: [none, halves]\n";
  const ToolResult small = attune_tool({"run", spec.string(), "--device", "emulator", "--json"});
  CHECK(small.exit_code == 0);
  const json report = parsed_json(small.out);
  for (const json& check : report["checks"]) {
    CHECK(check["ok"] == true);
    CHECK(check["problems"] == 5);
    CHECK(check["error_over_tolerance"] > 0);
  }
  CHECK(report["checks"].size() == 4);
  const ToolResult one = attune_tool({"run", spec.string(), "--device", "emulator", "--heads-q", "4", "--heads-kv", "2",
                                      "--seqlen-k", "100", "--json"});
  CHECK(one.exit_code == 0);
  const json of_one = parsed_json(one.out);
  for (const json& check : of_one["checks"]) CHECK(check["problems"] == 1);
  const ToolResult unsound = attune_tool({"run", spec.string(), "--device", "emulator", "--seqlen-q", "17"});
  CHECK(unsound.exit_code == 2);
  CHECK(contains(unsound.err, "seqlen_q is 17"));
}

TEST_CASE("a problem that no kernel could serve is refused before anything is compiled") {
  const std::string spec = source_file("specs/quickstart.yaml");
  const ToolResult result = attune_tool({"run", spec, "--heads-q", "4", "--heads-kv", "3"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "heads_kv is 3; it must divide heads_q, which is 4"));
  CHECK(result.out.empty());
}

TEST_CASE("run takes a window's width and a soft cap, which no spec says, and a kernel without them does not serve") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  const std::filesystem::path spec = folder.path() / "limits.yaml";
  const auto run = [&](const char* kernel, const std::vector<std::string>& limits) {
    std::ofstream(spec) << kernel;
    std::vector<std::string> arguments{"run", spec.string(), "--device", "emulator", "--json"};
    arguments.insert(arguments.end(), limits.begin(), limits.end());
    return attune_tool(arguments);
  };
  for (const char* limited : {"template: prefill_sm80\nhead_dim: 64\nB_c: 64\nwindow: true\nsoftcap: true\n",
                              "template: decode_sm80\nhead_dim: 64\nsoftcap: true\n"}) {
    const ToolResult result = run(limited, {"--window-left", "40", "--window-right", "0", "--softcap", "5"});
    CHECK(result.exit_code == 0);
    const json check = parsed_json(result.out)["checks"][0];
    CHECK(check["problems"] == 1);
    CHECK(check["error_over_tolerance"] > 0);
    const ToolResult unsound = run(limited, {"--window-left", "-2"});
    CHECK(unsound.exit_code == 2);
    CHECK(contains(unsound.out + unsound.err, "window_left is -2;"));
  }
  for (const char* expressed : {"template: prefill_sm80\nhead_dim: 64\nB_c: 64\nmask: (k + q) % 3 != 0\n",
                                "template: decode_sm80\nhead_dim: 64\nscore: s + 0.5 * h\nsink: true\n"}) {
    const ToolResult result = run(expressed, {"--heads-q", "2", "--seqlen-q", "3", "--seqlen-k", "70"});
    CHECK(result.exit_code == 0);
    CHECK(parsed_json(result.out)["checks"][0]["problems"] == 1);
  }
  const ToolResult unserved =
      run("template: prefill_sm80\nhead_dim: 64\nB_c: 64\n", {"--window-left", "40", "--softcap", "5"});
  CHECK(unserved.exit_code == 1);
  CHECK(contains(unserved.err, "left40"));
  CHECK(contains(unserved.err, "softcap5"));
}
