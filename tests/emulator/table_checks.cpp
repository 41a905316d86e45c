// Checks of a cache's tables on the emulator against their definition.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/arguments/decode_arguments.hpp"
#include "runtime/arguments/store_arguments.hpp"
#include "runtime/arguments/table_check.hpp"
#include "runtime/error.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/decode_image.hpp"
#include "tests/harness/store_image.hpp"
#include "tests/harness/table_faults.hpp"

namespace attune::emulator_tests {
namespace {

/// What a call that shall be refused says; "" where it is not.
std::string refusal(const auto& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
    return error.what();
  }
}

}  // namespace

TEST_CASE("the first wrong slot, length or page of random calls of store_kv is named, and nothing is written") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(41);
  std::array<int, 4> kinds{};
  for (std::uint64_t i = 0; i < 150; ++i) {
    testing::StoreCase one = testing::random_store_case(random);
    one.problem.rotary = Rotary::none;
    CAPTURE(one.text());
    const testing::StoreImage image(one, i + 1);
    testing::StoreMemory memory = image.memory();
    attune_store_kv_args args = image.args(memory.fresh.data(), memory.angles.data(), memory.slots.data(),
                                           memory.ints.data(), memory.cache.data());
    args.check_tables = 1;
    const bool has_room = one.problem.tokens <= one.problem.table_width * one.problem.page_size;
    const std::string said = refusal([&] { registry.store_kv(args, nullptr); });
    if (one.slots.empty() && !has_room) {
      CHECK(said.find("tokens is") == 0);
      continue;
    }
    const AttuneCheckParams params = check_params(args, check_arguments(args));
    const AttuneTableFault expected = testing::first_fault(params);
    ++kinds[static_cast<std::size_t>(expected.kind)];
    CAPTURE(said);
    CHECK(said.find(testing::fault_text(params, expected)) == 0);
    if (expected.kind == 0) {
      CHECK(said.empty());
      CHECK(image.agrees(memory.cache));
    } else {
      CHECK(memory.cache == image.memory().cache);
    }
  }
  for (const int count : kinds) CHECK(count > 5);
}

TEST_CASE("the first wrong length or page of random calls of decode is named, those that nothing needs are not") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(42);
  std::array<int, 4> kinds{};
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  for (std::uint64_t i = 0; i < 80; ++i) {
    testing::DecodeCase one{.problem = {.batch = 1 + below(20),
                                        .head_dim = 64,
                                        .max_seqlen_k = 700,
                                        .page_size = 4,
                                        .table_width = 180,
                                        .splits = 1,
                                        .window_left = below(3) == 0 ? below(90) : -1},
                            .lengths = {}};
    one.problem.pages = one.problem.batch * one.problem.table_width;
    one.problem.seqlen_new = below(2) * 9;
    for (int b = 0; b < one.problem.batch; ++b) one.lengths.push_back(below(700 - one.problem.seqlen_new + 1));
    if (below(4) == 0) {
      constexpr std::array wild{-1, 701, std::numeric_limits<std::int32_t>::min(),
                                std::numeric_limits<std::int32_t>::max()};
      one.lengths[static_cast<std::size_t>(below(one.problem.batch))] = wild[static_cast<std::size_t>(below(4))];
    }
    const testing::DecodeImage image(one, i + 1);
    std::vector<std::int32_t> table = image.table();
    for (int wrong = below(12); wrong > 0; --wrong) {
      table[static_cast<std::size_t>(below(static_cast<int>(table.size())))] = below(2) == 0 ? -1 : one.problem.pages;
    }
    std::vector<std::uint16_t> in = image.in();
    std::vector<std::uint16_t> out = image.poisoned_out();
    std::vector<float> lse = image.poisoned_lse();
    attune_decode_args args = image.args(in.data(), out.data(), lse.data(), table.data(), image.lengths().data());
    args.check_tables = 1;
    const AttuneCheckParams params = check_params(args, check_arguments(args));
    const AttuneTableFault expected = testing::first_fault(params);
    ++kinds[static_cast<std::size_t>(expected.kind)];
    const std::string said = refusal([&] { registry.decode(args, nullptr); });
    CAPTURE(said);
    CHECK(said.find(testing::fault_text(params, expected)) == 0);
    CHECK(said.empty() == (expected.kind == 0));
    if (expected.kind != 0) CHECK(in == image.in());
  }
  for (const int kind : {0, 1, 2}) CHECK(kinds[static_cast<std::size_t>(kind)] > 5);
}

}  // namespace attune::emulator_tests
