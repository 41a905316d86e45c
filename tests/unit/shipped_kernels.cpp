// What holds for every kernel of the shipped specs, on any machine.
#include <doctest/doctest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "generator/check.hpp"
#include "generator/collect.hpp"
#include "runtime/compile.hpp"
#include "runtime/error.hpp"
#include "runtime/parallel.hpp"
#include "runtime/plan.hpp"

namespace attune {
namespace {

const std::filesystem::path root = ATTUNE_SOURCE_DIR;

std::vector<Wanted> shipped() {
  const std::vector<std::filesystem::path> specs{root / "specs/prefill_sm80.yaml", root / "specs/quickstart.yaml"};
  Result<std::vector<Wanted>> wanted = collect(specs);
  REQUIRE(wanted.ok());
  return wanted.value;
}

}  // namespace

TEST_CASE("the shipped kernels cover every problem on the smallest supported GPU") {
  std::vector<Variant> variants;
  for (const Wanted& one : shipped()) variants.push_back(one.variant);
  const Arch* small = find_arch("sm_86");
  REQUIRE(small != nullptr);
  const Device device{.name = "sm_86",
                      .capability = small->capability,
                      .multiprocessors = 20,
                      .shared_per_block = small->shared_per_block,
                      .shared_per_sm = small->shared_per_sm,
                      .l2_bytes = 1 << 20};
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const bool causal : {false, true}) {
        const Problem problem{.dtype = dtype, .heads_q = 6, .heads_kv = 2, .head_dim = head_dim, .causal = causal};
        CAPTURE(problem.text());
        CHECK(choose(variants, problem, device).has_value());
      }
    }
  }
}

TEST_CASE("every shipped kernel compiles with NVRTC for 8.0 and 9.0, and none spills") {
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

  std::vector<ResourceUsage> usages(2 * sources.value.size());
  parallel_for(static_cast<long long>(usages.size()), 0, [&](long long i) {
    const auto at = static_cast<std::size_t>(i);
    usages[at] = compiler->compile(sources.value[at / 2], at % 2 == 0 ? 80 : 90).usage;
  });
  for (std::size_t i = 0; i < usages.size(); ++i) {
    CAPTURE(sources.value[i / 2].name);
    CAPTURE(i % 2);  // 0: sm_80, 1: sm_90
    CHECK(usages[i].registers > 0);
    CHECK(usages[i].spill_stores + usages[i].spill_loads == 0);
    CHECK(usages[i].static_shared_bytes == 0);
  }
}

}  // namespace attune
