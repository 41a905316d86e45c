// The registry over a driver that is not one (tests/fake_driver): what is loaded when, what is launched, and
// what the repeated call costs.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <numbers>
#include <thread>
#include <vector>

#include "attune/attune.hpp"
#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/registry_bench.hpp"

using namespace attune;
namespace fs = std::filesystem;
using namespace attune::registry_tests;

namespace {

attune_prefill_args args_of(int head_dim, int heads_q = 8, int heads_kv = 2) {
  const api::Prefill call{.shape = {.dtype = api::Dtype::bf16,
                                    .batch = 3,
                                    .seqlen_q = 300,
                                    .seqlen_k = 500,
                                    .heads_q = heads_q,
                                    .heads_kv = heads_kv,
                                    .head_dim = head_dim,
                                    .causal = true},
                          .q = api::bshd(address(0x1000), 300, heads_q, head_dim),
                          .k = api::bshd(address(0x2000), 500, heads_kv, head_dim),
                          .v = api::bhsd(address(0x3000), 500, heads_kv, head_dim),
                          .o = api::bshd(address(0x4000), 300, heads_q, head_dim),
                          .lse = static_cast<float*>(address(0x5000)),
                          .softmax_scale = 0.5F};
  return call.args();
}

/// The same for kernels of compute capability 9.0.
bool can_serve_by_tensor_maps() {
  const auto kernels = embedded_kernels();
  return kernels.empty() ? can_serve() : std::ranges::any_of(kernels, [](const ReadyKernel& kernel) {
    return family_of(kernel.variant).tensor_maps;
  });
}

}  // namespace

// Not inlined: the compiler would see malloc and free meet new and delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations();
  if (void* pointer = std::malloc(size == 0 ? 1 : size)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations();
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

TEST_CASE("the driver is resolved through cuGetProcAddress alone and describes its devices") {
  const Bench bench;
  const Driver driver;
  CHECK(driver.version() == "13.0");
  CHECK(driver.device_count() == 2);
  const Device device = driver.device(1);
  CHECK(device.ordinal == 1);
  CHECK(device.name == "Fake GPU");
  CHECK(device.capability == 90);
  CHECK(device.shared_per_block == 227 * 1024);
  CHECK(device.l2_bytes == 50LL << 20);
  Bench::fake().current_device = -1;
  CHECK_FALSE(driver.current_device().has_value());
  driver.make_current(1);
  CHECK(driver.current_device() == 1);
  void* memory = driver.allocate(4);
  int value = 42;
  int back = 0;
  driver.copy_to_device(memory, &value, sizeof(value));
  driver.copy_to_host(&back, memory, sizeof(back));
  driver.free(memory);
  CHECK(back == 42);
  void* event = driver.create_event();
  driver.record(event, nullptr);
  CHECK(driver.elapsed_ms(event, event) == 1.5);
  driver.destroy_event(event);
}

TEST_CASE("no current context is said before anything is loaded") {
  const Bench bench;
  Bench::fake().current_device = -1;
  Registry registry(bench.options());
  CHECK(status_of([&] { registry.run(args_of(128), nullptr); }) == ATTUNE_NO_DEVICE);
  CHECK(Bench::fake().loads == 0);
}

TEST_CASE("a device that is too old is refused with its name") {
  const Bench bench;
  Bench::fake().capability = 75;
  Registry registry(bench.options());
  try {
    registry.prepare(args_of(128));
    FAIL("served");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_UNSUPPORTED);
    CHECK(std::string(error.what()).find("7.5") != std::string::npos);
    CHECK(std::string(error.what()).find("Fake GPU") != std::string::npos);
  }
}

TEST_CASE("a frozen registry compiles nothing and leaves the disk alone") {
  const Bench bench;
  Bench::fake().refuse_fatbins = true;
  Registry registry(bench.options(ATTUNE_COMPILE_FROZEN));
  CHECK(status_of([&] { registry.prepare(args_of(128)); }) == ATTUNE_NOT_COMPILED);
  CHECK(fs::is_empty(bench.folder()));
}

TEST_CASE("a captured call with dropout has seed and offset in device memory") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  attune_prefill_args args = args_of(128);
  args.dropout = {.p = 0.5F, .seed = 1, .offset = 0, .state = nullptr};
  registry.run(args, nullptr);
  Bench::fake().launches = 0;
  Bench::fake().capturing = true;
  try {
    registry.run(args, nullptr);
    FAIL("it was captured");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    CHECK(std::string(error.what()).starts_with("dropout.state is null, but the stream is being captured"));
  }
  CHECK(Bench::fake().launches == 0);
  args.dropout.state = static_cast<const std::int64_t*>(address(0x6000));
  registry.run(args, nullptr);
  CHECK(Bench::fake().launches == 1);
}

