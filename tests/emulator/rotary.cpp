// rotary_embedding on the emulator against its definition.
#include <doctest/doctest.h>

#include "runtime/base/error.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/rotary_call.hpp"

namespace attune::emulator_tests {

using testing::RotaryCall;

TEST_CASE("rotary_embedding turns queries and keys as store_kv turns keys, to the bit, and touches nothing else") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(41);
  for (int i = 0; i < 120; ++i) {
    const RotaryCall call(random);
    CAPTURE(call.problem().text());
    Memory memory = call.memory();
    registry.run(call.args(memory.data()), nullptr);
    const bool agrees = memory == call.expected();
    CHECK(agrees);
  }
}

TEST_CASE("what is wrong with a call of rotary_embedding is named, all of it") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(42);
  const RotaryCall call(random);
  Memory memory = call.memory();
  attune_rotary_embedding_args args = call.args(memory.data());
  args.rotary_dim = 24;
  args.heads_q = 0;
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("rotary_dim is 24"));
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("heads_q is 0"));
  args.rotary = ATTUNE_ROTARY_NONE;
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("rotary is 0 (none)"));
  args = call.args(memory.data());
  args.rotary_cos = nullptr;
  args.q.stride_seq = 0;
  args.seqlen = 2;
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("rotary_cos is null"));
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("q.stride_seq is 0"));
  CHECK((memory == call.memory()));
}

}  // namespace attune::emulator_tests
