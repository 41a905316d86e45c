// store_kv and merge_states by the registry over a driver that is not one (tests/fake_driver): what is launched, and
// what the repeated call costs.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "tests/unit/registry_bench.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;

const std::int32_t* ints(std::uintptr_t value) { return static_cast<const std::int32_t*>(address(value)); }

api::Store store_of(api::Rotary rotary) {
  return {.shape = {.dtype = api::Dtype::fp16,
                    .batch = 3,
                    .tokens = 20,
                    .heads_kv = 2,
                    .head_dim = 96,
                    .page_size = 256,
                    .pages = 50,
                    .table_width = 12,
                    .rotary = rotary,
                    .rotary_dim = 32,
                    .rotations = 700},
          .k_new = api::bshd(address(0x1000), 20, 2, 96),
          .v_new = api::bhsd(address(0x2000), 20, 2, 96),
          .k = api::bshd(address(0x3000), 256, 2, 96),
          .v = api::bhsd(address(0x4000), 256, 2, 96),
          .seqlens_k = ints(0x5000),
          .block_table = ints(0x6000),
          .positions = ints(0x7000),
          .rotary_cos = address(0x8000),
          .rotary_sin = address(0x9000)};
}

api::Merge merge_of() {
  return {.shape = {.batch = 3, .seqlen = 20, .heads = 4, .head_dim = 72},
          .o1 = api::bshd(address(0x1000), 20, 4, 72),
          .o2 = api::bhsd(address(0x2000), 20, 4, 72),
          .o = api::bshd(address(0x3000), 20, 4, 72),
          .lse1 = static_cast<const float*>(address(0x4000)),
          .lse2 = static_cast<const float*>(address(0x5000)),
          .lse = static_cast<float*>(address(0x6000))};
}

}  // namespace

TEST_CASE("store_kv launches one kernel with the call's parameters") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const attune_store_kv_args args = store_of(api::Rotary::halves).args();
  registry.prepare(args);
  CHECK(fake.loads == 1);
  CHECK(fake.launches == 0);
  registry.run(args, address(0x77));
  CHECK(fake.loads == 1);
  REQUIRE(fake.launches == 1);
  CHECK(fake.last_launch.grid == Grid{12, 1, 1});  // 3 x 20 x 2 rows of 12 chunks
  CHECK(fake.last_launch.block == 128);
  CHECK(fake.last_launch.shared_bytes == 0);
  CHECK(fake.last_launch.stream == address(0x77));
  const AttuneStoreParams& params = fake.last_launch.store_params;
  CHECK(params.k_new.data == address(0x1000));
  CHECK(params.v_new.stride_head == 20 * 96);
  CHECK(params.k.data == address(0x3000));
  CHECK(params.k.stride_batch == 256 * 2 * 96);
  CHECK(params.v.stride_head == 256 * 96);
  CHECK(params.slots == nullptr);
  CHECK(params.seqlens_k == ints(0x5000));
  CHECK(params.block_table == ints(0x6000));
  CHECK(params.positions == ints(0x7000));
  CHECK(params.cos == address(0x8000));
  CHECK(params.sin == address(0x9000));
  CHECK(params.batch == 3);
  CHECK(params.tokens == 20);
  CHECK(params.heads_kv == 2);
  CHECK(params.head_dim == 96);
  CHECK(params.page_size == 256);
  CHECK(params.pages == 50);
  CHECK(params.table_width == 12);
  CHECK(params.rotary_dim == 32);
  CHECK(params.rotations == 700);
}

TEST_CASE("slots are checked before they are used, beside nothing else") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  std::vector<std::int64_t> slots(3 * 20, -1);
  slots[25] = std::int64_t{1} << 33U;
  api::Store call = store_of(api::Rotary::none);
  call.slot_mapping = slots.data();  // the fake's device memory is the host's
  call.check_tables = true;
  fake.table_fault = {.kind = 6, .batch = 1, .position = 5, .reserved = 0};
  try {
    registry.run(call.args(), nullptr);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "slot_mapping: batch 1, position 5 is 8589934592; it must be -1, or from 0 to 12799");
  }
  CHECK(fake.launches == 1);
  const AttuneCheckParams& params = fake.last_launch.check_params;
  CHECK(params.seqlens_k == nullptr);
  CHECK(params.block_table == nullptr);
  CHECK(params.seqlen_new == 20);
  CHECK(params.max_seqlen_k == 20);
  fake.table_fault = {};
  registry.run(call.args(), nullptr);
  CHECK(fake.launches == 3);

  call.slot_mapping = nullptr;
  call.seqlens_k = nullptr;
  call.shape.table_width = 1;
  call.shape.page_size = 19;
  CHECK(status_of([&] { registry.run(call.args(), nullptr); }) == ATTUNE_INVALID_ARGUMENT);
  CHECK(fake.launches == 3);
}

TEST_CASE("what does not count reaches no kernel: the table beside slots, the rotation of what is not rotated") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  api::Store call = store_of(api::Rotary::none);
  call.slot_mapping = static_cast<const std::int64_t*>(address(0xa000));
  registry.run(call.args(), nullptr);
  REQUIRE(Bench::fake().launches == 1);
  const AttuneStoreParams& params = Bench::fake().last_launch.store_params;
  CHECK(params.slots == address(0xa000));
  CHECK(params.block_table == nullptr);
  CHECK(params.table_width == 1);
  CHECK(params.cos == nullptr);
  CHECK(params.positions == nullptr);
  CHECK(params.rotations == 0);
}

TEST_CASE("merge_states launches one kernel with the call's parameters") {
  if (!can_serve()) return;
  const Bench bench;
  testing::FakeCuda& fake = Bench::fake();
  Registry registry(bench.options());
  const attune_merge_states_args args = merge_of().args();
  registry.prepare(args);
  CHECK(fake.launches == 0);
  registry.run(args, address(0x77));
  CHECK(fake.loads == 1);
  REQUIRE(fake.launches == 1);
  CHECK(fake.last_launch.grid == Grid{17, 1, 1});  // 3 x 20 x 4 rows of 9 chunks
  CHECK(fake.last_launch.stream == address(0x77));
  const AttuneMergeParams& params = fake.last_launch.merge_params;
  CHECK(params.o1.data == address(0x1000));
  CHECK(params.o2.stride_head == 20 * 72);
  CHECK(params.o.data == address(0x3000));
  CHECK(params.lse1 == address(0x4000));
  CHECK(params.lse2 == address(0x5000));
  CHECK(params.lse == address(0x6000));
  CHECK(params.batch == 3);
  CHECK(params.seqlen == 20);
  CHECK(params.heads == 4);
  CHECK(params.head_dim == 72);
}

TEST_CASE("each rotation has a kernel of its own, and repeated calls allocate nothing and load nothing") {
  if (!can_serve()) return;
  const Bench bench;
  Registry registry(bench.options());
  const auto call_all = [&] {
    for (const api::Rotary rotary : {api::Rotary::none, api::Rotary::interleaved, api::Rotary::halves}) {
      registry.run(store_of(rotary).args(), nullptr);
    }
    registry.run(merge_of().args(), nullptr);
  };
  call_all();
  CHECK(Bench::fake().loads == 4);
  const long long before = allocations();
  for (int i = 0; i < 20; ++i) call_all();
  CHECK(allocations() == before);
  CHECK(Bench::fake().loads == 4);
}

#else

TEST_CASE("stores and merges by the registry over a fake driver") {
  MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA");
}

#endif
