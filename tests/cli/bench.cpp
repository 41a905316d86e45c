// attune bench: over the fake driver, what it launches and prints.
#include <doctest/doctest.h>

#include "runtime/cli/machine.hpp"
#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

bool has_nvrtc() {
  const attune::cli::Found<attune::Compiler> compiler = attune::cli::find_compiler();
  if (!compiler) MESSAGE("not tested, no NVRTC here: ", compiler.problem);
  return static_cast<bool>(compiler);
}

}  // namespace

TEST_CASE("bench without a GPU is exit 3") {
  if (attune::cli::find_gpu()) return;
  const ToolResult result = attune_tool({"bench"});
  CHECK(result.exit_code == 3);
  CHECK(contains(result.err, "GPU"));
}

TEST_CASE("bench times every kernel of a spec that serves a decode problem, in bytes a second") {
  if (!has_nvrtc()) return;
  const TemporaryFolder folder;
  const std::string spec =
      folder.file("s.yaml", "template: decode_sm80\nhead_dim: [64, 128]\nB_c: [64, 128]\nB_r: 16\nwarps: 4\n");
  const ToolResult result = attune_tool_on_fake_gpu({"bench", spec, "--decode", "--head-dim", "64", "--heads-q", "8",
                                                     "--heads-kv", "2", "--seqlen-k", "3000", "--json"});
  CHECK(result.exit_code == 0);
  const json results = parsed_json(result.out)["results"];
  REQUIRE(results.size() == 2);  // none of head_dim 128, which pads more
  CHECK(results[0]["variant"] != results[1]["variant"]);
  for (const json& row : results) {
    CHECK(row["problem"] == "decode bf16 d64 b1 hq8 hk2 lq1 lk3000");
    CHECK(row["seconds"].get<double>() == doctest::Approx(1.5e-3));
    CHECK(row["unit"] == "GB/s");
    CHECK(row["speed"].get<double>() == doctest::Approx(2 * 2 * 2 * 3000 * 64 / 1.5e-3 / 1e9));
  }
}

TEST_CASE("bench times prefill in operations a second, and says where no kernel serves") {
  if (!has_nvrtc()) return;
  const TemporaryFolder folder;
  const std::string spec = folder.file("s.yaml", "template: prefill_sm80\nhead_dim: 64\n");
  const ToolResult result =
      attune_tool_on_fake_gpu({"bench", spec, "--head-dim", "64", "--heads-q", "2", "--seqlen-q", "512"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "bf16 d64 b1 hq2 hk2 lq512 lk512"));
  CHECK(contains(result.out, "TFLOP/s"));
  const ToolResult none = attune_tool_on_fake_gpu({"bench", spec, "--decode"});
  CHECK(none.exit_code == 1);
  CHECK(contains(none.err, "no kernel serves any of these problems"));
}

TEST_CASE("bench refuses an unsound problem by naming the field and the value, with a GPU or without") {
  const ToolResult result = attune_tool({"bench", "--decode", "--seqlen-q", "17"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "seqlen_q is 17"));
}
