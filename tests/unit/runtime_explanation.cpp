// What explain says, held to what a registry does. The library may or may not carry embedded kernels here.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/explain.hpp"
#include "runtime/choice/explanation_json.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "tests/harness/needs.hpp"

using namespace attune;

namespace {

Problem problem_of(int head_dim, int seqlen_q = 1000) {
  return {.dtype = Dtype::bf16,
          .batch = 2,
          .heads_q = 8,
          .heads_kv = 2,
          .seqlen_q = seqlen_q,
          .seqlen_k = 2000,
          .head_dim = head_dim,
          .causal = true};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr int beyond_any_grid = 20'000'000;

}  // namespace

TEST_CASE("an architecture of the table and a device of it stand for each other") {
  for (const Arch& arch : all_archs()) {
    CAPTURE(arch.name);
    const Device device = device_of(arch);
    CHECK(device.capability == arch.capability);
    CHECK(device.shared_per_block == arch.shared_per_block);
    CHECK(device.shared_per_sm == arch.shared_per_sm);
    CHECK(device.multiprocessors > 0);
    CHECK(device.l2_bytes > 0);
    CHECK(arch_of(device).name == arch.name);
  }
}

TEST_CASE("GPUs that need not be here go by a word, and an architecture by the first of its own") {
  std::set<std::string> names;
  for (const KnownGpu& gpu : known_gpus()) {
    CAPTURE(gpu.word);
    const Device device = find_gpu_device(gpu.word).value();
    CHECK(names.insert(device.name).second);
    CHECK(device.multiprocessors == gpu.multiprocessors);
    CHECK(device.l2_bytes == static_cast<long long>(gpu.l2_megabytes) << 20);
    CHECK(arch_of(device).capability == gpu.capability);
    CHECK(find_arch(gpu.word) == nullptr);
  }
  CHECK(find_gpu_device(usual_gpu)->name == "NVIDIA H200");
  CHECK(find_gpu_device("sm_90")->name == "NVIDIA H200");
  CHECK(find_gpu_device("sm_80")->multiprocessors == 108);
  CHECK_FALSE(find_gpu_device("h300").has_value());
  CHECK(gpu_words().size() == known_gpus().size() + all_archs().size());
}

TEST_CASE("a GPU newer than the table is an architecture of its own limits") {
  Device device = device_of(all_archs().back());
  device.capability = 999;
  device.shared_per_block = 300 << 10;
  device.shared_per_sm = 301 << 10;
  const Arch arch = arch_of(device);
  CHECK(arch.name == "this GPU");
  CHECK(arch.capability == 999);
  CHECK(arch.shared_per_block == 300 << 10);
  CHECK(arch.shared_per_sm == 301 << 10);
}

TEST_CASE("an explanation is what a registry with the default policy would do, on every architecture") {
  for (const Arch& arch : all_archs()) {
    for (const int head_dim : {40, 64, 128, 256}) {
      CAPTURE(arch.name);
      CAPTURE(head_dim);
      const Problem problem = problem_of(head_dim);
      const Device device = device_of(arch);
      const Explanation explained = explain(problem, device);
      const ReadyChoice choice = choose_ready(ReadyKernels(), problem, device, ATTUNE_COMPILE_MISSING);
      CHECK(explained.problem == problem.text());
      CHECK(explained.device.name == device.name);
      CHECK(explained.considered.size() == ReadyKernels().heuristic_variants(Operation::prefill).size());
      CHECK(explained.own.variant == variant_to_generate(problem, device));
      CHECK(explained.serving.origin == (choice.preferred ? Origin::ready : Origin::nvrtc));
      CHECK(explained.serving.variant == (choice.preferred ? choice.kernel->variant : explained.own.variant));
      REQUIRE(explained.served());
      CHECK(explained.refusals.empty());
      CHECK(explained.launch->grid == plan(explained.serving.variant, problem, device).grid);
      CHECK(explained.launch->threads == resources(explained.serving.variant).threads);
      CHECK(explained.launch->shared_bytes == resources(explained.serving.variant).shared_bytes);
    }
  }
}

TEST_CASE("a problem that no kernel can serve has the reasons and no launch") {
  const Explanation explained = explain(problem_of(128, beyond_any_grid), device_of(*find_arch("sm_86")));
  CHECK(!explained.served());
  REQUIRE(explained.refusals.size() == 1);
  CHECK(contains(explained.refusals.front(), "seqlen_q is 20000000"));
  CHECK(contains(explained.text(""), "no kernel can serve it: grid: seqlen_q is 20000000"));
}

TEST_CASE("the text says why a newer family was passed over, on the GPU that runs it alone") {
  Problem problem = problem_of(128);
  problem.seqlen_k = 0;
  const Explanation explained = explain(problem, device_of(*find_arch("sm_90")));
  CHECK(explained.serving.variant.family == prefill_sm80);
  CHECK(contains(explained.text(""), "  not by prefill_sm90: seqlen_k: it is 0"));
  CHECK(!contains(explain(problem, device_of(*find_arch("sm_100"))).text(""), "not by"));
  CHECK(!contains(explain(problem_of(128), device_of(*find_arch("sm_90"))).text(""), "not by"));
}

TEST_CASE("in the emulator the host's compiler makes the kernel, whatever is embedded") {
  const Explanation explained = explain_emulated(problem_of(64));
  CHECK(explained.device.name == emulator::device().name);
  CHECK(explained.serving.origin == Origin::host_compiler);
  CHECK(origin_text(explained.serving.origin) == "host compiler");
  CHECK(explained.served());
  CHECK(
      contains(explained.text(""), "served by the host's compiler, at first use: " + explained.serving.variant.name()));
}

TEST_CASE("the text says what the policy 'frozen' does where a kernel would be compiled") {
  const Device h200 = find_gpu_device("h200").value();
  const Problem problem = problem_of(64);
  const auto text_with = [&](std::span<const ReadyKernel> kernels) {
    return explain(problem, h200, ReadyKernels(kernels), {}).text("");
  };
  CHECK(contains(text_with({}), "  the compile policy 'frozen' would refuse the call, unless the cache has " +
                                    choose_own(problem, h200).variant.name() + "\n"));
  const ReadyKernel own{.variant = choose_own(problem, h200).variant, .name = "own", .fatbin = ""};
  CHECK(!contains(text_with(std::span(&own, 1)), "frozen"));

  // For one that reads keys again and again, calls wait for the compiler though it would serve.
  const DecodeProblem many{.heads_q = 71, .head_dim = 128, .max_seqlen_k = 8192, .page_size = 8192};
  const Variant narrow = families()[decode_sm80].defaults;
  REQUIRE(refusals(narrow, many, h200).empty());
  const ReadyKernel ready{.variant = narrow, .name = "narrow", .fatbin = ""};
  const Explanation explained = explain(many, h200, ReadyKernels(std::span(&ready, 1)));
  CHECK(explained.serving.origin == Origin::nvrtc);
  CHECK(explained.serving.frozen == narrow);
  // Its parts' kernel is not ready.
  REQUIRE(explained.others.size() == 1);
  CHECK(contains(explained.text(""), "'frozen' would refuse the call, unless the cache has " +
                                         explained.others.front().serving.variant.name() + "\n"));
  CHECK(!contains(explained.text(""), "would take the ready"));
  const std::vector<ReadyKernel> both{
      ready, {.variant = explained.others.front().serving.variant, .name = "combine", .fatbin = ""}};
  CHECK(contains(explain(many, h200, ReadyKernels(both)).text(""),
                 "  the compile policy 'frozen' would take the ready " + narrow.name() + "\n"));
}

TEST_CASE("what no grid holds is refused with a word, and a batch of several launches is explained by its first") {
  const Device h200 = find_gpu_device("h200").value();
  const DecodeProblem huge{
      .batch = 70000, .heads_q = 8, .heads_kv = 8, .max_seqlen_k = 64, .page_size = 64, .splits = 2};
  CHECK(explain(huge, h200).served());
  const DecodeProblem heads{.heads_q = 70000, .heads_kv = 70000, .max_seqlen_k = 4096, .page_size = 4096, .splits = 2};
  const Explanation refused = explain(heads, h200);
  CHECK_FALSE(refused.served());
  REQUIRE(refused.refusals.size() == 1);
  CHECK(contains(refused.refusals.front(), "K/V heads are 70000"));
}

TEST_CASE("the text names problem, device, kernel and launch") {
  Explanation explained = explain(problem_of(40), device_of(*find_arch("sm_86")));
  explained.serving.origin = Origin::nvrtc;
  const std::string text = explained.text("");
  CHECK(text.starts_with("bf16 d40 b2 hq8 hk2 lq1000 lk2000 causal on NVIDIA A40\n"));
  CHECK(contains(text, "served by NVRTC, at first use: " + explained.serving.variant.name() + "\n"));
  CHECK(contains(text, std::to_string(explained.launch->threads) + " threads a block"));
  if (explained.serving.variant.head_dim > 40) {
    CHECK(contains(text, "head_dim 40 is padded to " + std::to_string(explained.serving.variant.head_dim)));
  }
}

TEST_CASE("the text says which tiles blocks share, where they do, and what memory that takes") {
  const Device device = device_of(*find_arch("sm_90"));
  Problem problem = problem_of(128);
  problem.causal = false;
  problem.batch = 1;
  problem.heads_q = problem.heads_kv = device.multiprocessors + 20;
  problem.seqlen_q = 128;
  const Explanation explained = explain(problem, device);
  REQUIRE(explained.workspace_bytes > 0);
  const int tiles = device.multiprocessors + 20;
  CHECK(contains(explained.text(""), fmt::format("blocks share the last {} of {} tiles\n", tiles, tiles)));
  problem.heads_q = problem.heads_kv = device.multiprocessors;
  CHECK(!contains(explain(problem, device).text(""), "workspace"));
}

TEST_CASE("the text counts what was refused for several reasons, or lists it") {
  Explanation explained = explain(problem_of(64), device_of(*find_arch("sm_90")));
  const Variant other = default_variant(prefill_sm80, need_for(Dtype::fp16, 96), 99 << 10);
  explained.considered = {{.variant = explained.serving.variant, .refusals = {}},
                          {.variant = explained.own.variant, .refusals = {"causal: one"}},
                          {.variant = other, .refusals = {"dtype: one", "causal: another"}}};
  const std::string counted = explained.text("ask for the rest");
  CHECK(contains(counted, explained.serving.variant.name() + "  serves\n"));
  CHECK(contains(counted, "causal: one"));
  CHECK(!contains(counted, other.name()));
  CHECK(contains(counted, "and 1 variant refused for more than one reason (ask for the rest)\n"));
  const std::string listed = explained.text("");
  CHECK(contains(listed, "dtype: one; causal: another"));
  CHECK(!contains(listed, "refused for more than one reason"));
}

TEST_CASE("of each operation the launches are named around the main one, and for each what 'frozen' takes") {
  const Device h200 = find_gpu_device("h200").value();
  const auto roles = [](const Explanation& explained) {
    REQUIRE(explained.served());
    std::string text = explained.part;
    for (const OtherLaunch& other : explained.others) {
      CHECK(other.launch.grid.blocks() > 0);
      CHECK(other.launch.threads == resources(other.serving.variant).threads);
      text += fmt::format(" {} {}", other.role, family_of(other.serving.variant).name);
    }
    return text;
  };
  const ReadyKernels none(std::span<const ReadyKernel>{});
  DecodeProblem decode{.batch = 2, .heads_q = 32, .heads_kv = 8, .head_dim = 128, .max_seqlen_k = 4096, .splits = 3};
  decode.seqlen_new = 1;
  decode.rotary = Rotary::halves;
  decode.rotary_dim = 64;
  decode.complete();
  CHECK(roles(explain(decode, h200, none)) == "served store store_kv combine combine");
  CHECK(roles(explain(decode.store(), h200, none)) == "served");
  const auto gradients = [](bool any_order) { return BackwardProblem::of(problem_of(128), any_order); };
  const Device a100 = find_gpu_device("a100").value();
  CHECK(roles(explain(gradients(false), a100, none)) == "dk and dv rows backward_rows last backward_dq_sm80");
  CHECK(roles(explain(gradients(true), h200, none)) == "dk and dv rows backward_rows last backward_convert");

  // One of three kernels is ready.
  const ReadyKernel store{.variant = choose_own(decode.store(), h200).variant, .name = "store", .fatbin = ""};
  const Explanation explained = explain(decode, h200, ReadyKernels(std::span(&store, 1)));
  const std::string text = explained.text("");
  CAPTURE(text);
  CHECK(contains(text, "'frozen' would refuse the call, unless the cache has " + explained.serving.variant.name() +
                           " and " + explained.others.back().serving.variant.name() + "\n"));
  CHECK(contains(text, "  after the ready " + store.variant.name()));
  const auto json = explanation_json(explained);
  CHECK(json["frozen"].dump() == R"({"variant":null,"store":")" + store.variant.name() + R"(","combine":null})");
  CHECK(json["store"] == store.variant.name());
  CHECK(json["combine_grid"].size() == 3);
  for (const char* const key : {"splits", "cluster", "parts", "blocks_at_once", "workspace_bytes"}) {
    CAPTURE(key);
    CHECK(json.contains(key));
  }
}

TEST_CASE("a mask that arrays decide has a launch that tells what it leaves") {
  Problem problem = problem_of(128);
  const char* const documents = "document[b, p] == document[b, k] where document: int32[batch, position]";
  problem.expressions.mask = expression::number_of_text(documents, expression::Use::mask).value();
  const Explanation explained = explain(problem, find_gpu_device("h200").value());
  REQUIRE(explained.others.size() == 1);
  CHECK(explained.others.front().role == "mask_blocks");
  CHECK(contains(explained.text(""), ", which tells what the mask leaves, given that workspace\n"));
}

TEST_CASE("JSON has of a call whether it is served, by what and why, and of short sequences the same") {
  const auto json = explanation_json(explain(problem_of(128, beyond_any_grid), device_of(*find_arch("sm_86"))));
  CHECK(json["served"] == false);
  CHECK(json["refusals"].size() == 1);
  CHECK_FALSE(json.contains("grid"));
  CHECK(json["frozen"].dump() == R"({"variant":null})");

  Problem mixed = problem_of(128, 2048);
  mixed.batch = 65;
  mixed.ragged = true;
  mixed.total_q = 2112;
  mixed.total_k = 65 * 2000;
  const auto both = explanation_json(explain_emulated(mixed));
  CHECK(both["source"] == "host compiler");
  CHECK(both["short_sequences"]["source"] == "host compiler");
  CHECK(both["short_sequences"]["most_queries"] == 4);
  CHECK(both["short_sequences"]["frozen"].dump() == R"({"variant":null,"combine":null})");
}
