// What the numeric contract promises beyond agreement: determinism, isolation from unused memory, 64-bit offsets,
// capture, threads.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/graph.hpp"
#include "tests/gpu/harness.hpp"

namespace attune::gpu_tests {
namespace {

const Problem typical{
    .batch = 2, .heads_q = 8, .heads_kv = 2, .seqlen_q = 333, .seqlen_k = 517, .head_dim = 128, .causal = true};

}  // namespace

TEST_CASE("ten runs on the same inputs give the same bits") {
  const TestRegistry registry;
  for (const auto& [head_dim, head_dim_v] :
       {std::pair{40, 0}, {64, 0}, {96, 0}, {128, 0}, {192, 0}, {192, 128}, {256, 0}}) {
    Problem problem = typical;
    problem.head_dim = head_dim;
    problem.head_dim_v = head_dim_v;
    const TestCall call(problem, Layout::bshd, 3);
    REQUIRE(call.run(registry) == ATTUNE_OK);
    const Outputs first = call.fetch();
    check_same_bits(registry, call, first, 9);
  }
}

TEST_CASE("tiles of one block of keys follow each other, right and with the same bits in twenty runs") {
  const TestRegistry registry;
  for (const auto& [head_dim, head_dim_v] : {std::pair{64, 0}, {96, 0}, {128, 0}, {192, 0}, {192, 128}, {256, 0}}) {
    for (const bool causal : {false, true}) {
      const int heads = 6 * gpu().device.multiprocessors;
      const TestCall call({.heads_q = heads,
                           .heads_kv = heads,
                           .seqlen_q = 100,
                           .seqlen_k = 60,
                           .head_dim = head_dim,
                           .head_dim_v = head_dim_v,
                           .causal = causal},
                          Layout::bshd, 3);
      CAPTURE(call.image().problem().text());
      REQUIRE(call.run(registry) == ATTUNE_OK);
      const Outputs first = call.fetch();
      CHECK(call.compare_with_reference(first).agrees);
      check_same_bits(registry, call, first, 19);
    }
  }
}

TEST_CASE("a row that sees no key gives O = 0 and LSE = -infinity") {
  const TestRegistry registry;
  const Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 200, .seqlen_k = 50, .head_dim = 64, .causal = true};
  const TestCall call(problem, Layout::bshd, 3);
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs output = call.fetch();
  for (int row = 0; row < 150; ++row) {
    for (int head = 0; head < 2; ++head) {
      CHECK(output.lse[head * 200 + row] == -INFINITY);
      for (int d = 0; d < 64; ++d) REQUIRE(output.o[(row * 2 + head) * 64 + d] == 0);
    }
  }
  check_call(registry, problem, Layout::bshd, 3);
  Problem no_keys = problem;
  no_keys.seqlen_k = 0;
  check_call(registry, no_keys, Layout::bshd, 3);
}

TEST_CASE("a NaN in a query reaches that row and no other") {
  const TestRegistry registry;
  const TestCall call(typical, Layout::bshd, 3);
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs before = call.fetch();
  const std::uint16_t nan = 0x7fff;
  constexpr int row = 100;  // of sequence 0, head 0
  call.poison();
  gpu().driver.copy_to_device(static_cast<std::uint16_t*>(call.args.q.data) + row * call.args.q.stride_seq, &nan,
                              sizeof(nan));
  REQUIRE(call.run(registry) == ATTUNE_OK);
  Outputs after = call.fetch();
  CHECK(std::isnan(after.lse[row]));
  const auto first = static_cast<std::ptrdiff_t>(row) * typical.heads_q * typical.head_dim;
  for (int d = 0; d < typical.head_dim; ++d) {
    CHECK(std::isnan(from_storage(typical.dtype, after.o[first + d])));
    after.o[first + d] = before.o[first + d];
  }
  after.lse[row] = before.lse[row];
  after.guards_intact = before.guards_intact;  // the query itself is no longer what it was
  CHECK(after == before);
}

TEST_CASE("a softmax scale of 0 weighs all visible keys alike") {
  const TestRegistry registry;
  TestCall call(typical, Layout::bshd, 3);
  call.args.softmax_scale = 0;
  REQUIRE(call.run(registry) == ATTUNE_OK);
  CHECK(call.compare_with_reference(call.fetch()).agrees);
}

TEST_CASE("LSE may be left out") {
  const TestRegistry registry;
  TestCall call(typical, Layout::bshd, 3);
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs with_lse = call.fetch();
  call.poison();
  call.args.lse = nullptr;
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs without = call.fetch();
  CHECK(without.o == with_lse.o);
  CHECK(std::isnan(without.lse.front()));
}

TEST_CASE("a kernel compiled for exactly this head_dim agrees, and its second use comes from the disk cache") {
  const std::filesystem::path cache = std::filesystem::temp_directory_path() / "attune-gpu-test-cache";
  std::filesystem::remove_all(cache);
  const std::string folder = cache.string();
  for (int use = 0; use < 2; ++use) {
    attune_options options{};
    options.struct_size = sizeof(attune_options);
    options.compile_policy = ATTUNE_COMPILE_EXACT;
    options.cache_dir = folder.c_str();
    attune_registry* registry = nullptr;
    REQUIRE(attune_registry_create(&options, &registry) == ATTUNE_OK);
    Problem problem = typical;
    problem.head_dim = 40;  // kernels for 8.0 would pad it, ...
    problem.softcap = 20;   // ... and no kernel with a cap is embedded
    const TestCall call(problem, Layout::bhsd, 3);
    CHECK_MESSAGE(attune_prefill(registry, &call.args, nullptr) == ATTUNE_OK, attune_last_error());
    gpu().driver.synchronize();
    CHECK(call.compare_with_reference(call.fetch()).agrees);
    attune_registry_destroy(registry);
    CHECK(!std::filesystem::is_empty(cache));
  }
  std::filesystem::remove_all(cache);
}