TEST_CASE("prepare loads once, relaxed; prefill launches what the plan says") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  {
    Registry registry(bench.options());
    registry.prepare(args_of(128));
    CHECK(fake.loads == 1);
    CHECK(fake.unrelaxed_loads == 0);
    CHECK(capture_mode() == 0);
    CHECK(fake.warmed >= 1);
    CHECK(fake.launches == 0);
    CHECK(fake.loaded_for == 0);

    attune_prefill_args args = args_of(128);
    args.q.stride_batch = 800 * 1024;
    registry.run(args, address(0x77));
    CHECK(fake.loads == 1);
    CHECK(fake.launches == 1);
    const auto& launch = fake.last_launch;
    CHECK(launch.stream == address(0x77));
    CHECK(static_cast<int>(launch.shared_bytes) == fake.shared_limit);
    CHECK(launch.block % 32 == 0);
    CHECK(launch.grid == Grid{24, launch.grid.y, 1});
    CHECK(launch.grid.y >= 300 / 256);
    CHECK(launch.params.q.data == address(0x1000));
    CHECK(launch.params.q.stride_batch == 800 * 1024);
    CHECK(launch.params.q.stride_seq == 1024);
    CHECK(launch.params.q.stride_head == 128);
    CHECK(launch.params.k.stride_seq == 256);
    CHECK(launch.params.v.stride_seq == 128);
    CHECK(launch.params.v.stride_head == 500 * 128);
    CHECK(launch.params.o.data == address(0x4000));
    CHECK(launch.params.lse == address(0x5000));
    CHECK(launch.params.scale_log2 == doctest::Approx(0.5 * std::numbers::log2e));
    CHECK(launch.params.batch == 3);
    CHECK(launch.params.heads_q == 8);
    CHECK(launch.params.seqlen_q == 300);
    CHECK(launch.params.seqlen_k == 500);
    CHECK(launch.params.head_dim == 128);
    CHECK(launch.params.gqa_ratio == 4);
  }
  CHECK(fake.unloads == fake.loads);
}

