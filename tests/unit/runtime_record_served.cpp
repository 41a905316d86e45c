// The whole way: a process records its calls, a spec is made of the record, its kernels are built, and the same calls
// then compile nothing.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "attune/attune.hpp"
#include "generator/bundle.hpp"
#include "generator/expand.hpp"
#include "generator/spec_text.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/record/workload.hpp"
#include "runtime/registry/emulated_kernels.hpp"
#include "tests/unit/registry_bench.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;

std::vector<Recorded> read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<std::vector<Recorded>> record = parse_record(text, path.string());
  for (const Diagnostic& problem : record.problems) FAIL_CHECK(problem.text());
  return merged(record.value);
}

/// What the specs of a record ask for, by way of their text.
std::vector<Variant> variants_of_specs(const std::vector<Recorded>& workload, const Device& device) {
  const WorkloadKernels needed = kernels_for(workload, std::span(&device, 1));
  CHECK(needed.unserved.empty());
  std::vector<Variant> result;
  for (const SpecText& made : spec_texts(needed.variants(), {})) {
    const Result<Spec> spec = parse_spec(made.text, made.name + ".yaml");
    REQUIRE(spec.ok());
    const Result<Expansion> expansion = expand(spec.value);
    REQUIRE(expansion.ok());
    result.insert(result.end(), expansion.value.variants.begin(), expansion.value.variants.end());
  }
  return result;
}

/// Memory that nobody follows, for the fake driver; for the emulator memory that is there.
struct Memory {
  std::vector<std::uint16_t> elements = std::vector<std::uint16_t>(1 << 16);
  std::vector<float> floats = std::vector<float>(1 << 16);
  std::vector<std::int32_t> lengths{40, 33};
  std::vector<std::int32_t> slots{3, 70};
};

/// One call of each operation; decode splits, appends and rotates. How many went well, each tried whatever became of
/// the one before.
int call_everything(Registry& registry, Memory& memory) {
  constexpr int head_dim = 16;
  void* const data = memory.elements.data();
  const auto bshd = [&](int seqlen, int heads, std::size_t part) {
    return api::bshd(static_cast<std::uint16_t*>(data) + part * 8192, seqlen, heads, head_dim);
  };
  const api::Prefill prefill{.shape = {.dtype = api::Dtype::fp16,
                                       .batch = 2,
                                       .seqlen_q = 20,
                                       .seqlen_k = 30,
                                       .heads_q = 2,
                                       .heads_kv = 1,
                                       .head_dim = head_dim,
                                       .causal = true},
                             .q = bshd(20, 2, 0),
                             .k = bshd(30, 1, 1),
                             .v = bshd(30, 1, 2),
                             .o = bshd(20, 2, 3)};
  const api::Decode decode{.shape = {.dtype = api::Dtype::fp16,
                                     .batch = 2,
                                     .seqlen_q = 1,
                                     .heads_q = 2,
                                     .heads_kv = 1,
                                     .head_dim = head_dim,
                                     .max_seqlen_k = 64,
                                     .page_size = 64,
                                     .pages = 2,
                                     .splits = 2,
                                     .seqlen_new = 1,
                                     .rotary = api::Rotary::halves,
                                     .rotary_dim = 16,
                                     .rotations = 64},
                           .q = bshd(1, 2, 0),
                           .k = bshd(64, 1, 1),
                           .v = bshd(64, 1, 2),
                           .o = bshd(1, 2, 3),
                           .seqlens_k = memory.lengths.data(),
                           .workspace = memory.floats.data(),
                           .workspace_bytes = memory.floats.size() * sizeof(float),
                           .k_new = bshd(1, 1, 4),
                           .v_new = bshd(1, 1, 5),
                           .rotary_cos = static_cast<std::uint16_t*>(data) + 6 * 8192,
                           .rotary_sin = static_cast<std::uint16_t*>(data) + 7 * 8192};
  const api::Merge merge{
      .shape = {.dtype = api::Dtype::fp16, .batch = 2, .seqlen = 3, .heads = 2, .head_dim = head_dim},
      .o1 = bshd(3, 2, 0),
      .o2 = bshd(3, 2, 1),
      .o = bshd(3, 2, 2),
      .lse1 = memory.floats.data(),
      .lse2 = memory.floats.data() + 64,
      .lse = memory.floats.data() + 128};
  int done = 0;
  const auto attempt = [&](const auto& call) { done += status_of(call) == ATTUNE_OK ? 1 : 0; };
  attempt([&] { registry.run(prefill.args(), nullptr); });
  attempt([&] { registry.run(decode.args(), nullptr); });
  attempt([&] { registry.run(merge.args(), nullptr); });
  return done;
}

}  // namespace

