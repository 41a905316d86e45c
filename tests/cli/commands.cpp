// Each subcommand on good input. What depends on the machine (a GPU, NVRTC) is held to the exit code for it.
#include <doctest/doctest.h>

#include "runtime/cli/machine.hpp"
#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

const bool has_gpu = static_cast<bool>(attune::cli::find_gpu());
const bool has_nvrtc = static_cast<bool>(attune::cli::find_compiler());
const bool has_host_compiler = static_cast<bool>(attune::cli::find_host_compiler());
const std::string quickstart = source_file("specs/quickstart.yaml");

}  // namespace

TEST_CASE("generate writes sources and a manifest, and says beforehand what they will cost") {
  const TemporaryFolder folder;
  const std::filesystem::path out = folder.path() / "kernels";
  const ToolResult result = attune_tool({"generate", quickstart, "--out", out.string()});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "2 variants, 0 refused; about "));
  CHECK(contains(result.out, "wrote 2 sources"));
  const json manifest = parsed_json(attune::read_file(out / "manifest.json", 1 << 20).value());
  REQUIRE(manifest["kernels"].size() == 2);
  for (const json& kernel : manifest["kernels"]) {
    const std::filesystem::path source = out / std::string(kernel["source"]);
    CHECK(std::filesystem::file_size(source) > 1000);
  }
  const json report = parsed_json(attune_tool({"generate", quickstart, "--out", out.string(), "--json"}).out);
  CHECK(report["variants"] == 2);
  CHECK(report["estimated_seconds"] > 0);
}

TEST_CASE("generate lists refused combinations with their reasons") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("some.yaml", "template: prefill_sm80\nhead_dim: 64\nB_r: [64, 80]\nwarps: 4\n");
  const ToolResult result = attune_tool({"generate", spec, "--out", (folder.path() / "out").string()});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "1 variant, 1 refused"));
  CHECK(contains(result.out, "refused prefill_sm80_bf16_d64_r80"));
  CHECK(contains(result.out, spec + ":3:"));
}

TEST_CASE("generate packs the heads of one ratio, and says what else would not do") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("speculative.yaml",
                                       "template: prefill_sm90\n"
                                       "B_r: 64\n"
                                       "ping_pong: false\n"
                                       "gqa_ratio: [8, any]\n"
                                       "pack_gqa: true\n"
                                       "causal: [false, true]\n");
  const std::filesystem::path out = folder.path() / "out";
  const ToolResult result = attune_tool({"generate", spec, "--out", out.string()});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "2 variants, 2 refused"));
  CHECK(contains(result.out, "gqa_ratio is any, but pack_gqa packs a power of two from 2 to 64"));
  CHECK(std::filesystem::exists(out / "prefill_sm90_bf16_d128_r64_c128_s2_causal_gqa8_packgqa_nopingpong.cu"));
}

TEST_CASE("generate into a place that cannot be written is exit 2") {
  const TemporaryFolder folder;
  const std::string blocked = folder.file("file", "not a folder");
  const ToolResult result = attune_tool({"generate", quickstart, "--out", blocked + "/out"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, blocked));
}

TEST_CASE("compile prints resources and leaves cubins, with listings sources and PTX as well") {
  const TemporaryFolder folder;
  const ToolResult result =
      attune_tool({"compile", quickstart, "--arch", "sm_86", "--out", folder.path().string(), "--listings", "--json"});
  if (!has_nvrtc) {
    CHECK(result.exit_code == 3);
    CHECK(contains(result.err, "libnvrtc"));
    return;
  }
  CHECK(result.exit_code == 0);
  const json report = parsed_json(result.out);
  REQUIRE(report["kernels"].size() == 2);
  for (const json& kernel : report["kernels"]) {
    CHECK(kernel["registers"] > 0);
    CHECK(kernel["spill_store_bytes"] == 0);
    CHECK(kernel["code_bytes"] > 1000);
    const std::string cubin = std::string(kernel["variant"]) + ".sm_86.cubin";
    CHECK(std::filesystem::exists(folder.path() / cubin));
    for (const char* listing : {".cu", ".sm_86.ptx"}) {
      CHECK(std::filesystem::file_size(folder.path() / (std::string(kernel["variant"]) + listing)) > 10'000);
    }
  }
}

TEST_CASE("run executes every kernel, on the GPU or in the emulator") {
  const TemporaryFolder folder;
  const std::vector<std::string> settings{"ATTUNE_CACHE_DIR=" + folder.path().string()};
  const ToolResult result = attune_tool({"run", quickstart}, settings);
  if (!has_host_compiler && !(has_gpu && has_nvrtc)) {
    CHECK(result.exit_code == (has_nvrtc ? 0 : 3));
    return;
  }
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "registers") == has_nvrtc);
  CHECK(contains(result.err, "no machine code was made") == !has_nvrtc);
  CHECK(contains(result.out, "\nemulator\n") == !(has_gpu && has_nvrtc));
  CHECK(contains(result.out, "agrees"));
  CHECK_FALSE(contains(result.out, "Not run"));
  if (!has_gpu) CHECK(attune_tool({"run", quickstart, "--device", "gpu"}).exit_code == 3);
}

