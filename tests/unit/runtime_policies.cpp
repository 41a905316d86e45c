// What the registry compiles when, side by side and ahead, over a driver that is not one (tests/fake_driver).
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <barrier>
#include <functional>
#include <set>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"
#include "runtime/registry/prepare_all.hpp"
#include "tests/unit/ready_set.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;

/// The calls of four small kernels: three of store_kv, one of merge_states.
attune_store_kv_args store_call(api::Rotary rotary) {
  return api::Store{.shape = {.head_dim = 64,
                              .page_size = 16,
                              .pages = 4,
                              .table_width = 4,
                              .rotary = rotary,
                              .rotary_dim = rotary == api::Rotary::none ? 0 : 32,
                              .rotations = rotary == api::Rotary::none ? 0 : 64},
                    .k_new = api::bshd(address(0x1000), 1, 1, 64),
                    .v_new = api::bshd(address(0x2000), 1, 1, 64),
                    .k = api::bshd(address(0x3000), 16, 1, 64),
                    .v = api::bshd(address(0x4000), 16, 1, 64),
                    .seqlens_k = static_cast<const std::int32_t*>(address(0x5000)),
                    .block_table = static_cast<const std::int32_t*>(address(0x6000)),
                    .rotary_cos = rotary == api::Rotary::none ? nullptr : address(0x7000),
                    .rotary_sin = rotary == api::Rotary::none ? nullptr : address(0x8000)}
      .args();
}

attune_merge_states_args merge_call() {
  return api::Merge{.shape = {.head_dim = 64},
                    .o1 = api::bshd(address(0x1000), 1, 1, 64),
                    .o2 = api::bshd(address(0x2000), 1, 1, 64),
                    .o = api::bshd(address(0x3000), 1, 1, 64),
                    .lse1 = static_cast<const float*>(address(0x4000)),
                    .lse2 = static_cast<const float*>(address(0x5000))}
      .args();
}

RegistryOptions without_ready(const Bench& bench, attune_compile_policy policy = ATTUNE_COMPILE_MISSING) {
  RegistryOptions options = bench.options(policy);
  options.ready = ReadyKernels(std::span<const ReadyKernel>());
  return options;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_NOT_COMPILED);
    return error.what();
  }
  FAIL("served");
  return {};
}

}  // namespace

TEST_CASE("without a workspace short sequences are decode's where the kernel that serves them needs none") {
  const Bench bench;
  const Device device = Driver().device(0);
  attune_prefill_args args = prefill_args(128, 4, 1);
  args.batch = 2;
  args.total_q = args.seqlen_q + 1;
  args.cu_seqlens_q = static_cast<const std::int32_t*>(address(0x5000));
  args.seqused_k = static_cast<const std::int32_t*>(address(0x6000));
  args.block_table = static_cast<const std::int32_t*>(address(0x7000));
  args.page_size = 64;
  args.table_width = 8;
  args.pages = 16;
  const Problem problem = check_shapes(args);
  const DecodeProblem part = short_sequences(problem).value();
  const Variant parted = choose_own(part, device).variant;
  REQUIRE(plan(parted, part, device).combines());
  Variant whole = parted;
  whole.B_c = 128;
  REQUIRE_FALSE(plan(whole, part, device).combines());
  for (const Variant& ready : {parted, whole}) {
    testing::FakeCuda& fake = Bench::fake();
    fake.launches = fake.loads = 0;
    const ReadySet set({choose_own(problem, device).variant, ready});
    RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
    options.ready = set.kernels();
    Registry registry(std::move(options));
    registry.run(args, nullptr);
    registry.run(args, nullptr);
    CHECK(fake.launches == (ready == whole ? 4 : 2));
    CHECK(fake.loads == (ready == whole ? 2 : 1));  // nothing for nothing
  }
}

