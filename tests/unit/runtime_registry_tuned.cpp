// A registry with a tuned table over a driver that is not one: which kernel is loaded.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <algorithm>

#include "attune/attune.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/unit/environment.hpp"
#include "tests/unit/registry_bench.hpp"
#include "tests/unit/tuned_tables.hpp"

using namespace attune;
using namespace attune::registry_tests;
using namespace attune::tuned_tests;

namespace {

attune_prefill_args args_of(const Problem& problem) {
  const int heads_q = problem.heads_q;
  const api::Prefill call{.shape = {.dtype = api::Dtype::bf16,
                                    .batch = problem.batch,
                                    .seqlen_q = problem.seqlen_q,
                                    .seqlen_k = problem.seqlen_k,
                                    .heads_q = heads_q,
                                    .heads_kv = problem.heads_kv,
                                    .head_dim = problem.head_dim,
                                    .causal = true},
                          .q = api::bshd(address(0x1000), problem.seqlen_q, heads_q, problem.head_dim),
                          .k = api::bshd(address(0x2000), problem.seqlen_k, problem.heads_kv, problem.head_dim),
                          .v = api::bshd(address(0x3000), problem.seqlen_k, problem.heads_kv, problem.head_dim),
                          .o = api::bshd(address(0x4000), problem.seqlen_q, heads_q, problem.head_dim),
                          .softmax_scale = 0.5F};
  return call.args();
}

Variant of_warps(int warps) {
  Variant variant = sm80(16 * warps, 32);
  variant.warps = warps;
  return variant;
}

constexpr int threads_of_warp = 32;

/// Rows for two problems that have the same key, served by kernels that their threads tell apart.
TunedTable two_rows(const TunedGpu& gpu) {
  TunedTable table{.gpu = gpu, .rows = {}};
  table.put({prefill(2, 4096), result_of(of_warps(2))});
  table.put({prefill(2, 16384), result_of(of_warps(3))});
  return table;
}

}  // namespace

TEST_CASE("each problem is served by its row's kernel, those that share a key too, and one far from all as without") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  const TunedTable table = two_rows(tuned_gpu(Driver().device(0)));
  REQUIRE(prefill(2, 4096).ask() == prefill(2, 16384).ask());
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned = std::vector{table};
  Registry registry(std::move(options));
  const auto threads_for = [&](int seqlen) {
    fake.launches = 0;  // the first from here on is noted
    registry.run(args_of(prefill(2, seqlen)), nullptr);
    return static_cast<int>(fake.last_launch.block);
  };
  CHECK(threads_for(4096) == 2 * threads_of_warp);
  CHECK(threads_for(16384) == 3 * threads_of_warp);
  CHECK(threads_for(4000) == 2 * threads_of_warp);
  CHECK(threads_for(20000) == 3 * threads_of_warp);
  CHECK(fake.loads == 2);
  const int untuned = threads_for(64);
  CHECK(untuned != 2 * threads_of_warp);
  CHECK(untuned != 3 * threads_of_warp);
  CHECK(threads_for(4096) == 2 * threads_of_warp);
  CHECK(fake.loads == 3);
}

TEST_CASE("a kernel with a tile list gets the list of its launch, and a problem of too many tiles another kernel") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Variant variant = families()[prefill_sm90].defaults;
  variant.causal = variant.tile_list = 1;
  TunedTable table{.gpu = tuned_gpu(Driver().device(0)), .rows = {}};
  table.put({prefill(2, 4096), result_of(variant)});
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned = std::vector{table};
  Registry registry(std::move(options));
  const Problem problem = prefill(2, 4096);
  registry.run(args_of(problem), nullptr);
  const int tiles = 32 * problem.batch * problem.heads_q;
  CHECK(fake.last_launch.tensor_params.q_blocks == 32);
  CHECK(fake.last_launch.tiles.first[fake.last_launch.grid.x] == tiles);
  fake.launches = 0;
  fake.last_launch = {};
  Problem many = problem;
  many.heads_q = many.heads_kv = AttuneTileList::most_tiles / 32 / many.batch + 1;
  registry.run(args_of(many), nullptr);
  CHECK(fake.last_launch.tensor_params.q_blocks >= 1);
  CHECK(fake.last_launch.tiles.first[1] == 0);
}

TEST_CASE("decode is served by its row's kernel") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  const DecodeProblem problem = decode(8, 32768);
  Variant variant = decode_variant(64);
  variant.warps = 2;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned =
      std::vector{TunedTable{.gpu = tuned_gpu(Driver().device(0)), .rows = {{problem, result_of(variant)}}}};
  Registry registry(std::move(options));
  const api::Decode call{.shape = {.batch = 8,
                                   .seqlen_q = 1,
                                   .heads_q = 32,
                                   .heads_kv = 8,
                                   .head_dim = 128,
                                   .max_seqlen_k = 30000,
                                   .page_size = 30000,
                                   .pages = 8,
                                   .table_width = 1},
                         .q = api::bshd(address(0x1000), 1, 32, 128),
                         .k = api::bshd(address(0x2000), 30000, 8, 128),
                         .v = api::bshd(address(0x3000), 30000, 8, 128),
                         .o = api::bshd(address(0x4000), 1, 32, 128),
                         .seqlens_k = static_cast<const std::int32_t*>(address(0x6000)),
                         .workspace = address(0x8000),
                         .workspace_bytes = std::size_t{1} << 30,
                         .softmax_scale = 0.5F};
  registry.run(call.args(), nullptr);
  CHECK(fake.last_launch.block == 2 * threads_of_warp);
}

