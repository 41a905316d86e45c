// store_kv and merge_states on the emulator against their definitions.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "generator/collect.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/reference.hpp"
#include "runtime/operations/merge/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/merge_image.hpp"
#include "tests/harness/store_image.hpp"

namespace attune::emulator_tests {
namespace {

using testing::MergeCase;
using testing::MergeImage;
using testing::StoreCase;
using testing::StoreImage;

/// The shipped kernels, compiled on first need.
class Kernels {
 public:
  Kernels() {
    const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
    const Result<Collection> collected = collect(std::vector{specs / "store_kv.yaml", specs / "merge_states.yaml"});
    REQUIRE(collected.ok());
    for (const Wanted& one : collected.value.wanted) variants_.push_back(one.variant);
  }

  /// Runs a call; what was found.
  template <class Args>
  std::string run(const Args& args, std::uint64_t seed) {
    const auto problem = check_arguments(args);
    auto whole = problem;
    whole.head_dim = padded_head_dim(problem.head_dim);
    Variant variant = choose(variants_, whole, emulator::device()).value();
    variant.cut_rows = is_cut(problem.head_dim) ? 1 : 0;
    return run_emulated(FixedKernels{&kernels_[variant]}, args, problem, {.seed = seed}).fault;
  }

 private:
  std::vector<Variant> variants_;
  HostKernels kernels_;
};

/// One row of each result, of eight columns.
struct Row {
  std::vector<std::uint16_t> o1 = std::vector<std::uint16_t>(8, to_storage(Dtype::bf16, 1));
  std::vector<std::uint16_t> o2 = std::vector<std::uint16_t>(8, to_storage(Dtype::bf16, 3));
  std::vector<std::uint16_t> o = std::vector<std::uint16_t>(8);
  float lse1 = 0;
  float lse2 = 0;
  float lse = 0;

  attune_merge_states_args args() {
    attune_merge_states_args args{};
    args.struct_size = sizeof(args);
    args.dtype = ATTUNE_BF16;
    args.o1.data = o1.data();
    args.o2.data = o2.data();
    args.o.data = o.data();
    args.lse1 = &lse1;
    args.lse2 = &lse2;
    args.lse = &lse;
    args.batch = args.seqlen = args.heads = 1;
    args.head_dim = 8;
    return args;
  }
};

}  // namespace

TEST_CASE("shipped store_kv kernels write the new rows of random problems where they belong, and nothing else") {
  Kernels kernels;
  Random random(21);
  for (std::uint64_t i = 0; i < 150; ++i) {
    const StoreCase one = testing::random_store_case(random);
    CAPTURE(one.text());
    const StoreImage image(one, i + 1);
    Memory memory = image.memory();
    const std::string fault = kernels.run(image.args(memory.data()), i + 1);
    REQUIRE_MESSAGE(fault.empty(), fault);
    CHECK(image.agrees(memory));
  }
}

TEST_CASE("shipped merge_states kernels agree with the formula on random problems, in place or not") {
  Kernels kernels;
  Random random(22);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const MergeCase one = testing::random_merge_case(random);
    CAPTURE(one.text());
    const MergeImage image(one, i + 1);
    Memory memory = image.memory();
    const std::string fault = kernels.run(image.args(memory.data()), i + 1);
    REQUIRE_MESSAGE(fault.empty(), fault);
    image.check(memory);
  }
}

TEST_CASE("a result merged with one over no keys stays what it is, to the bit") {
  Kernels kernels;
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  Row row;
  row.lse1 = 7.25F;
  row.lse2 = nothing;
  REQUIRE(kernels.run(row.args(), 1).empty());
  CHECK(row.o == row.o1);
  CHECK(row.lse == row.lse1);
  std::swap(row.lse1, row.lse2);
  REQUIRE(kernels.run(row.args(), 1).empty());
  CHECK(row.o == row.o2);
  CHECK(row.lse == row.lse2);
}

TEST_CASE("an LSE of +inf, as FlashAttention-2 has it of a row without keys, is one of -inf") {
  Kernels kernels;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Row row;
  row.lse1 = 7.25F;
  row.lse2 = infinity;
  row.o2.assign(row.o2.size(), 0x7fff);  // nobody wrote it
  REQUIRE(kernels.run(row.args(), 1).empty());
  CHECK(row.o == row.o1);
  CHECK(row.lse == row.lse1);
  row.lse1 = infinity;
  row.lse2 = -infinity;
  REQUIRE(kernels.run(row.args(), 1).empty());
  CHECK(row.o == std::vector<std::uint16_t>(row.o.size()));
  CHECK(row.lse == -infinity);
}

TEST_CASE("what is wrong with a result shows in the merged one") {
  Kernels kernels;
  for (const bool first : {false, true}) {
    Row row;
    (first ? row.lse1 : row.lse2) = std::numeric_limits<float>::quiet_NaN();
    REQUIRE(kernels.run(row.args(), 1).empty());
    CHECK(std::isnan(row.lse));
    CHECK(std::isnan(from_storage(Dtype::bf16, row.o[0])));
    Row other;
    (first ? other.o1 : other.o2)[3] = 0x7fff;
    REQUIRE(kernels.run(other.args(), 1).empty());
    CHECK(std::isnan(from_storage(Dtype::bf16, other.o[3])));
    CHECK(from_storage(Dtype::bf16, other.o[2]) == 2);
  }
}

TEST_CASE("two tokens that are given one place are found out") {
  Kernels kernels;
  StoreCase one{.problem = {.batch = 1, .tokens = 2, .heads_kv = 1, .head_dim = 64, .page_size = 4, .pages = 1}};
  one.slots = {3, 3};
  const StoreImage image(one, 1);
  Memory memory = image.memory();
  CHECK_FALSE(kernels.run(image.args(memory.data()), 1).empty());
}

TEST_CASE("a registry that emulates stores and merges") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(23);
  const StoreImage image(testing::random_store_case(random), 3);
  Memory memory = image.memory();
  const attune_store_kv_args args = image.args(memory.data());
  registry.prepare(args);
  registry.run(args, nullptr);
  CHECK(image.agrees(memory));
  Row row;
  registry.prepare(row.args());
  registry.run(row.args(), nullptr);
  CHECK(from_storage(Dtype::bf16, row.o[0]) == 2);
  CHECK(row.lse == doctest::Approx(std::log(2.0)));
}

}  // namespace attune::emulator_tests
