// Decode on the GPU through the C ABI: agreement, determinism, and sequences that do not know of each other.
#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/graph.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/decode_image.hpp"

namespace attune::gpu_tests {
namespace {

using testing::DecodeCase;
using testing::DecodeImage;

/// A call in device memory, with the workspace that it needs, which is full of NaN.
class DecodeCall {
 public:
  DecodeCall(const TestRegistry& registry, const DecodeCase& one, std::uint64_t seed)
      : image_(one, seed), before_(image_.memory()), memory_(on_device(before_)) {
    args = image_.args(memory_.data());
    REQUIRE_MESSAGE(attune_decode_workspace(registry.get(), &args, &args.workspace_bytes) == ATTUNE_OK,
                    attune_last_error());
    workspace_.emplace(gpu().driver, args.workspace_bytes + 16);
    workspace_->upload(std::vector<std::uint8_t>(args.workspace_bytes + 16, 0xff));
    args.workspace = workspace_->data();
  }

  attune_decode_args args{};

  /// The memory as it was before the first call.
  void restore() const { memory_.upload(before_); }

  /// Other lengths than the image's, of no more keys, from now on.
  void set_lengths(const std::vector<std::int32_t>& lengths) {
    put(before_, image_.lengths_place(), lengths);
    memory_.upload(lengths, image_.lengths_place());
  }

  [[nodiscard]] Memory fetch() const { return fetched(memory_, before_); }

  [[nodiscard]] const DecodeImage& image() const { return image_; }