TEST_CASE("on compute capability 9.0 a launch has as many blocks as the GPU, and a map of each tensor") {
  if (!can_serve_by_tensor_maps()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  registry.run(args_of(72), nullptr);
  REQUIRE(fake.launches == 1);
  const testing::FakeLaunch& launch = fake.last_launch;
  CHECK(launch.grid == Grid{72, 1, 1});  // 3 tiles of each of 24 heads
  CHECK(launch.block == 384);
  CHECK(static_cast<int>(launch.shared_bytes) == fake.shared_limit);
  const AttuneTensorPrefillParams& params = launch.tensor_params;
  CHECK(params.q_blocks == 3);
  CHECK(params.group_heads >= 1);
  CHECK(params.group_heads <= 24);
  CHECK(params.seqlen_k == 500);
  CHECK(params.lse == address(0x5000));

  CHECK(fake.encoded_maps == 4);
  const auto q = testing::FakeTensorMap::of(params.q);
  CHECK(q.type == 9);  // CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
  CHECK(q.tensor.base == address(0x1000));
  CHECK(q.tensor.extents == std::array<std::uint64_t, 5>{72, 300, 8, 3, 1});
  CHECK(q.tensor.strides == std::array<std::uint64_t, 4>{8 * 72 * 2, 72 * 2, 300 * 8 * 72 * 2, 0});
  CHECK(q.tensor.box == std::array<std::uint32_t, 5>{64, 128, 1, 1, 1});
  const auto v = testing::FakeTensorMap::of(params.v);
  CHECK(v.tensor.base == address(0x3000));
  CHECK(v.tensor.extents == std::array<std::uint64_t, 5>{72, 500, 2, 3, 1});
  CHECK(v.tensor.strides == std::array<std::uint64_t, 4>{72 * 2, 500 * 72 * 2, 2 * 500 * 72 * 2, 0});
}

TEST_CASE("V of a head_dim of its own gets a kernel of its own, and maps of V and O as wide as it") {
  if (!can_serve_by_tensor_maps()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  attune_prefill_args args = args_of(192);
  registry.run(args, nullptr);
  CHECK(fake.loads == 1);
  args.head_dim_v = 192;
  registry.run(args, nullptr);
  CHECK(fake.loads == 1);
  args.head_dim_v = 128;
  fake.launches = 0;  // the first is kept
  registry.run(args, nullptr);
  CHECK(fake.loads == 2);
  const AttuneTensorPrefillParams& params = fake.last_launch.tensor_params;
  CHECK(testing::FakeTensorMap::of(params.k).tensor.extents == std::array<std::uint64_t, 5>{192, 500, 2, 3, 1});
  CHECK(testing::FakeTensorMap::of(params.v).tensor.extents == std::array<std::uint64_t, 5>{128, 500, 2, 3, 1});
  CHECK(testing::FakeTensorMap::of(params.o).tensor.extents == std::array<std::uint64_t, 5>{128, 300, 8, 3, 1});
  args.v.stride_head = 128;  // a row of V, though less than one of K
  const int before = fake.encoded_maps;
  registry.run(args, nullptr);
  CHECK(fake.encoded_maps == before + 1);
}

TEST_CASE("maps are encoded once for tensors that come again, and anew for others") {
  if (!can_serve_by_tensor_maps()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  attune_prefill_args args = args_of(128);
  args.q.data = address(0x70000);
  args.k.data = address(0x80000);
  args.v.data = address(0x90000);
  args.o.data = address(0xb0000);
  for (int i = 0; i < 5; ++i) registry.run(args, nullptr);
  CHECK(fake.encoded_maps == 4);
  args.v.data = address(0xa0000);
  registry.run(args, nullptr);
  CHECK(fake.encoded_maps == 5);
  args.k.stride_batch *= 2;
  registry.run(args, nullptr);
  CHECK(fake.encoded_maps == 6);
  for (std::uintptr_t i = 0; i < 1000; ++i) {  // more tensors than are kept
    fake.launches = 0;
    args.q.data = address(0x100000 + i * 0x100);
    registry.run(args, nullptr);
    const auto q = testing::FakeTensorMap::of(fake.last_launch.tensor_params.q);
    REQUIRE(q.tensor.base == args.q.data);
  }
}

TEST_CASE("what no tensor map can express is served without one, beside what can") {
  if (!can_serve_by_tensor_maps()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const auto uses_maps = [&](const std::function<void(attune_prefill_args&)>& change) {
    attune_prefill_args args = args_of(128);
    change(args);
    const int before = fake.encoded_maps;
    fake.launches = 0;
    registry.run(args, nullptr);
    CHECK(fake.launches == 1);
    CHECK((fake.last_launch.block == 128) == (fake.encoded_maps == before));
    return fake.encoded_maps > before;
  };
  CHECK(uses_maps([](attune_prefill_args&) {}));
  CHECK_FALSE(uses_maps([](attune_prefill_args& args) { args.seqlen_k = 0; }));
  CHECK_FALSE(uses_maps([](attune_prefill_args& args) { args.k.stride_batch = 0; }));
  CHECK_FALSE(uses_maps([](attune_prefill_args& args) { args.v.stride_head = 0; }));
  CHECK_FALSE(uses_maps([](attune_prefill_args& args) { args.q.stride_seq = 120; }));  // rows overlap
  CHECK_FALSE(uses_maps([](attune_prefill_args& args) { args.q.stride_batch = 1LL << 39; }));
  CHECK(uses_maps([](attune_prefill_args& args) { args.q.stride_batch = (1LL << 39) - 8; }));
  CHECK(uses_maps([](attune_prefill_args& args) { args.batch = 1, args.k.stride_batch = 0; }));
  CHECK(fake.loads == 2);
}

TEST_CASE("a dimension of one element gets stride 0, whatever the caller gave") {
  if (!can_serve()) return;
  const Bench bench;
  Bench::fake().capability = 80;
  Registry registry(bench.options());
  attune_prefill_args args = args_of(128);
  args.batch = 1;
  args.q.stride_batch = 1;
  args.seqlen_k = 1;
  args.k.stride_seq = -3;
  registry.run(args, nullptr);
  CHECK(Bench::fake().last_launch.params.q.stride_batch == 0);
  CHECK(Bench::fake().last_launch.params.k.stride_seq == 0);
}

TEST_CASE("one kernel serves all lengths at head_dim 128") {
  if (!can_serve_by_tensor_maps()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  for (const int seqlen_q : {40, 300, 4096}) {
    for (const int seqlen_k : {100, 2047, 2048, 16384}) {
      attune_prefill_args args = args_of(128);
      args.causal = 0;
      args.seqlen_q = seqlen_q;
      args.seqlen_k = seqlen_k;
      registry.run(args, nullptr);
    }
  }
  CHECK(fake.loads == 1);
}

TEST_CASE("at head_dim 64 causal and 96 the number of queries chooses between two kernels, whichever came first") {
  if (!can_serve_by_tensor_maps()) return;
  for (const int head_dim : {64, 96}) {
    for (const bool long_first : {false, true}) {
      const Bench bench;
      testing::FakeCuda& fake = Bench::fake();
      Registry registry(bench.options());
      const auto threads = [&](int seqlen_q, int seqlen_k) {
        attune_prefill_args args = args_of(head_dim);
        args.seqlen_q = seqlen_q;
        args.seqlen_k = seqlen_k;
        fake.launches = 0;  // the first is kept
        registry.run(args, nullptr);
        return fake.last_launch.block;
      };
      constexpr unsigned of_128_rows = 3 * 128;
      constexpr unsigned of_192_rows = 4 * 128;
      if (long_first) CHECK(threads(4096, 4096) == of_192_rows);
      CHECK(threads(512, 512) == of_128_rows);
      CHECK(threads(4096, 4096) == of_192_rows);
      CHECK(threads(512, 16384) == of_128_rows);
      CHECK(threads(4096, 100) == of_192_rows);
      CHECK(fake.loads == 2);
    }
  }
}

TEST_CASE("calls that one kernel serves share it, other devices load their own") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  for (const int heads_kv : {1, 2, 4, 8}) registry.run(args_of(128, 8, heads_kv), nullptr);
  CHECK(fake.loads == 1);
  fake.current_device = 1;
  registry.run(args_of(128), nullptr);
  CHECK(fake.loads == 2);
  CHECK(fake.loaded_for == 1);
  fake.current_device = 0;
  registry.run(args_of(128), nullptr);
  CHECK(fake.loads == 2);
}

TEST_CASE("a load that fails is reported and tried again") {
  if (!can_serve()) return;
  const Bench bench;
  Bench::fake().fail_load = 2;
  Registry registry(bench.options());
  try {
    registry.prepare(args_of(128));
    FAIL("loaded");
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_DRIVER_ERROR);
    CHECK(std::string(error.what()) == "cuLibraryLoadData failed: CUDA_ERROR_FAKED (as the test asked)");
  }
  CHECK(capture_mode() == 0);
  CHECK_NOTHROW(registry.prepare(args_of(128)));
}

TEST_CASE("a launch that fails is reported") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  registry.prepare(args_of(128));
  Bench::fake().fail_launch = 719;
  CHECK(status_of([&] { registry.run(args_of(128), nullptr); }) == ATTUNE_DRIVER_ERROR);
}

TEST_CASE("threads that ask first at once load each kernel once") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  constexpr int count = 8;
  std::barrier start(count);
  std::atomic<int> failures = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        try {
          for (int repeat = 0; repeat < 200; ++repeat) {
            registry.run(args_of(128, 8 * (1 + (i + repeat) % 5), 8), nullptr);
          }
        } catch (const Error&) {
          ++failures;
        }
      });
    }
  }
  CHECK(failures == 0);
  CHECK(Bench::fake().loads == 1);
  CHECK(Bench::fake().launches == count * 200);
}

