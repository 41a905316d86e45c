// attune explain with a tuned table: the row that decides, or why none does.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

/// For the GPU that --arch sm_90 stands for; nobody measured it.
const std::string table = R"(gpu: {"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132}
rows:
- {"problem": {"operation": "prefill", "dtype": "bf16", "head_dim": 128, "batch": 2, "heads_q": 16, "heads_kv": 16, "seqlen_q": 4096, "seqlen_k": 4096, "causal": true}, "variant": {"template": "prefill_sm90", "causal": true}, "microseconds": 400, "default_microseconds": 440, "confidence": 0.99, "date": "2026-11-22", "driver": "580.95", "compiler": "NVRTC 13.0"}
- {"problem": {"operation": "decode", "dtype": "bf16", "head_dim": 128, "batch": 8, "heads_q": 32, "heads_kv": 8, "seqlen_q": 1, "seqlen_k": 8192, "equal_lengths": true}, "variant": {"template": "decode_sm80", "B_c": 128}, "microseconds": 40, "default_microseconds": 41, "confidence": 0.9, "date": "2026-11-22", "driver": "580.95", "compiler": "NVRTC 13.0"}
- {"problem": {"operation": "backward", "dtype": "bf16", "head_dim": 128, "batch": 2, "heads_q": 16, "heads_kv": 16, "seqlen_q": 4096, "seqlen_k": 4096, "any_order": true}, "variant": {"template": "backward_sm90", "B_c": 64}, "microseconds": 1000, "default_microseconds": 1100, "confidence": 1, "date": "2026-11-22", "driver": "580.95", "compiler": "NVRTC 13.0"}
)";

}  // namespace

TEST_CASE("explain names the tuned row that decides, its distance and its gain") {
  const TemporaryFolder folder;
  const std::string variable = "ATTUNE_TUNED=" + folder.file("sm_90.yaml", table);
  const std::vector<std::string> near{"explain", "--arch",     "sm_90", "--batch",  "2",       "--head-dim",
                                      "128",     "--seqlen-q", "8192",  "--causal", "--dtype", "bf16"};
  const ToolResult told = attune_tool(near, {variable});
  CHECK(told.exit_code == 0);
  // Where kernels are embedded the row's may not be among them.
  CHECK(contains(told.out, "tuned"));
  CHECK(contains(told.out, "bf16 d128 b2 hq16 hk16 lq4096 lk4096 causal"));
  std::vector<std::string> arguments = near;
  arguments.emplace_back("--json");
  const json report = parsed_json(attune_tool(arguments, {variable}).out);
  CHECK(report["tuned"]["distance"] == doctest::Approx(1.5));
  CHECK(report["tuned"]["variant"] == "prefill_sm90_bf16_d128_r128_c128_s2_causal");
  CHECK(report["tuned"]["default_microseconds"] == 440);
  CHECK(report["tuned"]["used"] == (report["variant"] == report["tuned"]["variant"]));

  const std::vector<std::string> decode{"explain",    "--decode",  "--arch",     "sm_90",      "--batch",
                                        "8",          "--heads-q", "32",         "--heads-kv", "8",
                                        "--seqlen-k", "8192",      "--head-dim", "128",        "--json"};
  CHECK(parsed_json(attune_tool(decode, {variable}).out)["tuned"]["distance"] == 0);
}

TEST_CASE("explain names the launches of gradients, and the tuned row that decides on the middle one") {
  const TemporaryFolder folder;
  const std::string variable = "ATTUNE_TUNED=" + folder.file("sm_90.yaml", table);
  const std::vector<std::string> fixed{"explain",    "--backward", "--arch",     "sm_90", "--batch", "2",
                                       "--head-dim", "128",        "--seqlen-q", "8192",  "--dtype", "bf16"};
  const auto with = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return attune_tool(arguments, {variable});
  };
  const json report = parsed_json(with(fixed, {"--any-order", "--json"}).out);
  CHECK(report["tuned"]["distance"] == doctest::Approx(1.5));
  CHECK(report["tuned"]["variant"] == "backward_sm90_bf16_d128_r64_c64_s2");
  CHECK(report["tuned"]["used"] == (report["variant"] == report["tuned"]["variant"]));
  CHECK(contains(report["rows"].get<std::string>(), "backward_rows_bf16_d128"));
  CHECK(contains(report["last"].get<std::string>(), "backward_convert_bf16_d128"));
  CHECK(report["workspace_bytes"].get<long long>() > 0);

  const ToolResult same_bits = with(fixed, {});
  CHECK(same_bits.exit_code == 0);
  CHECK(contains(same_bits.out, "dk and dv by "));
  CHECK(contains(same_bits.out, "which makes dq of its sums"));
  CHECK(contains(same_bits.out, "untuned: the table has no row of this element type"));
  const ToolResult odd = attune_tool({"explain", "--backward", "--arch", "sm_80", "--head-dim", "70"});
  CHECK(odd.exit_code == 2);
  CHECK(contains(odd.err, "head_dim"));
  const ToolResult older = attune_tool({"explain", "--backward", "--arch", "sm_80", "--head-dim", "128"});
  CHECK(contains(older.out, "which gives dq"));
}

TEST_CASE("explain says why no tuned row decides, and a table that cannot be read") {
  const TemporaryFolder folder;
  const std::string variable = "ATTUNE_TUNED=" + folder.file("sm_90.yaml", table);
  const auto explained = [](const char* arch, const char* seqlen, const std::string& setting) {
    return attune_tool({"explain", "--arch", arch, "--head-dim", "128", "--seqlen-q", seqlen, "--causal"}, {setting});
  };
  CHECK(contains(explained("sm_90", "64", variable).out, "away, limit 3"));
  CHECK(contains(explained("sm_80", "4096", variable).out, "untuned: no tuned table for NVIDIA A100-SXM4-80GB"));
  CHECK(contains(explained("sm_90", "4096", "ATTUNE_TUNED=off").out, "no tuned table for NVIDIA H200"));
  const ToolResult broken = explained("sm_90", "4096", "ATTUNE_TUNED=" + folder.file("bad.yaml", "rows: 1\n"));
  CHECK(broken.exit_code == 0);
  CHECK(contains(broken.err, "bad.yaml:1:1: "));
  CHECK(contains(broken.out, "no tuned table for NVIDIA H200"));
}
