// ATTUNE_COMPILE_BACKGROUND over a driver that is not one (tests/fake_driver), with NVRTC itself: what serves
// meanwhile, what a call costs then, and when the exact kernel takes over.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/ready_set.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;
using Clock = std::chrono::steady_clock;

constexpr int small = 16;  // a head_dim whose kernel compiles fast

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// How often this thread has given up its core to wait for something, a lock for instance.
long times_waited() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// What a registry launches for a call.
void* launched(Registry& registry, const attune_prefill_args& args) {
  testing::FakeCuda& fake = Bench::fake();
  fake.launches = 0;  // the first is kept
  registry.run(args, nullptr);
  return fake.last_launch.kernel;
}

/// A bench on compute capability 8.0 with a padding kernel that is ready, and a registry that compiles in the
/// background.
struct BackgroundBench {
  Bench bench;
  ReadySet ready;
  LogLines lines;
  std::optional<Registry> registry;

  explicit BackgroundBench(const std::vector<Variant>& variants = {prefill_variant(128)}) : ready(variants) {
    Bench::fake().capability = 80;
    RegistryOptions options = bench.options(ATTUNE_COMPILE_BACKGROUND);
    options.ready = ready.kernels();
    options.log = lines.log();
    registry.emplace(std::move(options));
  }
};

}  // namespace

TEST_CASE("the padding kernel serves at once and without a stall until the exact one takes over") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  testing::FakeCuda& fake = Bench::fake();
  const attune_prefill_args padded = prefill_args(small);
  void* const generic = launched(registry, prefill_args(128));
  std::vector<double> alone(1 << 18);  // long enough to meet what interrupts a machine anyway
  for (double& us : alone) {
    const auto start = Clock::now();
    registry.run(prefill_args(128), nullptr);
    us = us_since(start);
  }
  std::ranges::sort(alone);

  fake.launches = 0;
  const auto first = Clock::now();
  registry.run(padded, nullptr);
  const double first_us = us_since(first);
  CHECK(fake.last_launch.kernel == generic);
  CHECK(fake.loads == 1);
  CHECK(registry.counters().fallbacks == 1);
  CHECK(registry.counters().swaps == 0);

  constexpr std::size_t most_calls = 20'000'000;
  std::vector<double> between;
  between.reserve(1 << 20);
  const long long allocated = allocations();
  const long waited = times_waited();
  for (std::size_t i = 0; i < most_calls; ++i) {
    const auto start = Clock::now();
    registry.run(padded, nullptr);
    const double us = us_since(start);
    if (between.size() < between.capacity()) between.push_back(us);
    if (i % 64 == 0 && registry.counters().swaps > 0) break;
  }
  const double swapped_ms = us_since(first) / 1e3;
  CHECK(allocations() == allocated);
  const auto waits = static_cast<std::size_t>(times_waited() - waited);
  const attune_counters counters = settled(registry);
  CHECK(counters.swaps == 1);
  CHECK(counters.compiles == 1);
  CHECK(counters.fallbacks == 1);
  CHECK(counters.failures == 0);
  CHECK(launched(registry, padded) != generic);
  CHECK(launched(registry, prefill_args(128)) == generic);
  CHECK(fake.loads == 2);
  CHECK(fake.unloads == 0);

  std::ranges::sort(between);
  const auto quantile = [](const std::vector<double>& sorted, double q) {
    return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
  };
  MESSAGE("first call " << first_us << " us; then " << between.size() << " calls until the swap at " << swapped_ms
                        << " ms, of which NVRTC took " << counters.compile_ms << " ms");
  for (const double q : {0.5, 0.9, 0.99, 0.999, 1.0}) {
    MESSAGE("quantile " << q << ": alone " << quantile(alone, q) << " us, during the compilation "
                        << quantile(between, q) << " us");
  }
  if (!ATTUNE_SANITIZED) {
    // Whoever waits for the compiler makes few calls. A page may fault in while the compiler maps others.
    CHECK(between.size() > 1000);
    CHECK(waits < between.size() / 1000);
  }
  const std::vector<std::string> infos = bench.lines.of(ATTUNE_LOG_INFO);
  REQUIRE(infos.size() == 2);
  CHECK_MESSAGE(infos[0].starts_with("compiled " + prefill_variant(small).name() + " for "), infos[0]);
  CHECK_MESSAGE(has(infos[1], prefill_variant(small).name() + " takes over from " + prefill_variant(128).name()),
                infos[1]);
  CHECK(bench.lines.of(ATTUNE_LOG_WARNING).empty());
}

TEST_CASE("what serves a call, and what is to take over, can be asked; asking loads nothing") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  const attune_prefill_args args = prefill_args(small);
  CHECK(registry.serving(args).now.empty());
  CHECK(Bench::fake().loads == 0);
  registry.run(args, nullptr);
  const ServingNames first = registry.serving(args);
  if (registry.counters().swaps == 0) {
    CHECK(first.now == prefill_variant(128).name());
    CHECK(first.coming == prefill_variant(small).name());
  }
  REQUIRE(settled(registry).swaps == 1);
  CHECK(registry.serving(args).now == prefill_variant(small).name());
  CHECK(registry.serving(args).coming.empty());
  CHECK(registry.serving(prefill_args(64)).now.empty());
  CHECK(Bench::fake().loads == 2);
}

TEST_CASE("the background loads relaxed, in the context of the call that asked") {
  if (!can_compile()) return;
  BackgroundBench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.current_device = 1;
  bench.registry->run(prefill_args(small), nullptr);
  fake.current_device = -1;
  CHECK(settled(*bench.registry).swaps == 1);
  CHECK(fake.loaded_for == 1);
  CHECK(fake.warmed_for == 1);
  CHECK(fake.unrelaxed_loads == 0);
}

