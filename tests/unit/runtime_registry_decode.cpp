// Decode by the registry over a driver that is not one (tests/fake_driver): which kernels are loaded, what is launched
// in which order, and what the repeated call costs.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <numbers>
#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/base/division.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "tests/unit/registry_bench.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;

api::Decode call_of(int splits) {
  return {.shape = {.batch = 3,
                    .seqlen_q = 2,
                    .heads_q = 8,
                    .heads_kv = 2,
                    .head_dim = 96,
                    .max_seqlen_k = 3000,
                    .page_size = 256,
                    .pages = 50,
                    .table_width = 12,
                    .window_left = 700,
                    .splits = splits},
          .q = api::bshd(address(0x1000), 2, 8, 96),
          .k = api::bshd(address(0x2000), 256, 2, 96),
          .v = api::bhsd(address(0x3000), 256, 2, 96),
          .o = api::bshd(address(0x4000), 2, 8, 96),
          .lse = static_cast<float*>(address(0x5000)),
          .seqlens_k = static_cast<const std::int32_t*>(address(0x6000)),
          .block_table = static_cast<const std::int32_t*>(address(0x7000)),
          .workspace = address(0x8000),
          .workspace_bytes = std::size_t{1} << 30,
          .softmax_scale = 0.5F};
}

/// The same with more keys than clusters are preferred for.
api::Decode long_call(int splits) {
  api::Decode call = call_of(splits);
  call.shape.max_seqlen_k = 6000;
  call.shape.table_width = 24;
  return call;
}

/// As call_of, with new keys.
api::Decode append_call(int splits) {
  api::Decode call = call_of(splits);
  call.shape.seqlen_new = 5;
  call.shape.rotary = api::Rotary::interleaved;
  call.shape.rotary_dim = 32;
  call.shape.rotations = 4000;
  call.k_new = api::bshd(address(0x9000), 5, 2, 96);
  call.v_new = api::bshd(address(0xa000), 5, 2, 96);
  call.rotary_cos = address(0xb000);
  call.rotary_sin = address(0xc000);
  return call;
}

}  // namespace

TEST_CASE("decode launches both kernels with one block of parameters, the second beside the first's end") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const attune_decode_args args = call_of(4).args();
  registry.prepare(args);
  CHECK(fake.loads == 2);
  CHECK(fake.launches == 0);
  registry.run(args, address(0x77));
  CHECK(fake.loads == 2);
  REQUIRE(fake.launches == 2);
  const testing::FakeLaunch& first = fake.last_launch;
  CHECK_FALSE(first.combines);
  CHECK_FALSE(first.overlaps);
  CHECK(first.grid == Grid{2, 4, 3});
  CHECK(first.block == 128);
  CHECK(first.stream == address(0x77));
  const testing::FakeLaunch& second = fake.second_launch;
  CHECK(second.combines);
  CHECK(second.overlaps);
  CHECK(second.grid == Grid{3, 2, 1});  // each of eight warps has one of the 16 rows
  CHECK(second.stream == address(0x77));
  CHECK(std::memcmp(&first.decode_params, &second.decode_params, sizeof(AttuneDecodeParams)) == 0);

  const AttuneDecodeParams& params = first.decode_params;
  CHECK(params.q.data == address(0x1000));
  CHECK(params.k.stride_batch == 256 * 2 * 96);
  CHECK(params.v.stride_head == 256 * 96);
  CHECK(params.o.data == address(0x4000));
  CHECK(params.lse == address(0x5000));
  CHECK(params.seqlens_k == address(0x6000));
  CHECK(params.block_table == address(0x7000));
  CHECK(params.partial_o == address(0x8000));
  CHECK(params.partial_lse == params.partial_o + 12 * 2 * 8 * 96);
  CHECK(params.scale_log2 == doctest::Approx(0.5 * std::numbers::log2e));
  CHECK(params.batch == 3);
  CHECK(params.seqlen_q == 2);
  CHECK(params.heads_kv == 2);
  CHECK(params.gqa_ratio == 4);
  CHECK(params.head_dim == 96);
  CHECK(params.max_seqlen_k == 3000);
  CHECK(params.page_size == 256);
  CHECK(params.pages == 50);
  CHECK(params.table_width == 12);
  CHECK(params.window_left == 700);
  CHECK(params.window_right == 0);
  CHECK(params.block_keys == 64);
  CHECK(params.evict_first == 1);
  CHECK(params.splits == 4);
  CHECK(params.parts == 12);
  CHECK(params.page_multiplier == reciprocal_of(256).multiplier);
  CHECK(params.page_shift == reciprocal_of(256).shift);
}