TEST_CASE("a repeated call allocates nothing") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  const attune_prefill_args args = args_of(128);
  registry.run(args, nullptr);
  const long long before = allocations();
  for (int i = 0; i < 2000; ++i) registry.run(args, nullptr);
  CHECK(allocations() == before);
}

TEST_CASE("an image without code for this GPU leads to NVRTC, and from then on to the disk") {
  std::unique_ptr<Compiler> compiler;
  try {
    compiler = std::make_unique<Compiler>();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  const Bench bench;
  Bench::fake().refuse_fatbins = true;
  Registry first(bench.options());
  first.run(args_of(72), nullptr);
  CHECK(Bench::fake().loads == 1);
  CHECK(testing::FakeTensorMap::of(Bench::fake().last_launch.tensor_params.q).tensor.extents[0] == 72);
  const Cache cache(bench.folder());
  REQUIRE(cache.list().size() == 1);
  CHECK(cache.list().front().valid);
  CHECK(cache.list().front().arch == "sm_90");
  CHECK(cache.list().front().name ==
        default_variant(prefill_sm90, need_for(Dtype::bf16, 72, true), 227 * 1024, 128).name());

  Registry second(bench.options());
  const auto start = std::chrono::steady_clock::now();
  second.prepare(args_of(72));
  const std::chrono::duration<double, std::milli> milliseconds = std::chrono::steady_clock::now() - start;
  MESSAGE("generated, found on disk and loaded: " << milliseconds.count() << " ms");
  CHECK(cache.list().size() == 1);
}

#else

TEST_CASE("the registry over a fake driver") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }

#endif
