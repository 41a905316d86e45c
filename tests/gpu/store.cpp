// store_kv and merge_states on the GPU through the C ABI, against their definitions.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/merge_image.hpp"
#include "tests/harness/store_image.hpp"
#include "tests/harness/table_faults.hpp"

namespace attune::gpu_tests {
namespace {

using testing::MergeCase;
using testing::MergeImage;
using testing::StoreCase;
using testing::StoreImage;

void check_store(const TestRegistry& registry, const StoreCase& one, std::uint64_t seed) {
  CAPTURE(one.text());
  const StoreImage image(one, seed);
  const DeviceBuffer memory = on_device(image.memory());
  const attune_store_kv_args args = image.args(memory.data());
  REQUIRE_MESSAGE(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
  REQUIRE_MESSAGE(attune_store_kv(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
  CHECK(image.agrees(fetched(memory, image.memory())));
}

void check_merge(const TestRegistry& registry, const MergeCase& one, std::uint64_t seed) {
  CAPTURE(one.text());
  const MergeImage image(one, seed);
  const DeviceBuffer memory = on_device(image.memory());
  const attune_merge_states_args args = image.args(memory.data());
  REQUIRE_MESSAGE(attune_merge_states_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
  REQUIRE_MESSAGE(attune_merge_states(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
  image.check(fetched(memory, image.memory()));
}

}  // namespace

TEST_CASE("store_kv writes the new rows of 200 random problems where they belong, and nothing else") {
  const TestRegistry registry;
  Random random(31);
  for (std::uint64_t i = 0; i < 200; ++i) check_store(registry, testing::random_store_case(random), i + 1);
}

TEST_CASE("of wrong slots, lengths and pages the first is named, and nothing is written") {
  const TestRegistry registry;
  Random random(33);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const StoreCase one = testing::random_store_case(random);
    CAPTURE(one.text());
    const StoreImage image(one, i + 1);
    Memory memory = image.memory();
    const attune_store_kv_args host = image.args(memory.data());
    if (one.slots.empty() && one.problem.tokens > one.problem.table_width * one.problem.page_size) continue;
    const AttuneCheckParams params = check_params(host, check_arguments(host));
    const AttuneTableFault expected = testing::first_fault(params);
    const DeviceBuffer buffer = on_device(memory);
    attune_store_kv_args args = image.args(buffer.data());
    args.check_tables = 1;
    const attune_status status = attune_store_kv(registry.get(), &args, nullptr);
    CHECK(status == (expected.kind == 0 ? ATTUNE_OK : ATTUNE_INVALID_ARGUMENT));
    const Memory after = fetched(buffer, memory);
    if (expected.kind == 0) {
      CHECK(image.agrees(after));
    } else {
      CHECK(std::string(attune_last_error()).find(testing::fault_text(params, expected)) == 0);
      CHECK((after == memory));
    }
  }
}

TEST_CASE("store_kv writes a prompt of many tokens, rotated or not") {
  const TestRegistry registry;
  for (const Rotary rotary : {Rotary::none, Rotary::interleaved, Rotary::halves}) {
    StoreCase one{.problem = {.batch = 2,
                              .tokens = 3000,
                              .heads_kv = 8,
                              .head_dim = 128,
                              .page_size = 16,
                              .pages = 512,
                              .table_width = 200,
                              .rotary = rotary,
                              .rotary_dim = rotary == Rotary::none ? 0 : 96,
                              .rotations = rotary == Rotary::none ? 0 : 4096}};
    one.lengths = {100, 7};
    for (int i = 0; i < 400; ++i) one.table.push_back((i * 37 + 11) % 512);
    check_store(registry, one, 5);
  }
}

TEST_CASE("merge_states agrees with the formula on 100 random problems, in place or not") {
  const TestRegistry registry;
  Random random(32);
  for (std::uint64_t i = 0; i < 100; ++i) check_merge(registry, testing::random_merge_case(random), i + 1);
}

TEST_CASE("merge_states merges long sequences in place") {
  const TestRegistry registry;
  for (const int in_place : {0, 1, 2}) {
    check_merge(registry, {.problem = {.batch = 2, .seqlen = 1500, .heads = 16, .head_dim = 128}, .in_place = in_place},
                6);
  }
}

}  // namespace attune::gpu_tests