TEST_CASE("a softcap takes the softmax's place in the scale, in a kernel of its own") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  api::Decode call = call_of(1);
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().last_launch.decode_params.cap_scale == 0);
  CHECK(Bench::fake().loads == 1);
  Bench::fake().launches = 0;
  call.shape.softcap = 20;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().loads == 2);
  CHECK(Bench::fake().last_launch.decode_params.scale_log2 == doctest::Approx(20 * std::numbers::log2e));
  CHECK(Bench::fake().last_launch.decode_params.cap_scale == doctest::Approx(2 * 0.5 * std::numbers::log2e / 20));
}

TEST_CASE("a ragged batch has kernels of its own, which are told where its queries are") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  api::Decode call = call_of(3);
  call.cu_seqlens_q = static_cast<const std::int32_t*>(address(0xd000));
  call.shape.total_q = 5;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().launches == 2);
  const AttuneDecodeParams& params = Bench::fake().last_launch.decode_params;
  CHECK(params.cu_seqlens_q == address(0xd000));
  CHECK(params.total_q == 5);
  CHECK(params.tile_rows == 16);
  CHECK(Bench::fake().loads == 2);
  call.cu_seqlens_q = nullptr;
  Bench::fake().launches = 0;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().loads == 4);
  CHECK(Bench::fake().last_launch.decode_params.cu_seqlens_q == nullptr);
}

TEST_CASE("packed keys are served by the kernels of ragged batches, which are told that any row begins a page") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  api::Decode call = call_of(3);
  call.cu_seqlens_q = static_cast<const std::int32_t*>(address(0xd000));
  call.shape.total_q = 5;
  call.block_table = nullptr;
  call.shape.table_width = 1;
  call.shape.page_size = call.shape.max_seqlen_k;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().loads == 2);
  CHECK(Bench::fake().last_launch.decode_params.cu_seqlens_k == nullptr);
  call.cu_seqlens_k = static_cast<const std::int32_t*>(address(0xe000));
  call.shape.total_k = 700;
  call.shape.pages = 0;  // does not count
  Bench::fake().launches = 0;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().launches == 2);
  CHECK(Bench::fake().loads == 2);
  const AttuneDecodeParams& params = Bench::fake().last_launch.decode_params;
  CHECK(params.cu_seqlens_k == address(0xe000));
  CHECK(params.block_table == address(0xe000));
  CHECK(params.seqlens_k == address(0x6000));
  CHECK(params.pages == 700);
  CHECK(params.table_width == 1);
  CHECK(params.max_seqlen_k == 3000);
  for (const AttuneTensor& keys : {params.k, params.v}) CHECK(keys.stride_batch == keys.stride_seq);
  CHECK(params.v.stride_seq == call.args().v.stride_seq);
  // Nobody says that they have equal lengths.
  call.seqlens_k = nullptr;
  call.shape.splits = 0;
  Bench::fake().launches = 0;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().last_launch.decode_params.seqlens_k == nullptr);
  CHECK(Bench::fake().last_launch.decode_params.splits == 0);
}

TEST_CASE("the keys of one sequence fall into splits though the device alone knows how many they are") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  const auto params_of = [&](const api::Decode& call) {
    Bench::fake().launches = 0;
    registry.run(call.args(), nullptr);
    return Bench::fake().last_launch.decode_params;
  };
  api::Decode call = long_call(0);
  CHECK(params_of(call).splits == 0);
  call.shape.batch = 1;
  CHECK(params_of(call).splits > 1);
  CHECK(params_of(call).seqlens_k == address(0x6000));
  call.block_table = nullptr;
  call.shape.table_width = 1;
  call.cu_seqlens_q = static_cast<const std::int32_t*>(address(0xd000));
  call.shape.total_q = 2;
  call.cu_seqlens_k = static_cast<const std::int32_t*>(address(0xe000));
  call.shape.total_k = 3000;
  CHECK(params_of(call).splits > 1);
}

