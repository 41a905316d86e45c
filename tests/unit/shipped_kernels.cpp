// What holds for every kernel of the shipped specs, on any machine.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>
#include <vector>

#include "generator/collect.hpp"
#include "generator/parallel.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/device.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "tests/harness/shipped_specs.hpp"

namespace attune {
namespace {

const std::filesystem::path root = ATTUNE_SOURCE_DIR;

std::vector<Wanted> shipped() {
  const Result<Collection> collected = collect(testing::shipped_specs());
  REQUIRE(collected.ok());
  return collected.value.wanted;
}

}  // namespace

TEST_CASE(
    "shipped kernels compile with NVRTC, for 8.0 or 9.0 in turn, of both types bf16; none spills or serializes wgmma") {
  std::optional<Compiler> compiler;
  try {
    compiler.emplace();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Result<TemplateFiles> templates = read_templates(root / "templates");
  REQUIRE(templates.ok());
  const std::vector<Wanted> wanted = shipped();
  const Result<std::vector<Source>> sources = emit_all(wanted, templates.value);
  REQUIRE(sources.ok());

  struct Compilation {
    const Source* source;
    int capability;
    ResourceUsage usage{};
  };
  std::vector<Compilation> compilations;
  const auto ships = [&](const Variant& variant) {
    return std::ranges::find(wanted, variant, &Wanted::variant) != wanted.end();
  };
  for (const Source& source : sources.value) {
    Variant twin = source.variant;  // nvcc has compiled both for the library
    twin.dtype = static_cast<int>(Dtype::bf16);
    if (twin != source.variant && ships(twin)) continue;
    // By turns that keep step with no list of a spec.
    const int in_turn = std::popcount(compilations.size()) % 2 == 0 ? 80 : 90;
    compilations.push_back({&source, runs_on(source.variant, in_turn) ? in_turn : 90});
  }
  parallel_for(static_cast<long long>(compilations.size()), 0, [&](long long i) {
    Compilation& one = compilations[static_cast<std::size_t>(i)];
    one.usage = compiler->compile(*one.source, one.capability).usage;
  });
  for (const Compilation& one : compilations) {
    CAPTURE(one.source->name);
    CAPTURE(one.capability);
    CHECK(one.usage.registers > 0);
    // The accumulators of backward_sm80 leave ptxas so few registers that it may keep some words elsewhere.
    const bool is_full = family_of(one.source->variant).name == "backward_sm80";
    CHECK(one.usage.spill_stores + one.usage.spill_loads <= (is_full ? 96 : 0));
    CHECK(one.usage.static_shared_bytes == 0);
    CHECK_FALSE(one.usage.serialized);
  }
}

TEST_CASE("shipped kernels that compute gradients are those written for the GPU, not older ones that run there, too") {
  std::vector<ReadyKernel> kernels;
  for (const Wanted& one : shipped()) kernels.push_back({.variant = one.variant, .name = "kernel", .fatbin = ""});
  const ReadyKernels ready(kernels);
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const bool causal : {false, true}) {
      for (const bool any_order : {false, true}) {
        BackwardProblem problem{.batch = 4,
                                .heads_q = 16,
                                .heads_kv = 16,
                                .seqlen_q = 4096,
                                .seqlen_k = 4096,
                                .head_dim = head_dim,
                                .causal = causal};
        problem.any_order = any_order;
        CAPTURE(problem.text());
        const std::optional<Variant> on_h200 = choose_of_ready(ready, problem, *find_gpu_device("h200"));
        REQUIRE(on_h200);
        CHECK(family_of(*on_h200).name == "backward_sm90");
        const std::optional<Variant> on_a100 = choose_of_ready(ready, problem, *find_gpu_device("a100"));
        REQUIRE(on_a100);
        CHECK(family_of(*on_a100).name == "backward_sm80");
        CHECK(on_h200->deterministic != (any_order ? 1 : 0));
      }
    }
  }
}

}  // namespace attune
