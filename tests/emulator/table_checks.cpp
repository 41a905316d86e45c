// Checks of a cache's tables on the emulator against their definition.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/decode_image.hpp"
#include "tests/harness/random_prefill.hpp"
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
  std::array<int, 8> kinds{};
  for (std::uint64_t i = 0; i < 150; ++i) {
    testing::StoreCase one = testing::random_store_case(random);
    one.problem.rotary = Rotary::none;
    CAPTURE(one.text());
    const testing::StoreImage image(one, i + 1);
    Memory memory = image.memory();
    attune_store_kv_args args = image.args(memory.data());
    args.check_tables = 1;
    const bool has_room = one.problem.tokens <= one.problem.table_width * one.problem.page_size;
    const std::string said = refusal([&] { registry.run(args, nullptr); });
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
      CHECK(image.agrees(memory));
    } else {
      CHECK((memory == image.memory()));
    }
  }
  for (const int kind : {0, 3, 5, 6}) CHECK(kinds[static_cast<std::size_t>(kind)] > 5);
}

TEST_CASE("the first wrong length, pad or page of random calls of decode is named, those that nothing needs are not") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(42);
  std::array<int, 8> kinds{};
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  for (std::uint64_t i = 0; i < 120; ++i) {
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
    if (below(3) == 0) {
      for (int b = 0; b < one.problem.batch; ++b) one.leftpad.push_back(below(one.keys_before(b) + 1));
      if (below(2) == 0) one.leftpad[static_cast<std::size_t>(below(one.problem.batch))] = below(2) == 0 ? -1 : 701;
    }
    const testing::DecodeImage image(one, i + 1);
    std::vector<std::int32_t> table = image.table();
    for (int wrong = below(12); wrong > 0; --wrong) {
      table[static_cast<std::size_t>(below(static_cast<int>(table.size())))] = below(2) == 0 ? -1 : one.problem.pages;
    }
    Memory memory = image.memory();
    attune_decode_args args = image.args(memory.data());
    if (args.block_table != nullptr) args.block_table = table.data();
    args.check_tables = 1;
    const AttuneCheckParams params = check_params(args, check_arguments(args));
    const AttuneTableFault expected = testing::first_fault(params);
    ++kinds[static_cast<std::size_t>(expected.kind)];
    const std::string said = refusal([&] { registry.run(args, nullptr); });
    CAPTURE(said);
    CHECK(said.find(testing::fault_text(params, expected)) == 0);
    CHECK(said.empty() == (expected.kind == 0));
    if (expected.kind != 0) CHECK((memory == image.memory()));
  }
  for (const int kind : {0, 3, 4, 5}) CHECK(kinds[static_cast<std::size_t>(kind)] > 5);
}

TEST_CASE(
    "the first wrong row, length, pad or use of random ragged calls of decode is named, and pages that no query needs "
    "are "
    "not") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(43);
  std::array<int, 8> kinds{};
  const auto below = [&](int count) { return static_cast<int>(random.below(static_cast<std::uint64_t>(count))); };
  for (std::uint64_t i = 0; i < 180; ++i) {
    testing::DecodeCase one =
        i % 2 == 0 ? testing::random_ragged_case(random, 60) : testing::random_packed_case(random, 60);
    DecodeProblem& problem = one.problem;
    problem.dtype = Dtype::bf16;
    problem.head_dim = 64;
    problem.splits = 1;
    const bool has_sound_lengths = below(3) > 0;
    for (int b = 0; has_sound_lengths && b < problem.batch; ++b) {
      one.lengths[static_cast<std::size_t>(b)] = one.length(b);
    }
    if (below(2) == 0) pad_at_the_left(random, one);
    CAPTURE(one.text());
    const testing::DecodeImage image(one, i + 1);
    std::vector<std::int32_t> table = image.table();
    for (int b = 0; problem.paged() && b < problem.batch; ++b) {
      const auto [begin, end] = one.queries_of(b);
      if (begin == end) std::fill_n(table.begin() + b * problem.table_width, problem.table_width, -1);
    }
    std::vector<std::int32_t> cu_seqlens_q = one.cu_seqlens_q;
    std::vector<std::int32_t> cu_seqlens_k = one.cu_seqlens_k;
    if (below(3) == 0) testing::make_wild(random, cu_seqlens_q, problem.total_q);
    if (below(3) == 0) testing::make_wild(random, cu_seqlens_k, problem.total_k);
    Memory memory = image.memory();
    attune_decode_args args = image.args(memory.data());
    if (args.block_table != nullptr) args.block_table = table.data();
    args.cu_seqlens_q = cu_seqlens_q.data();
    if (problem.packed_keys) args.cu_seqlens_k = cu_seqlens_k.data();
    args.check_tables = 1;
    const AttuneCheckParams params = check_params(args, check_arguments(args));
    const AttuneTableFault expected = testing::first_fault(params);
    ++kinds[static_cast<std::size_t>(expected.kind)];
    const std::string said = refusal([&] { registry.run(args, nullptr); });
    CAPTURE(said);
    CHECK(said.find(testing::fault_text(params, expected)) == 0);
    CHECK(said.empty() == (expected.kind == 0));
    if (expected.kind == 0) {
      image.check(memory);
    } else {
      CHECK((memory == image.memory()));
    }
  }
  for (const int kind : {0, 1, 2, 3, 4, 7}) CHECK(kinds[static_cast<std::size_t>(kind)] > 5);
}

TEST_CASE("a wrong row of cu_seqlens is told with the rows that it may be") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  const testing::DecodeCase one{.problem = {.batch = 3,
                                            .seqlen_q = 4,
                                            .head_dim = 64,
                                            .max_seqlen_k = 30,
                                            .splits = 1,
                                            .ragged = true,
                                            .total_q = 6,
                                            .packed_keys = true,
                                            .total_k = 50},
                                .lengths = {10, 0, 20},
                                .has_table = false,
                                .cu_seqlens_q = {0, 4, 4, 6},
                                .cu_seqlens_k = {0, 10, 20, 50}};
  const testing::DecodeImage image(one, 1);
  const auto said_of = [&](const std::vector<std::int32_t>& lengths) {
    Memory memory = image.memory();
    put(memory, image.lengths_place(), lengths);
    attune_decode_args args = image.args(memory.data());
    args.check_tables = 1;
    return refusal([&] { registry.run(args, nullptr); });
  };
  const auto with = [&](std::size_t place, std::int32_t value) {
    std::vector<std::int32_t> ints = image.lengths();  // then cu_seqlens_q and cu_seqlens_k
    ints[place] = value;
    return ints;
  };
  CHECK(said_of(image.lengths()).empty());
  CHECK(said_of(with(3, -1)) == "cu_seqlens_q: batch 0, position 0 is -1; it must be from 0 to 6");
  CHECK(said_of(with(5, 3)) == "cu_seqlens_q: batch 1, position 1 is 3; it must be from 4 to 6");
  CHECK(said_of(with(6, 7)) == "cu_seqlens_q: batch 2, position 1 is 7; it must be from 4 to 6");
  CHECK(said_of(with(8, 51)) == "cu_seqlens_k: batch 0, position 1 is 51; it must be from 0 to 50");
  CHECK(said_of(with(10, 19)) == "cu_seqlens_k: batch 2, position 1 is 19; it must be from 20 to 50");
  CHECK(said_of(with(1, 11)) == "seqlens_k: batch 1, position 0 is 11; it must be from 0 to 10");
}

}  // namespace attune::emulator_tests