TEST_CASE("gradients are served by their row's kernel, and the launch that follows is the one that it needs") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  const BackwardProblem problem{.heads_q = 8,
                                .heads_kv = 8,
                                .seqlen_q = 2000,
                                .seqlen_k = 2000,
                                .head_dim = 64,
                                .causal = true,
                                .any_order = true};
  const Device device = Driver().device(0);
  Variant in_order = choose_own(problem, device).variant;
  REQUIRE(in_order.deterministic == 0);
  in_order.deterministic = 1;
  in_order.warps = 8;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned =
      std::vector{TunedTable{.gpu = tuned_gpu(device), .rows = {{tuned_problem(problem), result_of(in_order)}}}};
  Registry registry(std::move(options));
  const auto tensor = [&](std::uintptr_t place) { return api::bshd(address(place), 2000, 8, 64); };
  const api::Backward call{
      .shape =
          {.batch = 1, .seqlen_q = 2000, .seqlen_k = 2000, .heads_q = 8, .heads_kv = 8, .head_dim = 64, .causal = true},
      .q = tensor(0x1000),
      .k = tensor(0x2000),
      .v = tensor(0x3000),
      .o = tensor(0x4000),
      .dout = tensor(0x5000),
      .dq = tensor(0x6000),
      .dk = tensor(0x7000),
      .dv = tensor(0x8000),
      .lse = static_cast<const float*>(address(0x9000)),
      .any_order = true,
      .workspace = address(0x10000),
      .workspace_bytes = workspace_of(in_order, problem, device).bytes()};
  const attune_backward_args args = call.args();
  registry.run(args, nullptr);
  CHECK(fake.launches == 3);
  CHECK(fake.second_launch.block == 8 * threads_of_warp);
  const Variant queries = choose_own(problem.queries(), device).variant;
  CHECK(fake.third_launch.grid == plan(queries, problem.queries(), device).grid);

  const long long before = allocations();
  for (int i = 0; i < 200; ++i) registry.run(args, nullptr);
  CHECK(allocations() == before);
}

TEST_CASE("a registry that found no driver at first has its tables once there is one") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned = std::vector{two_rows(tuned_gpu(Driver().device(0)))};
  Registry registry(std::move(options));
  const attune_prefill_args args = args_of(prefill(2, 4096));
  fake.too_old = true;
  CHECK(status_of([&] { registry.run(args, nullptr); }) == ATTUNE_NO_DEVICE);
  fake.too_old = false;
  registry.run(args, nullptr);
  CHECK(fake.last_launch.block == 2 * threads_of_warp);
}

TEST_CASE("a table that a bundle brings is read; ATTUNE_TUNED=off turns it off") {
  if (!can_serve()) return;
  const testing::EnvironmentVariable variable("ATTUNE_TUNED", {});
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  const std::filesystem::path file = bench.folder() / "tables.attune";
  write_file(
      file, write_bundle({.kernels = {}, .tables = {{"a.yaml", tuned_text(two_rows(tuned_gpu(Driver().device(0))))}}}));
  const auto threads = [&] {
    RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
    options.bundles = {file};
    options.tuned.reset();
    Registry registry(std::move(options));
    fake.launches = 0;
    registry.run(args_of(prefill(2, 16384)), nullptr);
    return static_cast<int>(fake.last_launch.block);
  };
  CHECK(threads() == 3 * threads_of_warp);
  variable.set("off");
  CHECK(threads() != 3 * threads_of_warp);
}

TEST_CASE("a table of another GPU changes nothing") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  TunedGpu gpu = tuned_gpu(Driver().device(0));
  ++gpu.multiprocessors;
  RegistryOptions options = bench.options();
  options.tuned = std::vector{two_rows(gpu)};
  Registry registry(std::move(options));
  registry.run(args_of(prefill(2, 4096)), nullptr);
  CHECK(fake.last_launch.block != 2 * threads_of_warp);
}

TEST_CASE("a repeated call with a tuned table allocates nothing and loads nothing") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  options.tuned = std::vector{two_rows(tuned_gpu(Driver().device(0)))};
  Registry registry(std::move(options));
  const attune_prefill_args args = args_of(prefill(2, 4096));
  registry.run(args, nullptr);
  const int loads = fake.loads;
  const long long before = allocations();
  for (int i = 0; i < 2000; ++i) registry.run(args, nullptr);
  CHECK(fake.loads == loads);
  CHECK(allocations() == before);
}

TEST_CASE("a tuned variant that no compiler can build leaves the problem to the heuristic's embedded kernel") {
  const auto kernels = embedded_kernels();
  const bool has_embedded = std::ranges::any_of(
      kernels, [](const ReadyKernel& kernel) { return family_of(kernel.variant).operation == Operation::prefill; });
  if (!has_embedded) {
    MESSAGE("skipped: no kernels are embedded");
    return;
  }
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.tuned = {two_rows(tuned_gpu(Driver().device(0)))};
  Registry registry(std::move(options));
  registry.run(args_of(prefill(2, 4096)), nullptr);
  CHECK(fake.last_launch.block != 2 * threads_of_warp);
}

#else
TEST_CASE("the registry with tuned tables") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }
#endif