TEST_CASE("run --device none leaves the kernels unchecked and says so") {
  const ToolResult result = attune_tool({"run", quickstart, "--device", "none"});
  CHECK(result.exit_code == (has_nvrtc ? 0 : 3));
  if (!has_nvrtc) return;
  CHECK(contains(result.out, "CPU reference against an independent formula: agrees"));
  CHECK(contains(result.out, "Not run: the kernels themselves"));
}

TEST_CASE("run refuses kernels that it cannot launch before it compiles any") {
  const ToolResult result = attune_tool({"run", source_file("specs/combine.yaml")});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "template combine is none of prefill, decode and the backward pass"));
  CHECK(result.out.empty());
}

TEST_CASE("run without GPU and host compiler says what it lacks") {
  const ToolResult result = attune_tool({"run", quickstart, "--device", "emulator"}, {"CXX=/nowhere/c++"});
  CHECK(result.exit_code == 3);
  CHECK(contains(has_nvrtc ? result.out : result.err, "CXX names /nowhere/c++"));
}

TEST_CASE("run in the emulator gives one verdict a kernel, and its bank conflicts where asked") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  const std::string setting = "ATTUNE_CACHE_DIR=" + folder.path().string();
  const std::string spec = folder.file(
      "two.yaml", "template: prefill_sm80\nhead_dim: 64\nB_r: 64\nB_c: 64\nwarps: 4\nswizzle: [true, false]\n");
  const std::vector<std::string> arguments{"run",       spec, "--device", "emulator", "--seqlen-q", "70",
                                           "--heads-q", "1",  "--seed",   "5",        "--json",     "--bank-conflicts"};
  const ToolResult result = attune_tool(arguments, {setting});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const json report = parsed_json(result.out);
  CHECK(report["device"] == "emulator");
  REQUIRE(report["checks"].size() == 2);
  for (const json& check : report["checks"]) {
    CHECK(check["ok"] == true);
    CHECK(check["problems"] == 1);
  }
  REQUIRE(report["bank_conflicts"].size() == 2);
  for (const json& kernel : report["bank_conflicts"]) {
    const bool swizzled = !contains(kernel["variant"], "noswizzle");
    CAPTURE(kernel["variant"]);
    CHECK(kernel["lines"].empty() == swizzled);
    for (const json& line : kernel["lines"]) {
      CHECK(line["wavefronts"] > line["ideal"]);
      CHECK_FALSE(line["source"].get<std::string>().empty());
    }
  }
  const json cached = parsed_json(attune_tool({"cache", "list", "--json"}, {setting}).out);
  CHECK(cached["entries"].size() == 2);
  for (const json& entry : cached["entries"]) CHECK(entry["arch"] == "emulator");
}

TEST_CASE("run holds a kernel of the backward pass to the reference on the problem whose sizes are given") {
  if (!has_host_compiler) return;
  const TemporaryFolder folder;
  const std::string spec =
      folder.file("backward.yaml", "template: backward_sm80\nhead_dim: 64\nB_r: 32\nB_c: 128\nwarps: 4\n");
  const ToolResult result = attune_tool({"run", spec, "--device", "emulator", "--json", "--heads-q", "4", "--heads-kv",
                                         "2", "--seqlen-q", "90", "--seqlen-k", "150"});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const json checks = parsed_json(result.out)["checks"];
  REQUIRE(checks.size() == 1);
  CHECK(checks[0]["ok"] == true);
  CHECK(checks[0]["error_over_tolerance"] > 0.01);
  CHECK(checks[0]["problems"] == 1);
}