TEST_CASE("a kernel with clusters is launched in clusters, beside the end of a store before it, and nothing after it") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  RegistryOptions options = bench.options(ATTUNE_COMPILE_EXACT);
  const attune_decode_args args = append_call(0).args();
  Variant variant = choose_own(check_shapes(args), Driver().device(0)).variant;
  variant.cluster = 1;
  TunedTable table{.gpu = tuned_gpu(Driver().device(0)), .rows = {}};
  table.put({check_shapes(args), tuned_tests::result_of(variant)});
  options.tuned = std::vector{table};
  Registry registry(std::move(options));
  CHECK(registry.workspace_bytes(args) == 0);
  registry.run(args, nullptr);
  REQUIRE(fake.launches == 2);
  CHECK(fake.last_launch.grid.cluster == 1);
  CHECK(fake.second_launch.overlaps);
  CHECK(fake.second_launch.grid.cluster == 8);
  CHECK(fake.second_launch.grid == Grid{2, 8, 3, 8});
  CHECK(fake.second_launch.decode_params.splits == 8);
}

TEST_CASE("new keys are stored by a launch before, beside whose end decode begins") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const attune_decode_args args = append_call(4).args();
  registry.prepare(args);
  CHECK(fake.loads == 3);
  registry.run(args, address(0x77));
  CHECK(fake.loads == 3);
  REQUIRE(fake.launches == 3);
  CHECK_FALSE(fake.last_launch.overlaps);
  CHECK(fake.last_launch.stream == address(0x77));
  CHECK(fake.last_launch.grid == Grid{3 * 5 * 2 * 12 / 128 + 1, 1, 1});
  const AttuneStoreParams& stored = fake.last_launch.store_params;
  CHECK(stored.k_new.data == address(0x9000));
  CHECK(stored.v_new.data == address(0xa000));
  CHECK(stored.v_new.stride_seq == 2 * 96);
  CHECK(stored.k.data == address(0x2000));
  CHECK(stored.v.stride_head == 256 * 96);
  CHECK(stored.slots == nullptr);
  CHECK(stored.positions == nullptr);
  CHECK(stored.seqlens_k == address(0x6000));
  CHECK(stored.block_table == address(0x7000));
  CHECK(stored.cos == address(0xb000));
  CHECK(stored.sin == address(0xc000));
  CHECK(stored.tokens == 5);
  CHECK(stored.page_size == 256);
  CHECK(stored.pages == 50);
  CHECK(stored.table_width == 12);
  CHECK(stored.rotary_dim == 32);
  CHECK(stored.rotations == 4000);
  CHECK(fake.second_launch.overlaps);
  CHECK_FALSE(fake.second_launch.combines);
  const AttuneDecodeParams& params = fake.second_launch.decode_params;
  CHECK(params.seqlen_new == 5);
  CHECK(params.rotary_dim == 32);
  CHECK(params.rotations == 4000);
  CHECK(params.cos == address(0xb000));
  CHECK(params.sin == address(0xc000));
  CHECK(fake.third_launch.combines);
  CHECK(fake.third_launch.overlaps);
  CHECK(fake.third_launch.decode_params.seqlen_new == 5);
}

TEST_CASE("new keys without queries are stored, and nothing else is launched") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  attune_decode_args args = append_call(4).args();
  args.seqlen_q = 0;
  registry.run(args, nullptr);
  CHECK(Bench::fake().launches == 1);
  CHECK(Bench::fake().last_launch.store_params.tokens == 5);
}