TEST_CASE("a frozen registry names the nearest kernel and every field that differs") {
  const Bench bench;
  Bench::fake().capability = 80;
  const ReadySet ready(
      {prefill_variant(64, true, Dtype::fp16), prefill_variant(64, true), prefill_variant(128, false)});
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.ready = ready.kernels();
  Registry registry(options);
  registry.run(prefill_args(56), nullptr);  // padded
  CHECK(registry.counters().ready_loads == 1);

  attune_prefill_args wider = prefill_args(136);
  wider.softcap = 30;
  const std::string message = refusal_of([&] { registry.run(wider, nullptr); });
  CHECK_MESSAGE(has(message, "the compile policy is ATTUNE_COMPILE_FROZEN"), message);
  CHECK_MESSAGE(has(message, "none of the 3 kernels that are ready serves bf16 d136"), message);
  CHECK_MESSAGE(has(message, "the nearest, " + prefill_variant(64, true).name() + ", differs in head_dim"), message);
  CHECK_MESSAGE(has(message, "softcap: the kernel has false, the problem true"), message);
  CHECK_MESSAGE(has(message, "Fake GPU"), message);
  CHECK(registry.counters().failures == 1);
  CHECK(registry.counters().compiles == 0);
}

TEST_CASE("a frozen registry without any kernel says that, and where else it looked") {
  if (!can_compile()) return;
  const Bench bench;
  Registry registry(without_ready(bench, ATTUNE_COMPILE_FROZEN));
  const std::string message = refusal_of([&] { registry.prepare(merge_call()); });
  CHECK_MESSAGE(has(message, "no kernel that is ready serves merge_states bf16 d64"), message);
  CHECK_MESSAGE(has(message, "is not in the cache (" + bench.folder().string() + ") either"), message);
  CHECK(std::filesystem::is_empty(bench.folder()));
}

TEST_CASE("a frozen registry serves from the disk what another one compiled") {
  if (!can_compile()) return;
  const Bench bench;
  Registry compiling(without_ready(bench));
  compiling.prepare(merge_call());
  CHECK(compiling.counters().compiles == 1);
  CHECK(compiling.counters().disk_loads == 0);
  CHECK(compiling.counters().compile_ms > 0);
  CHECK(compiling.counters().bytes_loaded > 0);

  Registry frozen(without_ready(bench, ATTUNE_COMPILE_FROZEN));
  frozen.run(merge_call(), nullptr);
  CHECK(frozen.counters().disk_loads == 1);
  CHECK(frozen.counters().compiles == 0);
  CHECK(frozen.counters().misses == 1);
  CHECK(frozen.counters().hits == 0);
  frozen.run(merge_call(), nullptr);
  CHECK(frozen.counters().hits == 1);
  CHECK(refusal_of([&] { frozen.prepare(store_call(api::Rotary::none)); }).size() > 0);
}

TEST_CASE("eight threads and four kernels: each is compiled once, and all calls are served") {
  if (!can_compile()) return;
  const Bench bench;
  Registry registry(without_ready(bench));
  constexpr int count = 8;
  constexpr int repeats = 50;
  std::barrier start(count);
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        try {
          for (int repeat = 0; repeat < repeats; ++repeat) {
            const int kernel = (i + repeat) % 4;
            if (kernel < 3) {
              registry.run(store_call(static_cast<api::Rotary>(kernel)), nullptr);
            } else {
              registry.run(merge_call(), nullptr);
            }
          }
        } catch (const Error&) {
          ++failures;
        }
      });
    }
  }
  CHECK(failures == 0);
  const attune_counters counters = registry.counters();
  CHECK(counters.compiles == 4);
  CHECK(counters.hits + counters.misses == count * repeats);
  CHECK(counters.misses >= 4);
  CHECK(Bench::fake().loads == 4);
  CHECK(Bench::fake().launches == count * repeats);
}