TEST_CASE("list gives one row for each embedded kernel") {
  const json report = parsed_json(attune_tool({"list", "--json"}).out);
  const ToolResult text = attune_tool({"list"});
  CHECK(text.exit_code == 0);
  for (const json& kernel : report["kernels"]) CHECK(contains(text.out, kernel["name"]));
}

TEST_CASE("explain names the variant that would serve, for a GPU that is not here") {
  const ToolResult result = attune_tool({"explain", "--dtype", "bf16", "--head-dim", "72", "--heads-q", "8",
                                         "--heads-kv", "2", "--seqlen-q", "100", "--arch", "sm_86", "--json"});
  CHECK(result.exit_code == 0);
  const json report = parsed_json(result.out);
  CHECK(report["served"] == true);
  CHECK(report["shared_bytes"] <= 99 * 1024);
  CHECK(contains(report["variant"], "bf16"));
  CHECK(contains(attune_tool({"explain", "--head-dim", "72", "--arch", "sm_86"}).out, "threads a block"));
}

TEST_CASE("explain takes the head_dim of V where it is another") {
  const auto explained = [](const char* arch, const char* head_dim_v) {
    return attune_tool({"explain", "--head-dim", "192", "--head-dim-v", head_dim_v, "--arch", arch});
  };
  const ToolResult served = explained("sm_90", "128");
  CHECK(served.exit_code == 0);
  CHECK(contains(served.out, "bf16 d192v128 "));
  CHECK(contains(served.out, "prefill_sm90_bf16_d192_v128_"));
  CHECK_FALSE(contains(served.out, "padded"));
  CHECK(contains(explained("sm_90", "96").out, "head_dim_v 96 is padded to 128 with zeros"));
  const ToolResult refused = explained("sm_80", "128");
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.out, "head_dim_v: prefill_sm80 has no kernels with it, the problem has 128"));
  const ToolResult unsound = explained("sm_90", "300");
  CHECK(unsound.exit_code == 2);
  CHECK(contains(unsound.err, "head_dim_v is 300"));
}

TEST_CASE("explain tells of a ragged batch which kernel computes its sequences of few queries") {
  const auto explained = [](const char* total_q) {
    return attune_tool({"explain", "--gpu", "h200", "--batch", "65", "--heads-q", "32", "--heads-kv", "8", "--seqlen-q",
                        "2048", "--total-q", total_q, "--seqlen-k", "4096", "--page-size", "64", "--json"});
  };
  const json mixed = parsed_json(explained("2112").out);
  CHECK(contains(mixed["problem"], "ragged tq2112"));
  CHECK(contains(mixed["variant"], "prefill_sm90"));
  CHECK(mixed["short_sequences"]["most_queries"] == 4);
  CHECK(contains(mixed["short_sequences"]["variant"], "decode_sm80"));
  CHECK_FALSE(parsed_json(explained("133120").out).contains("short_sequences"));  // as many as there may be
  const ToolResult alone = attune_tool({"explain", "--total-k", "100"});
  CHECK(alone.exit_code == 2);
  CHECK(contains(alone.err, "--total-k requires --total-q"));
}

TEST_CASE("explain tells prefill over pages, and what only decoding has is refused without --decode") {
  const ToolResult paged = attune_tool({"explain", "--seqlen-q", "40", "--seqlen-k", "200", "--page-size", "16"});
  CHECK(paged.exit_code == 0);
  CHECK(contains(paged.out, "_paged"));
  for (const std::vector<std::string>& only : {std::vector<std::string>{"--splits", "4"},
                                               {"--rotary", "halves"},
                                               {"--seqlen-new", "3"},
                                               {"--lengths-on-device"}}) {
    std::vector<std::string> arguments{"explain"};
    arguments.insert(arguments.end(), only.begin(), only.end());
    const ToolResult refused = attune_tool(arguments);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, only.front()));
    CHECK(contains(refused.err, "--decode"));
  }
}