 private:
  DecodeImage image_;
  Memory before_;
  DeviceBuffer memory_;
  std::optional<DeviceBuffer> workspace_;
};

Memory run(const TestRegistry& registry, const DecodeCall& call) {
  call.restore();
  REQUIRE_MESSAGE(attune_decode(registry.get(), &call.args, nullptr) == ATTUNE_OK, attune_last_error());
  return call.fetch();
}

void check_random_problems(std::uint64_t seed, std::uint64_t count, DecodeCase (&random_case)(Random&, int)) {
  const TestRegistry registry;
  Random random(seed);
  std::vector<DecodeCase> cases;
  std::vector<attune_decode_args> calls;
  for (std::uint64_t i = 0; i < count; ++i) {
    cases.push_back(random_case(random, i % 4 == 0 ? 3000 : 300));
    calls.push_back(DecodeImage(cases.back(), i + 1).args(no_memory()));
  }
  prepare_ahead(registry, ATTUNE_DECODE, calls);
  for (std::uint64_t i = 0; i < count; ++i) {
    CAPTURE(cases[i].text());
    const DecodeCall call(registry, cases[i], i + 1);
    call.image().check(run(registry, call));
  }
}

DecodeCase long_case(int splits) {
  return {.problem = {.batch = 5,
                      .heads_q = 8,
                      .heads_kv = 2,
                      .head_dim = 128,
                      .max_seqlen_k = 5000,
                      .page_size = 64,
                      .pages = 400,
                      .table_width = 79,
                      .splits = splits,
                      .window_right = 0},
          .lengths = {4999, 1, 0, 777, 5000}};
}

/// The same with three new keys for as many queries; those of the last sequence are beyond what is seen.
DecodeCase long_append_case(int splits) {
  DecodeCase one = long_case(splits);
  one.problem.seqlen_q = one.problem.seqlen_new = 3;
  one.problem.rotary = Rotary::halves;
  one.problem.rotary_dim = 64;
  one.problem.rotations = 5000;
  return one;
}

/// Few enough keys, and plain enough, for kernels whose parts are a cluster, behind a launch that stores three new
/// ones.
DecodeCase short_append_case() {
  DecodeCase one = long_case(0);
  one.problem.seqlen_q = one.problem.seqlen_new = 3;
  one.problem.max_seqlen_k = 2000;
  one.lengths = {1999, 1, 0, 777, 2000};
  return one;
}

}  // namespace

TEST_CASE("decode agrees with the reference on 200 random problems") {
  check_random_problems(11, 200, testing::random_decode_case);
}

TEST_CASE("decode with new keys, rotations and softcaps agrees with the reference on 300 random problems") {
  check_random_problems(12, 300, testing::random_append_case);
}

TEST_CASE("ragged decode agrees with the reference on 200 random problems, and writes no row of no sequence") {
  check_random_problems(13, 200, testing::random_ragged_case);
}

TEST_CASE("decode of packed keys agrees with the reference on 200 random problems") {
  check_random_problems(14, 200, testing::random_packed_case);
}

TEST_CASE("sequences padded at the left agree with the reference on 300 random problems, and no pad reaches a result") {
  check_random_problems(15, 300, testing::random_leftpad_case);
}

TEST_CASE("ten runs of decode on the same inputs give the same bits") {
  const TestRegistry registry;
  for (const int splits : {0, 1, 7}) {
    CAPTURE(splits);
    for (const DecodeCase& one : {long_case(splits), long_append_case(splits)}) {
      const DecodeCall call(registry, one, 3);
      const Memory first = run(registry, call);
      call.image().check(first);
      for (int i = 1; i < 10; ++i) CHECK((run(registry, call) == first));
    }
  }
}

TEST_CASE("with a number of splits a sequence has the same bits alone and in a batch") {
  const TestRegistry registry;
  for (const int splits : {1, 3}) {
    CAPTURE(splits);
    const DecodeCall call(registry, long_append_case(splits), 4);
    const Memory together = run(registry, call);
    call.restore();
    for (int sequence = 0; sequence < call.args.batch; ++sequence) {
      const attune_decode_args alone = testing::only_sequence(call.args, sequence);
      REQUIRE_MESSAGE(attune_decode(registry.get(), &alone, nullptr) == ATTUNE_OK, attune_last_error());
    }
    CHECK((call.fetch() == together));
  }
}

TEST_CASE("a captured step appends at each replay behind what the lengths say then") {
  const TestRegistry registry;
  REQUIRE(short_append_case().problem.clusters() == Clusters::measured);
  for (const DecodeCase& one : {long_append_case(0), short_append_case()}) {
    CAPTURE(one.text());
    DecodeCall call(registry, one, 7);
    const CapturedGraph graph([&](void* stream) {
      REQUIRE_MESSAGE(attune_decode(registry.get(), &call.args, stream) == ATTUNE_OK, attune_last_error());
      attune_decode_args checked = call.args;
      checked.check_tables = 1;
      CHECK(attune_decode(registry.get(), &checked, stream) == ATTUNE_INVALID_ARGUMENT);
    });
    std::vector<std::int32_t> lengths = call.image().lengths();
    for (int step = 0; step < 4; ++step) {
      CAPTURE(step);
      call.set_lengths(lengths);
      call.restore();
      gpu().driver.synchronize();  // the graph's stream does not wait for copies
      graph.replay();
      const Memory replayed = call.fetch();
      if (step == 0) call.image().check(replayed);
      CHECK((run(registry, call) == replayed));
      for (std::int32_t& length : lengths) length -= 70;  // sequences without keys are padding
    }
  }
}

TEST_CASE("a wrong length is named before decode begins, and sound tables pass") {
  const TestRegistry registry;
  for (const bool wrong : {false, true}) {
    DecodeCase one = long_append_case(0);
    one.lengths = {4997, 1, 0, 777, 2000};
    if (wrong) one.lengths[3] = 4998;
    DecodeCall call(registry, one, 6);
    call.args.check_tables = 1;
    const attune_status status = attune_decode(registry.get(), &call.args, nullptr);
    CHECK(status == (wrong ? ATTUNE_INVALID_ARGUMENT : ATTUNE_OK));
    if (wrong) {
      CHECK(std::string(attune_last_error()) == "seqlens_k: batch 3, position 0 is 4998; it must be from 0 to 4997");
    } else {
      call.image().check(call.fetch());
    }
  }
}

TEST_CASE("a wrong row of cu_seqlens_q or cu_seqlens_k is named before decode begins, and sound ones pass") {
  const TestRegistry registry;
  const DecodeCase one{.problem = {.batch = 3,
                                   .seqlen_q = 4,
                                   .heads_q = 4,
                                   .heads_kv = 1,
                                   .max_seqlen_k = 700,
                                   .ragged = true,
                                   .total_q = 6,
                                   .packed_keys = true,
                                   .total_k = 1000},
                       .lengths = {290, 0, 700},
                       .has_table = false,
                       .cu_seqlens_q = {0, 4, 4, 6},
                       .cu_seqlens_k = {0, 300, 300, 1000}};
  DecodeCall call(registry, one, 8);
  call.args.check_tables = 1;
  REQUIRE_MESSAGE(attune_decode(registry.get(), &call.args, nullptr) == ATTUNE_OK, attune_last_error());
  call.image().check(call.fetch());
  const auto said_of = [&](std::size_t place, std::int32_t value) {
    std::vector<std::int32_t> ints = call.image().lengths();  // then cu_seqlens_q and cu_seqlens_k
    ints[place] = value;
    call.set_lengths(ints);
    CHECK(attune_decode(registry.get(), &call.args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    return std::string(attune_last_error());
  };
  CHECK(said_of(5, 3) == "cu_seqlens_q: batch 1, position 1 is 3; it must be from 4 to 6");
  CHECK(said_of(10, 1001) == "cu_seqlens_k: batch 2, position 1 is 1001; it must be from 300 to 1000");
  CHECK(said_of(0, 301) == "seqlens_k: batch 0, position 0 is 301; it must be from 0 to 300");
}

TEST_CASE("calls of decode that follow each other on one workspace do not disturb each other") {
  const TestRegistry registry;
  const DecodeCall call(registry, long_append_case(0), 5);
  const Memory expected = run(registry, call);
  call.restore();
  for (int i = 0; i < 20; ++i) {
    REQUIRE_MESSAGE(attune_decode(registry.get(), &call.args, nullptr) == ATTUNE_OK, attune_last_error());
  }
  CHECK((call.fetch() == expected));
}

}  // namespace attune::gpu_tests