TEST_CASE("many calls are prepared ahead, in the caller's context; each is reported once, and all are tried") {
  if (!can_compile()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  const Driver driver;
  driver.make_current(1);  // of this thread alone
  fake.current_device = -1;
  Registry registry(without_ready(bench));
  const attune_store_kv_args stores[] = {store_call(api::Rotary::none), store_call(api::Rotary::interleaved)};
  attune_store_kv_args wrong = store_call(api::Rotary::none);
  wrong.head_dim = 300;
  const attune_merge_states_args merge = merge_call();
  const std::vector<AnyArgs> items{stores[0], wrong, stores[1], merge};
  std::vector<std::size_t> done;
  std::set<std::size_t> seen;
  try {
    prepare_all(registry, items, 3, [&](const PrepareProgress& progress) {
      done.push_back(progress.done);
      seen.insert(progress.item);
      CHECK(progress.total == 4);
      CHECK(progress.seconds >= 0);
      CHECK((progress.status == ATTUNE_OK) == progress.message.empty());
      CHECK(progress.status == (progress.item == 1 ? ATTUNE_INVALID_ARGUMENT : ATTUNE_OK));
      if (progress.item == 3) CHECK(has(progress.name, "merge_states bf16 d64"));
      CHECK(progress.name.empty() == (progress.item == 1));
    });
    FAIL("a wrong item was prepared");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(has(error.what(), "item 1: head_dim is 3"), error.what());
  }
  CHECK(done == std::vector<std::size_t>{1, 2, 3, 4});
  CHECK(seen.size() == 4);
  CHECK(fake.loads == 3);
  CHECK(fake.loaded_for == 1);
  CHECK(fake.warmed_for == 1);
  CHECK(fake.launches == 0);
  registry.run(merge, nullptr);
  CHECK(fake.loads == 3);
}

TEST_CASE("the C++ API prepares many calls, counts and logs") {
  if (!can_compile()) return;
  const Bench bench;
  std::vector<std::string> warnings;
  std::vector<std::string> infos;
  const api::Attention attention(
      {.cache_dir = "/proc/no folder can be made here", .log = [&](api::LogLevel level, const char* line) {
         (level == api::LogLevel::warning ? warnings : infos).emplace_back(line);
       }});
  CHECK(attention.counters().misses == 0);
  const api::Merge call{.shape = {.head_dim = 64},
                        .o1 = api::bshd(address(0x1000), 1, 1, 64),
                        .o2 = api::bshd(address(0x2000), 1, 1, 64),
                        .o = api::bshd(address(0x3000), 1, 1, 64),
                        .lse1 = static_cast<const float*>(address(0x4000)),
                        .lse2 = static_cast<const float*>(address(0x5000))};
  int reports = 0;
  attention.prepare_all({call, call}, 1, [&](const api::Progress& progress) {
    CHECK(progress.struct_size == sizeof(progress));
    CHECK(progress.status == ATTUNE_OK);
    ++reports;
  });
  CHECK(reports == 2);
  CHECK(attention.counters().misses == 1);
  CHECK(attention.counters().hits == 1);
  if (embedded_kernels().empty()) {
    CHECK(attention.counters().compiles == 1);
    REQUIRE(warnings.size() == 1);
    CHECK_MESSAGE(has(warnings[0], "kernels are not kept on disk"), warnings[0]);
    REQUIRE(infos.size() == 1);
    CHECK_MESSAGE(infos[0].starts_with("compiled merge_states_"), infos[0]);
  }
  struct Stop {};
  CHECK_THROWS_AS(attention.prepare_all({call}, 0, [](const api::Progress&) { throw Stop(); }), Stop);
  api::Merge wrong = call;
  wrong.shape.head_dim = 3;
  CHECK_THROWS_AS(attention.prepare_all({call, wrong}), api::Error);
  CHECK_NOTHROW(attention.prepare_all({}));
  CHECK_NOTHROW(attention.finish());
}

#else

TEST_CASE("compile policies over a fake driver") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }

#endif
