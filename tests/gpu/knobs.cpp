// Every knob of the template in both positions, compiled by NVRTC on this machine.
#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "generator/check.hpp"
#include "generator/emit.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/verify.hpp"
#include "runtime/embedded.hpp"
#include "tests/gpu/harness.hpp"

namespace attune::gpu_tests {
namespace {

std::vector<Variant> knob_variants() {
  std::vector<Variant> variants;
  const auto add = [&](const std::function<void(Variant&)>& change) {
    for (const int causal : {0, 1}) {
      Variant variant;
      variant.head_dim = 64;
      variant.stages = 1;
      variant.causal = causal;
      change(variant);
      CAPTURE(variant.name());
      REQUIRE(check(variant).empty());
      variants.push_back(variant);
    }
  };
  add([](Variant&) {});
  add([](Variant& v) { v.async_copy = v.eager_load = 0; });
  add([](Variant& v) { v.eager_load = 0; });
  add([](Variant& v) { v.swizzle = 0; });
  add([](Variant& v) { v.stages = 2; });
  add([](Variant& v) { v.stages = 3, v.B_c = 32; });
  add([](Variant& v) { v.Q_in_registers = 1, v.Q_fragment_tiles = 0; });
  add([](Variant& v) { v.Q_fragment_tiles = 0; });
  add([](Variant& v) { v.K_fragment_tiles = 0; });
  add([](Variant& v) { v.V_fragment_tiles = 0; });
  add([](Variant& v) { v.Q_fragment_tiles = v.K_fragment_tiles = 2, v.V_fragment_tiles = 2; });
  add([](Variant& v) { v.double_buffer = 0; });
  add([](Variant& v) { v.rescale = static_cast<int>(Rescale::always); });
  add([](Variant& v) { v.rescale = static_cast<int>(Rescale::skip_first); });
  add([](Variant& v) { v.gqa_ratio = 4; });
  add([](Variant& v) { v.B_r = 16, v.warps = 1; });
  add([](Variant& v) { v.B_r = 256, v.warps = 8; });
  add([](Variant& v) { v.B_c = 16; });
  add([](Variant& v) { v.B_c = 96; });
  for (int head_dim = 16; head_dim <= 256; head_dim += 48) {
    add([&](Variant& v) { v.head_dim = head_dim, v.B_r = 64; });
  }
  return variants;
}

}  // namespace

TEST_CASE("every knob gives right results in either position") {
  const cli::Found<Compiler> compiler = cli::find_compiler();
  REQUIRE_MESSAGE(compiler, compiler.problem);
  std::vector<Source> sources;
  for (const Variant& variant : knob_variants()) {
    const Result<Source> source = emit(variant, embedded_templates(), "knobs");
    REQUIRE(source.ok());
    sources.push_back(source.value);
  }
  const std::vector<cli::Built> built = cli::build(*compiler, sources, {arch_of(gpu().device)}, 0);
  for (const cli::Built& one : built) {
    CAPTURE(one.source->name);
    REQUIRE_MESSAGE(one.ok(), one.error);
    const cli::Verdict verdict = cli::verify(gpu(), one, cli::small_problems(one.source->variant), 5);
    CHECK_MESSAGE(verdict.ok(), (verdict.ok() ? "" : verdict.disagreements.front().what));
  }
}

}  // namespace attune::gpu_tests