TEST_CASE("calls that fail for want of a kernel are recorded too") {
  const Bench bench;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.record = bench.folder() / "calls.jsonl";
  {
    Registry registry(options);
    Memory memory;
    call_everything(registry, memory);
    call_everything(registry, memory);
  }
  const std::vector<Recorded> met = read_all(options.record);
  REQUIRE(met.size() == 3);
  for (const Recorded& one : met) CHECK(one.calls == 2);
}

TEST_CASE("record, spec, bundle, run: what failed for want of kernels is served, and nothing is compiled") {
  std::optional<Compiler> nvrtc;
  try {
    nvrtc.emplace();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Bench bench;
  Memory memory;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.cache_root.clear();
  options.record = bench.folder() / "calls.jsonl";
  {
    Registry registry(options);
    CHECK(call_everything(registry, memory) < 3);
  }
  const Device device = Driver().device(0);
  const std::vector<Variant> variants = variants_of_specs(read_all(options.record), device);
  CHECK(variants.size() == 5);
  std::vector<std::string> images;
  for (const Variant& variant : variants) images.push_back(nvrtc->compile(generate(variant), device.capability).image);
  std::vector<BundledKernel> kernels;
  for (std::size_t i = 0; i < variants.size(); ++i) kernels.push_back({variants[i], variants[i].name(), images[i]});
  const std::filesystem::path bundle = bench.folder() / "kernels.attune";
  std::ofstream(bundle, std::ios::binary) << write_bundle({.kernels = kernels, .tables = {}});

  options.bundles = {bundle};
  for (const attune_compile_policy policy :
       {ATTUNE_COMPILE_MISSING, ATTUNE_COMPILE_FROZEN, ATTUNE_COMPILE_EXACT, ATTUNE_COMPILE_BACKGROUND}) {
    CAPTURE(policy);
    Bench::fake().reset();
    Bench::fake().current_device = 0;
    options.policy = policy;
    options.cache_root = bench.folder() / "cache";
    Registry registry(options);
    CHECK(call_everything(registry, memory) == 3);
    CHECK(Bench::fake().launches == 5);
    CHECK(Bench::fake().loads == 5);
    const attune_counters counted = registry.counters();
    CHECK(counted.ready_loads == 5);
    CHECK(counted.disk_loads == 0);
    CHECK(counted.compiles == 0);
    CHECK(counted.fallbacks == 0);
    CHECK(counted.pending == 0);
    CHECK(Cache(options.cache_root).list().empty());
  }
}

TEST_CASE("record, spec, build, run: the emulator compiles nothing that was not built for the specs") {
  std::optional<emulator::HostCompiler> compiler;
  try {
    compiler.emplace();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Bench bench;
  Memory memory;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.device = ATTUNE_DEVICE_EMULATOR;
  options.record = bench.folder() / "calls.jsonl";
  options.cache_root = bench.folder() / "cache";
  {
    Registry registry(options);
    CHECK(call_everything(registry, memory) == 0);
  }
  const std::vector<Variant> variants = variants_of_specs(read_all(options.record), emulator::device());
  CHECK(variants.size() == 5);
  const Cache cache(options.cache_root);
  for (const Variant& variant : variants) compile_cached(*compiler, generate(variant), cache);
  CHECK(cache.list().size() == variants.size());

  options.policy = ATTUNE_COMPILE_EXACT;
  {
    Registry registry(options);
    CHECK(call_everything(registry, memory) == 3);
    CHECK(registry.counters().disk_loads == variants.size());
    CHECK(registry.counters().compiles == 0);
  }
  CHECK(cache.list().size() == variants.size());
  for (const Recorded& one : read_all(options.record)) CHECK(one.calls == 2);
}

#endif
