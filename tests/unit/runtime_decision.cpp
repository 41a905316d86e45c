// What explain says, held to what a registry does. The library may or may not carry embedded kernels here.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/decision.hpp"
#include "runtime/emulator/emulator.hpp"
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

TEST_CASE("a decision is what a registry with the default policy would do, on every architecture") {
  for (const Arch& arch : all_archs()) {
    for (const int head_dim : {40, 64, 128, 256}) {
      CAPTURE(arch.name);
      CAPTURE(head_dim);
      const Problem problem = problem_of(head_dim);
      const Device device = device_of(arch);
      const Decision decision = decide(problem, device);
      const ReadyChoice choice = choose_ready(ReadyKernels(), problem, device, ATTUNE_COMPILE_MISSING);
      CHECK(decision.problem == problem);
      CHECK(decision.device.name == device.name);
      CHECK(decision.considered.size() == ReadyKernels().heuristic_variants(Operation::prefill).size());
      CHECK(decision.own.variant == variant_to_generate(problem, device));
      CHECK(decision.serving.origin == (choice.preferred ? Origin::ready : Origin::nvrtc));
      CHECK(decision.serving.variant == (choice.preferred ? choice.kernel->variant : decision.own.variant));
      REQUIRE(decision.served());
      CHECK(decision.refusals.empty());
      CHECK(decision.launch->grid == plan(decision.serving.variant, problem, device).grid);
      CHECK(decision.launch->threads == resources(decision.serving.variant).threads);
      CHECK(decision.launch->shared_bytes == resources(decision.serving.variant).shared_bytes);
    }
  }
}

TEST_CASE("a problem that no kernel can serve has the reasons and no launch") {
  const Decision decision = decide(problem_of(128, beyond_any_grid), device_of(*find_arch("sm_86")));
  CHECK(!decision.served());
  REQUIRE(decision.refusals.size() == 1);
  CHECK(contains(decision.refusals.front(), "seqlen_q is 20000000"));
  CHECK(contains(decision_text(decision, ""), "no kernel can serve it: grid: seqlen_q is 20000000"));
}

TEST_CASE("the text says why a newer family was passed over, on the GPU that runs it alone") {
  Problem problem = problem_of(128);
  problem.seqlen_k = 0;
  const Decision decision = decide(problem, device_of(*find_arch("sm_90")));
  CHECK(decision.serving.variant.family == prefill_sm80);
  CHECK(contains(decision_text(decision, ""), "  not by prefill_sm90: seqlen_k: it is 0"));
  CHECK(!contains(decision_text(decide(problem, device_of(*find_arch("sm_100"))), ""), "not by"));
  CHECK(!contains(decision_text(decide(problem_of(128), device_of(*find_arch("sm_90"))), ""), "not by"));
}

TEST_CASE("in the emulator the host's compiler makes the kernel, whatever is embedded") {
  const Decision decision = decide_emulated(problem_of(64));
  CHECK(decision.device.name == emulator::device().name);
  CHECK(decision.serving.origin == Origin::host_compiler);
  CHECK(origin_text(decision.serving.origin) == "host compiler");
  CHECK(decision.served());
  CHECK(contains(decision_text(decision, ""),
                 "the host's compiler would build at first use " + decision.serving.variant.name()));
}

TEST_CASE("the text says what the policy 'frozen' does where a kernel would be compiled") {
  const Device h200 = find_gpu_device("h200").value();
  const Problem problem = problem_of(64);
  const auto text_with = [&](std::span<const ReadyKernel> kernels) {
    return decision_text(decide(problem, h200, ReadyKernels(kernels), {}), "");
  };
  CHECK(
      contains(text_with({}), "  the compile policy 'frozen' would refuse the call, unless the cache has this kernel"));
  const ReadyKernel own{.variant = choose_own(problem, h200).variant, .name = "own", .fatbin = ""};
  CHECK(!contains(text_with(std::span(&own, 1)), "frozen"));

  // For one that reads keys again and again, calls wait for the compiler though it would serve.
  const DecodeProblem many{.heads_q = 71, .head_dim = 128, .max_seqlen_k = 8192, .page_size = 8192};
  const Variant narrow = families()[decode_sm80].defaults;
  REQUIRE(refusals(narrow, many, h200).empty());
  const ReadyKernel ready{.variant = narrow, .name = "narrow", .fatbin = ""};
  const Served served = serve(ReadyKernels(std::span(&ready, 1)), {}, many, h200);
  CHECK(served.origin == Origin::nvrtc);
  CHECK(served.frozen_text() == "  the compile policy 'frozen' would take the ready " + narrow.name() + "\n");
}

TEST_CASE("the text names problem, device, kernel and launch") {
  Decision decision = decide(problem_of(40), device_of(*find_arch("sm_86")));
  decision.serving.origin = Origin::nvrtc;
  const std::string text = decision_text(decision, "");
  CHECK(text.starts_with("bf16 d40 b2 hq8 hk2 lq1000 lk2000 causal on NVIDIA A40\n"));
  CHECK(contains(text, "NVRTC would build at first use " + decision.serving.variant.name() + "\n"));
  CHECK(contains(text, std::to_string(decision.launch->threads) + " threads a block"));
  if (decision.serving.variant.head_dim > 40) {
    CHECK(contains(text, "head_dim 40 is padded to " + std::to_string(decision.serving.variant.head_dim)));
  }
}

TEST_CASE("the text says which tiles blocks share, where they do, and what memory that takes") {
  const Device device = device_of(*find_arch("sm_90"));
  Problem problem = problem_of(128);
  problem.causal = false;
  problem.batch = 1;
  problem.heads_q = problem.heads_kv = device.multiprocessors + 20;
  problem.seqlen_q = 128;
  Decision decision = decide(problem, device);
  REQUIRE(decision.launch->workspace_bytes > 0);
  const int tiles = device.multiprocessors + 20;
  CHECK(contains(decision_text(decision, ""), fmt::format("blocks share the last {} of {} tiles\n", tiles, tiles)));
  problem.heads_q = problem.heads_kv = device.multiprocessors;
  CHECK(!contains(decision_text(decide(problem, device), ""), "workspace"));
}

TEST_CASE("the text counts what was refused for several reasons, or lists it") {
  Decision decision = decide(problem_of(64), device_of(*find_arch("sm_90")));
  const Variant other = default_variant(prefill_sm80, need_for(Dtype::fp16, 96), 99 << 10);
  decision.considered = {{.variant = decision.serving.variant, .refusals = {}},
                         {.variant = decision.own.variant, .refusals = {"causal: one"}},
                         {.variant = other, .refusals = {"dtype: one", "causal: another"}}};
  const std::string counted = decision_text(decision, "ask for the rest");
  CHECK(contains(counted, decision.serving.variant.name() + "  serves\n"));
  CHECK(contains(counted, "causal: one"));
  CHECK(!contains(counted, other.name()));
  CHECK(contains(counted, "and 1 variant refused for more than one reason (ask for the rest)\n"));
  const std::string listed = decision_text(decision, "");
  CHECK(contains(listed, "dtype: one; causal: another"));
  CHECK(!contains(listed, "refused for more than one reason"));
}