TEST_CASE("offsets beyond 2^31 elements are right") {
  // One head whose rows lie 2^31 / 100 elements apart: the last ones are past 2^31 elements.
  const TestRegistry registry;
  constexpr int rows = 130;
  constexpr std::int64_t stride = (std::int64_t{1} << 31) / 100 / 8 * 8;
  const Problem problem{.heads_q = 1, .heads_kv = 1, .seqlen_q = rows, .seqlen_k = rows, .head_dim = 64};
  const TestCall near(problem, Layout::bshd, 9);
  REQUIRE(near.run(registry) == ATTUNE_OK);
  const Outputs expected = near.fetch();

  const Driver& driver = gpu().driver;
  const std::size_t bytes = static_cast<std::size_t>(stride) * rows * sizeof(std::uint16_t);
  const DeviceBuffer k(driver, bytes);
  const DeviceBuffer v(driver, bytes);
  const DeviceBuffer o(driver, bytes);
  std::vector<std::uint16_t> row(64);
  const auto spread = [&](const DeviceBuffer& far, const attune_tensor& from) {
    for (int r = 0; r < rows; ++r) {
      driver.copy_to_host(row.data(), static_cast<std::uint16_t*>(from.data) + r * from.stride_seq, 128);
      driver.copy_to_device(static_cast<std::uint16_t*>(far.data()) + r * stride, row.data(), 128);
    }
  };
  spread(k, near.args.k);
  spread(v, near.args.v);
  attune_prefill_args args = near.args;
  args.k = {k.data(), 0, stride, 0};
  args.v = {v.data(), 0, stride, 0};
  args.o = {o.data(), 0, stride, 0};
  REQUIRE(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK);
  driver.synchronize();
  for (int r = 0; r < rows; ++r) {
    driver.copy_to_host(row.data(), static_cast<std::uint16_t*>(o.data()) + r * stride, 128);
    CHECK(std::equal(row.begin(), row.end(), expected.o.begin() + r * 64));
  }
}

TEST_CASE("strides that no tensor map takes give what plain ones do") {
  const TestRegistry registry;
  Problem problem = typical;
  problem.seqlen_q = 1;
  const TestCall call(problem, Layout::bshd, 5);
  attune_prefill_args args = call.args;
  args.k.stride_batch = args.v.stride_batch = 0;  // both sequences read the keys of the first
  REQUIRE_MESSAGE(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
  gpu().driver.synchronize();
  const Outputs shared_keys = call.fetch();
  // One sequence at a time, by whatever kernel serves that.
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    attune_prefill_args one = call.args;
    one.batch = 1;
    one.q.data = static_cast<std::uint16_t*>(one.q.data) + sequence * one.q.stride_batch;
    one.o.data = static_cast<std::uint16_t*>(one.o.data) + sequence * one.o.stride_batch;
    one.lse += static_cast<std::ptrdiff_t>(sequence) * problem.heads_q * problem.seqlen_q;
    REQUIRE_MESSAGE(attune_prefill(registry.get(), &one, nullptr) == ATTUNE_OK, attune_last_error());
  }
  gpu().driver.synchronize();
  const Outputs expected = call.fetch();
  for (std::size_t i = 0; i < expected.o.size(); ++i) {
    CHECK(from_storage(problem.dtype, shared_keys.o[i]) ==
          doctest::Approx(from_storage(problem.dtype, expected.o[i])).epsilon(0.004).scale(1));
  }
  for (std::size_t i = 0; i < expected.lse.size(); ++i) {
    CHECK(shared_keys.lse[i] == doctest::Approx(expected.lse[i]).epsilon(1e-4));
  }
}

TEST_CASE("calls with and without tensor maps take turns on one registry") {
  const TestRegistry registry;
  Problem no_keys = typical;
  no_keys.seqlen_k = 0;
  for (int i = 0; i < 3; ++i) {
    check_call(registry, typical, Layout::bshd, 3);
    check_call(registry, no_keys, Layout::bshd, 3);
  }
}

TEST_CASE("a captured launch replays in a CUDA graph") {
  const TestRegistry registry;
  const TestCall call(typical, Layout::bshd, 3);
  // The first call of this registry happens inside the capture: loading must not break it.
  const CapturedGraph graph([&](void* stream) {
    REQUIRE_MESSAGE(attune_prefill(registry.get(), &call.args, stream) == ATTUNE_OK, attune_last_error());
  });
  call.poison();
  for (int i = 0; i < 2; ++i) graph.replay();
  CHECK(call.compare_with_reference(call.fetch()).agrees);
}

TEST_CASE("threads share one registry") {
  const TestRegistry registry;
  const std::vector<int> head_dims{40, 64, 96, 128, 160, 192, 224, 256};
  std::vector<TestCall> calls;
  calls.reserve(head_dims.size());
  for (const int head_dim : head_dims) {
    Problem problem = typical;
    problem.head_dim = head_dim;
    calls.emplace_back(problem, Layout::bshd, 3);
  }
  std::vector<attune_status> statuses(calls.size(), ATTUNE_INTERNAL_ERROR);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      threads.emplace_back([&, i] {
        gpu().driver.make_current(gpu().device.ordinal);
        for (int repeat = 0; repeat < 20; ++repeat) statuses[i] = calls[i].run(registry);
      });
    }
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CHECK(statuses[i] == ATTUNE_OK);
    CHECK(calls[i].compare_with_reference(calls[i].fetch()).agrees);
  }
}

}  // namespace attune::gpu_tests