TEST_CASE("tables are checked before anything else is launched, and the first that is wrong is named") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const std::vector<std::int32_t> lengths{5, 2990, 3000};
  std::vector<std::int32_t> table(3 * 12);
  table[2 * 12 + 7] = 99;
  const std::vector<std::int32_t> leftpad{6, 0, 0};
  api::Decode call = append_call(4);
  call.seqlens_k = lengths.data();  // the fake's device memory is the host's
  call.block_table = table.data();
  call.leftpad_k = leftpad.data();
  call.check_tables = true;
  registry.prepare(call.args());
  CHECK(fake.loads == 4);
  registry.run(call.args(), address(0x77));
  CHECK(fake.loads == 4);
  CHECK(fake.launches == 4);
  CHECK(fake.last_launch.stream == address(0x77));
  CHECK(fake.last_launch.grid == Grid{1, 1, 1});
  const AttuneCheckParams& params = fake.last_launch.check_params;
  CHECK(params.seqlens_k == lengths.data());
  CHECK(params.leftpad_k == leftpad.data());
  CHECK(params.block_table == table.data());
  CHECK(params.slots == nullptr);
  CHECK(params.batch == 3);
  CHECK(params.seqlen_q == 2);
  CHECK(params.seqlen_new == 5);
  CHECK(params.max_seqlen_k == 3000);
  CHECK(params.window_left == 700);
  CHECK(params.page_size == 256);
  CHECK(params.pages == 50);
  CHECK(params.table_width == 12);

  const auto message_of = [&](const AttuneTableFault& fault) {
    fake.launches = 0;
    fake.table_fault = fault;
    try {
      registry.run(call.args(), nullptr);
    } catch (const Error& error) {
      CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
      CHECK(fake.launches == 1);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message_of({.kind = 3, .batch = 2, .position = 0, .reserved = 0}) ==
        "seqlens_k: batch 2, position 0 is 3000; it must be from 0 to 2995");
  CHECK(message_of({.kind = 4, .batch = 0, .position = 0, .reserved = 0}) ==
        "leftpad_k: batch 0, position 0 is 6; it must be from 0 to 5");
  CHECK(message_of({.kind = 5, .batch = 2, .position = 7, .reserved = 0}) ==
        "block_table: batch 2, position 7 is 99; it must be from 0 to 49");

  fake.launches = 0;
  fake.capturing = true;
  CHECK(status_of([&] { registry.run(call.args(), nullptr); }) == ATTUNE_INVALID_ARGUMENT);
  CHECK(fake.launches == 0);
  call.check_tables = false;
  registry.run(call.args(), nullptr);
  CHECK(fake.launches == 3);
}

TEST_CASE("before compute capability 9.0 launches follow each other plainly") {
  if (!can_serve()) return;
  const Bench bench;
  Bench::fake().capability = 80;
  Registry registry(bench.options());
  registry.run(append_call(4).args(), nullptr);
  REQUIRE(Bench::fake().launches == 3);
  CHECK_FALSE(Bench::fake().second_launch.overlaps);
  CHECK(Bench::fake().third_launch.combines);
  CHECK_FALSE(Bench::fake().third_launch.overlaps);
}

TEST_CASE("one part a sequence needs one kernel and no workspace") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  api::Decode call = call_of(1);
  call.workspace = nullptr;
  call.workspace_bytes = 0;
  registry.run(call.args(), nullptr);
  CHECK(Bench::fake().loads == 1);
  CHECK(Bench::fake().launches == 1);
  CHECK(Bench::fake().last_launch.decode_params.partial_o == nullptr);
}

TEST_CASE("a workspace that is too small is refused before anything is launched") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  for (const int splits : {0, 4}) {
    attune_decode_args args = long_call(splits).args();
    const std::size_t bytes = registry.workspace_bytes(args);
    CHECK(bytes > 0);
    args.workspace_bytes = bytes - 1;
    CHECK(status_of([&] { registry.run(args, nullptr); }) == ATTUNE_INVALID_ARGUMENT);
    args.workspace = nullptr;
    CHECK(status_of([&] { registry.run(args, nullptr); }) == ATTUNE_INVALID_ARGUMENT);
    CHECK(Bench::fake().launches == 0);
    args = long_call(splits).args();
    args.workspace_bytes = bytes;
    registry.run(args, nullptr);
    CHECK(Bench::fake().launches == 2);
    Bench::fake().launches = 0;
  }
}

TEST_CASE("a repeated decode call allocates nothing and loads nothing") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  attune_decode_args args = append_call(0).args();
  registry.run(args, nullptr);
  const int loads = Bench::fake().loads;
  const long long before = allocations();
  for (int i = 0; i < 100; ++i) {
    args.max_seqlen_k = 1000 + i;  // as the sequences grow
    registry.run(args, nullptr);
  }
  CHECK(allocations() == before);
  CHECK(Bench::fake().loads == loads);
}

#else

TEST_CASE("decode by the registry over a fake driver") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }

#endif
