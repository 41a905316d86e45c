// attune pack, and what takes kernels from its bundles. What depends on the machine is held to the exit code for it.
#include <doctest/doctest.h>

#include <fstream>

#include "runtime/cli/machine.hpp"
#include "tests/cli/tool.hpp"

using namespace attune::testing;
using nlohmann::json;

namespace {

const bool has_nvrtc = static_cast<bool>(attune::cli::find_compiler());
const bool has_nvcc = attune::cli::find_cuda_tool("nvcc").has_value();

/// Two kernels that take a compiler a second.
const char* const quick_spec = "template: combine\nhead_dim: [64, 128]\n";

/// A kernel that no shipped spec has.
const char* const own_spec =
    "template: prefill_sm80\nhead_dim: 64\nB_r: 128\nB_c: 64\nstages: 2\ncausal: true\nrescale: always\n";
const char* const own_name = "prefill_sm80_bf16_d64_r128_c64_w4_s2_causal_rescale_always";

}  // namespace

TEST_CASE("pack with NVRTC makes a cubin for each kernel and architecture, and list shows what the bundle holds") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("quick.yaml", quick_spec);
  const std::string bundle = (folder.path() / "some" / "kernels.attune").string();
  const std::vector<std::string> command{"pack",  spec,     "-o",    bundle,   "--compiler",
                                         "nvrtc", "--arch", "sm_80", "--arch", "sm_90"};
  const ToolResult packed = attune_tool(command);
  if (!has_nvrtc) {
    CHECK(packed.exit_code == 3);
    return;
  }
  CHECK(packed.exit_code == 0);
  CHECK(contains(packed.out, "2 variants, 0 refused"));
  CHECK(contains(packed.out, "4 kernels, "));
  CHECK(contains(packed.out, " to " + bundle + " in "));
  CHECK(contains(packed.out, "compiled by NVRTC "));
  const ToolResult listed = attune_tool({"list", "--bundle", bundle});
  CHECK(listed.exit_code == 0);
  CHECK(contains(listed.out, "combine_bf16_d128_w8"));
  const json list = parsed_json(attune_tool({"list", "--bundle", bundle, "--json"}).out);
  REQUIRE(list["kernels"].size() == 4);
  CHECK(list["kernels"][0]["archs"] == json{"sm_80"});
  CHECK(list["kernels"][1]["archs"] == json{"sm_90"});
  CHECK(list["kernels"][1]["bytes"] > 1000);
}

TEST_CASE("pack --tuned puts a table into the bundle, and the kernels that it names") {
  if (!has_nvrtc) return;
  const TemporaryFolder folder;
  const std::string spec = folder.file("quick.yaml", "template: combine\nhead_dim: 64\n");
  const std::string bundle = (folder.path() / "kernels.attune").string();
  const ToolResult packed = attune_tool({"pack", spec, "--tuned", source_file("tests/consumer/tuned.yaml"), "-o",
                                         bundle, "--compiler", "nvrtc", "--arch", "sm_90"});
  CHECK(packed.exit_code == 0);
  CHECK(contains(packed.out, "2 kernels, "));
  CHECK(contains(packed.out, "; tuned: tuned.yaml"));
  const json list = parsed_json(attune_tool({"list", "--bundle", bundle, "--json"}).out);
  CHECK(list["tables"] == json{"tuned.yaml"});
  CHECK(list["kernels"].size() == 2);
  CHECK(attune_tool({"pack", spec, "--tuned", spec, "-o", bundle}).exit_code == 2);
}

TEST_CASE("pack with nvcc makes a fatbin for each kernel, the same bytes each time") {
  const TemporaryFolder folder;
  const std::string spec = folder.file("quick.yaml", "template: combine\nhead_dim: 64\n");
  const auto pack = [&](const std::string& name) {
    const std::string bundle = (folder.path() / name).string();
    return attune_tool({"pack", spec, "-o", bundle, "--compiler", "nvcc", "--arch", "sm_90", "--json"});
  };
  const ToolResult packed = pack("one.attune");
  if (!has_nvcc) {
    CHECK(packed.exit_code == 3);
    CHECK(contains(packed.err, "--compiler nvrtc"));
    return;
  }
  CHECK(packed.exit_code == 0);
  const json report = parsed_json(packed.out);
  REQUIRE(report["kernels"].size() == 1);
  CHECK(report["kernels"][0]["archs"] == json{"sm_90"});
  CHECK(contains(report["compiler"], "nvcc"));
  CHECK(report["bytes"] == std::filesystem::file_size(folder.path() / "one.attune"));
  CHECK(pack("two.attune").exit_code == 0);
  const auto bytes_of = [&](const std::string& name) {
    std::ifstream stream(folder.path() / name, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(stream), {}};
  };
  CHECK(bytes_of("one.attune") == bytes_of("two.attune"));
}

TEST_CASE("a bundle of the environment has the kernel that serves a problem") {
  if (!has_nvrtc) return;
  const TemporaryFolder folder;
  const std::string spec = folder.file("own.yaml", own_spec);
  const std::string bundle = (folder.path() / "kernels.attune").string();
  CHECK(attune_tool({"pack", spec, "-o", bundle, "--compiler", "nvrtc", "--arch", "sm_80"}).exit_code == 0);
  const std::vector<std::string> explain{"explain", "--head-dim", "64", "--causal", "--arch", "sm_80", "--json"};
  const json with = parsed_json(attune_tool(explain, {"ATTUNE_BUNDLES=" + bundle}).out);
  CHECK(with.dump().find(own_name) != std::string::npos);
  CHECK(with["source"] == "ready");
  CHECK(with["frozen"] == json{{"variant", with["variant"]}});
  CHECK(parsed_json(attune_tool(explain).out).dump().find(own_name) == std::string::npos);
}

TEST_CASE("what cannot be packed or listed is exit 2 and nothing is written") {
  const TemporaryFolder folder;
  const std::string bundle = (folder.path() / "kernels.attune").string();
  const std::string hopper = folder.file("hopper.yaml", "template: prefill_sm90\n");
  const ToolResult none = attune_tool({"pack", hopper, "-o", bundle, "--arch", "sm_80"});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "left out, for none of sm_80"));
  CHECK(contains(none.err, "no variant fits"));
  CHECK(attune_tool({"pack", folder.file("bad.yaml", "template: combin\n"), "-o", bundle}).exit_code == 2);
  CHECK(attune_tool({"pack", hopper}).exit_code == 2);
  CHECK(attune_tool({"pack", hopper, "-o", bundle, "--compiler", "clang"}).exit_code == 2);
  CHECK_FALSE(std::filesystem::exists(bundle));
  const ToolResult missing = attune_tool({"list", "--bundle", bundle});
  CHECK(missing.exit_code == 2);
  CHECK(contains(missing.err, bundle + ": the bundle is missing"));
  const ToolResult other = attune_tool({"list", "--bundle", hopper});
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "this is no bundle of kernels"));
}