TEST_CASE("explain says which kernels decode, into how many parts the keys fall, and on whose word") {
  const auto explained = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"explain",    "--decode", "--arch",  "sm_90", "--heads-q",  "32",
                                       "--heads-kv", "8",        "--batch", "2",     "--seqlen-k", "4096"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return attune_tool(arguments);
  };
  const ToolResult asked = explained({"--splits", "3"});
  CHECK(asked.exit_code == 0);
  CHECK(contains(asked.out, "decode bf16 d128 b2 hq32 hk8 lq1 lk4096"));
  CHECK(contains(asked.out, "8 tiles for each sequence (8 K/V heads of 4 rows, 16 to a tile); the GPU holds "));
  CHECK(contains(asked.out, "3 parts of each sequence, as asked for"));
  CHECK(contains(asked.out, "merged by "));
  CHECK_FALSE(contains(explained({"--splits", "1"}).out, "merged by "));
  const json few_keys = parsed_json(explained({"--page-size", "64", "--lengths-on-device", "--json"}).out);
  CHECK((few_keys["cluster"] > 1) == (few_keys["source"] == "ready"));  // for clusters kernels ship
  const ToolResult ragged =
      attune_tool({"explain", "--decode", "--arch", "sm_90", "--heads-q", "32", "--heads-kv", "8", "--batch", "2",
                   "--seqlen-k", "8192", "--page-size", "64", "--lengths-on-device"});
  CHECK(contains(ragged.out, "page64"));
  CHECK(contains(ragged.out, "of the whole batch's keys, equally long whatever the sequences' lengths, which are"));
  CHECK(contains(attune_tool({"explain", "--decode", "--arch", "sm_90", "--lengths-on-device"}).out,
                 "parts of each sequence"));  // one sequence has one length
  const ToolResult appends =
      explained({"--seqlen-new", "1", "--rotary", "interleaved", "--softcap", "20", "--head-dim", "72"});
  CHECK(contains(appends.out, "softcap20 new1 interleaved64"));
  CHECK(contains(appends.out, "store_kv_bf16_w4_rotary_interleaved, grid 2 x 1 x 1, which stores the new keys"));
  const json report = parsed_json(explained({"--json"}).out);
  CHECK(report["served"] == true);
  CHECK(report["splits"] > 1);
  CHECK(report["parts"] == 2 * report["splits"].get<int>());
  CHECK(report["grid"][1] == report["splits"]);
  CHECK(report["grid"][2] == 2);
  CHECK((report["workspace_bytes"] > 0) == (report["cluster"] == 1));
  CHECK((report["source"] == "ready") == (report["frozen"]["variant"] == report["variant"]));
  const ToolResult unsound = explained({"--seqlen-q", "17", "--head-dim", "300"});
  CHECK(unsound.exit_code == 2);
  CHECK(contains(unsound.err, "seqlen_q is 17"));
  CHECK(contains(unsound.err, "head_dim is 300"));
}

TEST_CASE("explain refuses an unsound problem by naming the field and the value") {
  const ToolResult result =
      attune_tool({"explain", "--head-dim", "300", "--heads-q", "5", "--heads-kv", "2", "--arch", "sm_90"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "head_dim is 300"));
  CHECK(contains(result.err, "heads_kv is 2"));
}

TEST_CASE("cache lists, verifies and clears the folder it is pointed at") {
  const TemporaryFolder folder;
  const std::string setting = "ATTUNE_CACHE_DIR=" + folder.path().string();
  const json listed = parsed_json(attune_tool({"cache", "list", "--json"}, {setting}).out);
  CHECK(listed["root"] == folder.path().string());
  CHECK(listed["entries"].empty());
  CHECK(attune_tool({"cache", "verify"}, {setting}).exit_code == 0);
  CHECK(contains(attune_tool({"cache", "clear"}, {setting}).out, "removed 0 kernels"));
  CHECK(contains(attune_tool({"cache", "list", "--cache-dir", "/nowhere"}).out, "/nowhere"));
}

TEST_CASE("doctor says for each part whether it is here and what to do") {
  const TemporaryFolder folder;
  const ToolResult result = attune_tool({"doctor", "--json"}, {"ATTUNE_CACHE_DIR=" + folder.path().string()});
  CHECK(result.exit_code == (has_gpu && has_nvrtc ? 0 : 3));
  const json report = parsed_json(result.out);
  CHECK(report["findings"].size() == 7);
  for (const json& finding : report["findings"]) {
    CHECK(finding["remedy"].get<std::string>().empty() == finding["ok"].get<bool>());
  }
}