TEST_CASE("what cannot be compiled in the background is logged once, not tried again, and served as before") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  void* const generic = launched(registry, prefill_args(128));
  Bench::fake().fail_load = 2;
  CHECK(launched(registry, prefill_args(small)) == generic);
  attune_counters counters = settled(registry);
  CHECK(counters.failures == 1);
  CHECK(counters.swaps == 0);
  CHECK(launched(registry, prefill_args(small)) == generic);
  CHECK(launched(registry, prefill_args(small, 8, 8)) == generic);  // another problem of the same kernel
  counters = settled(registry);
  CHECK(counters.failures == 1);
  CHECK(counters.compiles == 1);
  CHECK(counters.swaps == 0);
  CHECK(counters.fallbacks == 2);
  const std::vector<std::string> warnings = bench.lines.of(ATTUNE_LOG_WARNING);
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(has(warnings[0], prefill_variant(small).name() + " was not compiled in the background"), warnings[0]);
  CHECK_MESSAGE(has(warnings[0], "CUDA_ERROR_FAKED"), warnings[0]);
}

TEST_CASE("to prepare is to wait for the exact kernel, which is compiled once") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  void* const generic = launched(registry, prefill_args(small));
  registry.prepare(prefill_args(small));
  CHECK(launched(registry, prefill_args(small)) != generic);
  const attune_counters counters = settled(registry);
  CHECK(counters.compiles == 1);
  CHECK(counters.swaps == 1);
  CHECK(Bench::fake().loads == 2);
}

TEST_CASE("a kernel that is loaded already serves where none is ready; else a call waits") {
  if (!can_compile()) return;
  BackgroundBench bench(std::vector<Variant>{});
  Registry& registry = *bench.registry;
  void* const wider = launched(registry, prefill_args(32));
  CHECK(registry.counters().compiles == 1);
  CHECK(registry.counters().fallbacks == 0);
  CHECK(launched(registry, prefill_args(small)) == wider);
  CHECK(registry.counters().fallbacks == 1);
  CHECK(settled(registry).swaps == 1);
  CHECK(launched(registry, prefill_args(small)) != wider);
}

TEST_CASE("a call that a loaded kernel serves does not wait for one that compiles") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  attune_prefill_args unseen = prefill_args(small);
  unseen.dtype = ATTUNE_FP16;  // which nothing ready serves
  std::atomic<bool> compiled = false;
  {
    const std::jthread waiting([&] {
      registry.run(unseen, nullptr);
      compiled = true;
    });
    while (registry.counters().misses == 0) std::this_thread::yield();
    registry.run(prefill_args(128), nullptr);
    registry.run(prefill_args(128, 8, 8), nullptr);
    CHECK_FALSE(compiled);
  }
  CHECK(registry.counters().compiles == 1);
}

TEST_CASE("to stop the background leaves what serves in place; a registry that goes waits for no queue") {
  if (!can_compile()) return;
  BackgroundBench bench;
  Registry& registry = *bench.registry;
  registry.finish();  // nothing is open yet
  for (const int head_dim : {16, 32, 48, 64, 80}) registry.run(prefill_args(head_dim), nullptr);
  registry.finish();
  const attune_counters counters = registry.counters();
  CHECK(counters.pending == 0);
  CHECK(counters.compiles <= 1);
  registry.finish();
  registry.run(prefill_args(96), nullptr);
  CHECK(registry.counters().pending == 0);
  CHECK(registry.counters().compiles == counters.compiles);

  BackgroundBench again;
  for (const int head_dim : {16, 32, 48, 64, 80}) again.registry->run(prefill_args(head_dim), nullptr);
  again.registry.reset();
  CHECK(Bench::fake().unloads == Bench::fake().loads);
}

TEST_CASE("a workspace is large enough for the kernel that takes over, too") {
  if (!can_compile()) return;
  const Variant wide = default_variant(decode_sm80, need_for(Dtype::bf16, 256), 227 * 1024, 16);
  BackgroundBench bench({wide, default_variant(combine, need_for(Dtype::bf16, 256), 227 * 1024)});
  Registry& registry = *bench.registry;
  const api::Decode call{
      .shape = {.heads_q = 8, .heads_kv = 2, .head_dim = small, .max_seqlen_k = 200'000, .page_size = 200'000},
      .q = api::bshd(address(0x1000), 1, 8, small),
      .k = api::bshd(address(0x2000), 200'000, 2, small),
      .v = api::bshd(address(0x3000), 200'000, 2, small),
      .o = api::bshd(address(0x4000), 1, 8, small),
      .workspace = address(0x8000)};
  attune_decode_args args = call.args();
  args.workspace_bytes = registry.workspace_bytes(args);
  CHECK(registry.counters().fallbacks == 1);
  const DecodeProblem problem{.heads_q = 8,
                              .heads_kv = 2,
                              .head_dim = small,
                              .max_seqlen_k = 200'000,
                              .equal_lengths = true,
                              .page_size = 200'000};
  const Device device{.name = "",
                      .capability = 80,
                      .multiprocessors = 132,
                      .shared_per_block = 227 * 1024,
                      .shared_per_sm = 228 * 1024,
                      .l2_bytes = 50LL << 20};
  CHECK(args.workspace_bytes > plan(wide, problem, device).workspace_bytes);
  registry.run(args, nullptr);
  CHECK(settled(registry).swaps >= 1);
  registry.run(args, nullptr);
  CHECK(registry.workspace_bytes(args) == args.workspace_bytes);
}

#else

TEST_CASE("compilation in the background over a fake driver") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }

#endif
