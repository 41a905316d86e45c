// store_kv and merge_states on the GPU through the C ABI, against their definitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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
using testing::MergeMemory;
using testing::StoreCase;
using testing::StoreImage;
using testing::StoreMemory;

/// A vector's copy in device memory; of an empty one, some memory.
template <class T>
class DeviceVector {
 public:
  explicit DeviceVector(const std::vector<T>& values)
      : buffer_(gpu().driver, std::max<std::size_t>(values.size(), 1) * sizeof(T)) {
    if (!values.empty()) buffer_.upload(values);
  }
  [[nodiscard]] void* data() const { return buffer_.data(); }
  void download(std::vector<T>& values) const { buffer_.download(values); }

 private:
  DeviceBuffer buffer_;
};

void check_store(const TestRegistry& registry, const StoreCase& one, std::uint64_t seed) {
  CAPTURE(one.text());
  const StoreImage image(one, seed);
  const StoreMemory& memory = image.memory();
  const DeviceVector fresh(memory.fresh);
  const DeviceVector angles(memory.angles);
  const DeviceVector slots(memory.slots);
  const DeviceVector ints(memory.ints);
  const DeviceVector cache(memory.cache);
  const attune_store_kv_args args = image.args(fresh.data(), angles.data(), slots.data(), ints.data(), cache.data());
  REQUIRE_MESSAGE(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
  REQUIRE_MESSAGE(attune_store_kv(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
  gpu().driver.synchronize();
  std::vector<std::uint16_t> after = memory.cache;
  cache.download(after);
  CHECK(image.agrees(after));
}

/// A call in device memory.
struct DeviceMerge {
  explicit DeviceMerge(const MergeImage& image) {
    for (std::size_t i = 0; i < 3; ++i) {
      o[i].emplace(image.memory().o[i]);
      lse[i].emplace(image.memory().lse[i]);
    }
  }

  [[nodiscard]] attune_merge_states_args args(const MergeImage& image) const {
    return image.args({o[0]->data(), o[1]->data(), o[2]->data()}, {lse[0]->data(), lse[1]->data(), lse[2]->data()});
  }

  [[nodiscard]] MergeMemory fetch(const MergeImage& image) const {
    gpu().driver.synchronize();
    MergeMemory after = image.memory();
    for (std::size_t i = 0; i < 3; ++i) {
      o[i]->download(after.o[i]);
      lse[i]->download(after.lse[i]);
    }
    return after;
  }

  std::array<std::optional<DeviceVector<std::uint16_t>>, 3> o;
  std::array<std::optional<DeviceVector<float>>, 3> lse;
};

void check_merge(const TestRegistry& registry, const MergeCase& one, std::uint64_t seed) {
  CAPTURE(one.text());
  const MergeImage image(one, seed);
  const DeviceMerge call(image);
  const attune_merge_states_args args = call.args(image);
  REQUIRE_MESSAGE(attune_merge_states_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
  REQUIRE_MESSAGE(attune_merge_states(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
  image.check(call.fetch(image));
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
    StoreMemory memory = image.memory();
    const attune_store_kv_args host = image.args(memory.fresh.data(), memory.angles.data(), memory.slots.data(),
                                                 memory.ints.data(), memory.cache.data());
    if (one.slots.empty() && one.problem.tokens > one.problem.table_width * one.problem.page_size) continue;
    const AttuneCheckParams params = check_params(host, check_arguments(host));
    const AttuneTableFault expected = testing::first_fault(params);
    const DeviceVector fresh(memory.fresh);
    const DeviceVector angles(memory.angles);
    const DeviceVector slots(memory.slots);
    const DeviceVector ints(memory.ints);
    const DeviceVector cache(memory.cache);
    attune_store_kv_args args = image.args(fresh.data(), angles.data(), slots.data(), ints.data(), cache.data());
    args.check_tables = 1;
    const attune_status status = attune_store_kv(registry.get(), &args, nullptr);
    CHECK(status == (expected.kind == 0 ? ATTUNE_OK : ATTUNE_INVALID_ARGUMENT));
    gpu().driver.synchronize();
    std::vector<std::uint16_t> after = memory.cache;
    cache.download(after);
    if (expected.kind == 0) {
      CHECK(image.agrees(after));
    } else {
      CHECK(std::string(attune_last_error()).find(testing::fault_text(params, expected)) == 0);
      CHECK((after == memory.cache));
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
