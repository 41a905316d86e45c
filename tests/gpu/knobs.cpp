// Every knob of the template in both positions, compiled by NVRTC on this machine.
#include <doctest/doctest.h>

#include <functional>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "generator/emit.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/verify.hpp"
#include "tests/gpu/harness.hpp"

namespace attune::gpu_tests {
namespace {

/// Adds a variant with each mask.
void add_variants(std::vector<Variant>& variants, const Variant& base, const std::function<void(Variant&)>& change) {
  for (const int causal : {0, 1}) {
    Variant variant = base;
    variant.causal = causal;
    change(variant);
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    variants.push_back(variant);
  }
}

std::vector<Variant> sm80_variants() {
  std::vector<Variant> variants;
  Variant base;
  base.head_dim = 64;
  base.stages = 1;
  const auto add = [&](const std::function<void(Variant&)>& change) { add_variants(variants, base, change); };
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
  add([](Variant& v) { v.softcap = 1; });
  add([](Variant& v) { v.ragged = 1; });
  add([](Variant& v) { v.paged = 1; });
  add([](Variant& v) { v.paged = v.ragged = 1, v.async_copy = v.eager_load = 0, v.B_c = 48; });
  add([](Variant& v) { v.window = 1, v.ragged = v.softcap = v.causal, v.causal = 0; });
  add([](Variant& v) { v.B_r = 16, v.warps = 1; });
  add([](Variant& v) { v.B_r = 256, v.warps = 8; });
  add([](Variant& v) { v.B_c = 16; });
  add([](Variant& v) { v.B_c = 96; });
  for (int head_dim = 16; head_dim <= 256; head_dim += 48) {
    add([&](Variant& v) { v.head_dim = head_dim, v.B_r = 64; });
  }
  return variants;
}

std::vector<Variant> sm90_variants() {
  std::vector<Variant> variants;
  Variant base = families()[prefill_sm90].defaults;
  base.head_dim = 64;
  base.stages = 1;
  const auto add = [&](const std::function<void(Variant&)>& change) { add_variants(variants, base, change); };
  add([](Variant&) {});
  add([](Variant& v) { v.dtype = static_cast<int>(Dtype::fp16); });
  add([](Variant& v) { v.stages = 2; });
  add([](Variant& v) { v.stages = 4; });
  for (const int head_dim : {64, 96, 128}) {
    add([&](Variant& v) { v.Q_columns_in_registers = v.head_dim = head_dim; });
    add([&](Variant& v) { v.Q_columns_in_registers = 48, v.head_dim = head_dim; });
  }
  add([](Variant& v) { v.Q_columns_in_registers = 80, v.head_dim = 256, v.B_c = 64; });
  add([](Variant& v) { v.Q_columns_in_registers = v.head_dim = 192, v.head_dim_v = 128, v.B_c = 112; });
  for (const int columns : {16, 64}) {
    add([&](Variant& v) { v.ragged = 1, v.Q_columns_in_registers = columns, v.ping_pong = 0, v.tile_list = v.causal; });
    add([&](Variant& v) { v.pack_gqa = 1, v.Q_columns_in_registers = columns, v.gqa_ratio = 4; });
    add([&](Variant& v) { v.Q_columns_in_registers = columns, v.tile_list = v.causal; });
  }
  for (const int page_multiple : {1, 16}) {
    const auto add_paged = [&](const std::function<void(Variant&)>& change) {
      add([&](Variant& v) { v.paged = 1, v.page_multiple = page_multiple, change(v); });
    };
    add_paged([](Variant&) {});
    add_paged([](Variant& v) { v.ragged = 1, v.stages = 2, v.dtype = static_cast<int>(Dtype::fp16); });
    add_paged([](Variant& v) { v.pack_gqa = 1, v.gqa_ratio = 4, v.stages = 3, v.B_c = 96; });
    add_paged([](Variant& v) { v.Q_columns_in_registers = v.head_dim = 192, v.head_dim_v = 128, v.B_c = 112; });
    add_paged([](Variant& v) { v.Q_columns_in_registers = 80, v.head_dim = 256, v.B_c = 64; });
    add_paged([](Variant& v) { v.B_r = 64, v.ping_pong = 0; });
  }
  for (const int keys : {16, 32, 128}) {
    const auto add_residual = [&](const std::function<void(Variant&)>& change) {
      add([&](Variant& v) { v.P_residual_keys = keys, change(v); });
    };
    add_residual([](Variant&) {});
    add_residual([](Variant& v) { v.dtype = static_cast<int>(Dtype::fp16), v.stream_k = 1 - v.causal; });
    add_residual([](Variant& v) { v.Q_columns_in_registers = v.head_dim = 128, v.ping_pong = 0; });
    add_residual([](Variant& v) { v.ragged = 1, v.B_r = 192, v.softcap = v.causal; });
    add_residual([](Variant& v) { v.window = 1 - v.causal, v.pack_gqa = v.causal, v.gqa_ratio = 4; });
  }
  add([](Variant& v) { v.ping_pong = 0; });
  add([](Variant& v) { v.rescale_bound = 8; });
  add([](Variant& v) { v.rescale_bound = 16; });
  add([](Variant& v) { v.gqa_ratio = 4; });
  add([](Variant& v) { v.tile_list = v.causal; });
  add([](Variant& v) { v.softcap = 1; });
  add([](Variant& v) { v.ragged = 1; });
  add([](Variant& v) { v.ragged = 1, v.B_r = 192; });
  add([](Variant& v) { v.window = 1, v.ragged = v.softcap = v.causal, v.causal = 0; });
  for (const int B_r : {64, 128, 192}) {
    add([&](Variant& v) { v.stream_k = 1 - v.causal, v.B_r = B_r, v.ping_pong = B_r > 64 ? 1 : 0; });
    add([&](Variant& v) { v.stream_k = 1 - v.causal, v.B_r = B_r, v.ping_pong = 0, v.B_c = 80; });
  }
  add([](Variant& v) { v.stream_k = 1 - v.causal, v.pack_gqa = 1, v.gqa_ratio = 4; });
  add([](Variant& v) { v.stream_k = 1 - v.causal, v.head_dim = 256, v.B_c = 64; });
  add([](Variant& v) {
    v.stream_k = 1 - v.causal, v.softcap = 1, v.Q_columns_in_registers = 48, v.P_residual_keys = 32;
  });
  for (const int ratio : {2, 4, 8, 16, 32, 64}) {
    add([&](Variant& v) { v.gqa_ratio = ratio, v.pack_gqa = 1; });
    add([&](Variant& v) { v.gqa_ratio = ratio, v.pack_gqa = 1, v.B_r = 192; });
    add([&](Variant& v) { v.gqa_ratio = ratio, v.pack_gqa = 1, v.head_dim = 128, v.B_r = 64, v.ping_pong = 0; });
  }
  add([](Variant& v) { v.B_r = 64, v.ping_pong = 0; });
  add([](Variant& v) { v.B_r = 192; });
  add([](Variant& v) { v.B_r = 192, v.ping_pong = 0; });
  add([](Variant& v) { v.B_r = 192, v.B_c = 80; });
  for (const int B_c : {64, 80, 96, 112, 144, 160, 176, 192, 208}) {
    add([&](Variant& v) { v.B_c = B_c; });
  }
  for (const int B_c : {16, 32, 48}) {
    add([&](Variant& v) { v.B_r = 64, v.B_c = B_c, v.ping_pong = 0; });
  }
  for (const auto& [head_dim, head_dim_v] :
       {std::pair{96, 64}, {128, 64}, {192, 64}, {192, 96}, {192, 128}, {256, 128}, {256, 192}}) {
    add([&](Variant& v) { v.head_dim = head_dim, v.head_dim_v = head_dim_v, v.B_c = 64; });
  }
  for (const int B_c : {80, 96, 112}) {
    add([&](Variant& v) { v.head_dim = 192, v.head_dim_v = 128, v.B_c = B_c, v.stages = 2; });
  }
  add([](Variant& v) { v.head_dim = 192, v.head_dim_v = 128, v.B_r = 192, v.B_c = 80, v.stages = 2; });
  for (const int head_dim : {96, 128, 192, 256}) {
    add([&](Variant& v) { v.head_dim = head_dim, v.B_c = 64; });
    add([&](Variant& v) { v.head_dim = head_dim, v.B_c = 80, v.ping_pong = 0; });
  }
  return variants;
}

std::vector<Variant> decode_variants(bool cluster) {
  std::vector<Variant> variants;
  const auto add = [&](const std::function<void(Variant&)>& change) {
    Variant variant = families()[decode_sm80].defaults;
    variant.cluster = cluster ? 1 : 0;
    change(variant);
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    variants.push_back(variant);
  };
  add([](Variant&) {});
  add([](Variant& v) { v.dtype = static_cast<int>(Dtype::fp16), v.head_dim = 256, v.stages = 1; });
  add([](Variant& v) { v.B_r = 32, v.head_dim = 64; });
  add([](Variant& v) { v.B_c = 256, v.warps = 8, v.stages = 1; });
  add([](Variant& v) { v.B_c = 32, v.warps = 2, v.stages = 4; });
  add([](Variant& v) { v.paged = 1; });
  add([](Variant& v) { v.paged = v.softcap = 1, v.head_dim = 64, v.B_c = 128; });
  add([](Variant& v) { v.rotary = static_cast<int>(Rotary::halves); });
  add([](Variant& v) { v.ragged = 1; });
  add([](Variant& v) { v.ragged = v.paged = 1, v.B_r = 32; });
  add([](Variant& v) { v.gqa_ratio = 4; });
  add([](Variant& v) { v.gqa_ratio = 4, v.one_query = 1; });
  add([](Variant& v) {
    v.gqa_ratio = 20, v.one_query = v.paged = 1, v.page_multiple = 16, v.head_dim = 64, v.B_c = 256, v.warps = 8;
  });
  add([](Variant& v) { v.gqa_ratio = v.one_query = v.ragged = v.interleave = 1; });
  add([](Variant& v) { v.interleave = v.paged = 1, v.B_c = 128, v.warps = 8; });
  add([](Variant& v) { v.split_rows = 1, v.B_r = 80, v.warps = 5, v.B_c = 64; });
  add([](Variant& v) { v.gqa_ratio = 2, v.one_query = v.softcap = 1, v.rotary = static_cast<int>(Rotary::halves); });
  return variants;
}

/// Compiles the variants for this GPU, those that it can run; `sources` is to stay.
std::vector<cli::Built> build(const std::vector<Source>& sources) {
  const cli::Found<Compiler> compiler = cli::find_compiler();
  REQUIRE_MESSAGE(compiler, compiler.problem);
  return cli::build(*compiler, sources, {arch_of(gpu().device)}, 0);
}

std::vector<Source> sources_of(const std::vector<Variant>& variants) {
  std::vector<Source> sources;
  for (const Variant& variant : variants) {
    const Result<Source> source = emit(variant, embedded_templates(), "knobs");
    REQUIRE(source.ok());
    sources.push_back(source.value);
  }
  return sources;
}

/// Holds each of those that this GPU can run to the reference, on small trials and those that `add` adds.
void check_variants(
    const std::vector<Variant>& variants,
    const std::function<void(const Variant&, Trials&)>& add = [](const Variant&, Trials&) {}) {
  const std::vector<Source> sources = sources_of(variants);
  const std::vector<Source> more_sources = cli::companion_sources(sources, gpu().device);
  const std::vector<cli::Built> built = build(sources);
  const std::vector<cli::Built> companions = build(more_sources);
  for (const cli::Built& one : built) {
    CAPTURE(one.source->name);
    REQUIRE_MESSAGE(one.ok(), one.error);
    Trials trials = small_trials(one.source->variant, 5);
    add(one.source->variant, trials);
    const std::vector<const cli::Built*> kernels = cli::with_companions(one, companions, gpu().device);
    REQUIRE(!kernels.empty());
    const cli::Verdict verdict = cli::verify(gpu(), kernels, trials);
    CHECK_MESSAGE(verdict.ok(), (verdict.ok() ? "" : verdict.disagreements.front().what));
  }
  if (built.empty()) MESSAGE("skipped: " << gpu().device.name << " runs no kernels of this family");
}

/// A sequence of which a cluster has eight blocks.
void add_longer(const Variant& variant, Trials& trials) {
  DecodeProblem longer = *trials.front()->problem().get_if<DecodeProblem>();
  longer.max_seqlen_k = 9000;
  longer.page_size = variant.paged != 0 ? longer.page_size : longer.max_seqlen_k;
  longer.table_width = (longer.max_seqlen_k + longer.page_size - 1) / longer.page_size;
  longer.pages = longer.batch * longer.table_width;
  longer.rotations = longer.rotates() ? longer.max_seqlen_k : 0;
  trials.push_back(make_trial(longer, 5));
}

}  // namespace

TEST_CASE("every knob of prefill_sm80 gives right results in either position") { check_variants(sm80_variants()); }

TEST_CASE("FlashAttention-1's loops give right results") {
  std::vector<Variant> variants;
  Variant base = families()[prefill_fa1_sm80].defaults;
  for (const int head_dim : {64, 128}) {
    add_variants(variants, base, [&](Variant& v) { v.head_dim = head_dim; });
    add_variants(variants, base, [&](Variant& v) { v.head_dim = head_dim, v.softcap = 1, v.B_r = 128, v.B_c = 32; });
  }
  check_variants(variants);
}

TEST_CASE("every knob of prefill_sm90 gives right results in either position") { check_variants(sm90_variants()); }

TEST_CASE("every knob of decode_sm80 gives right results without clusters") {
  check_variants(decode_variants(false), add_longer);
}

TEST_CASE("every knob of decode_sm80 gives right results with clusters") {
  check_variants(decode_variants(true), add_longer);
}

}  // namespace attune::gpu_tests
