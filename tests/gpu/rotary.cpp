// rotary_embedding on the GPU through the C ABI, against its definition.
#include <doctest/doctest.h>

#include "tests/gpu/harness.hpp"
#include "tests/harness/rotary_call.hpp"

namespace attune::gpu_tests {

TEST_CASE("rotary_embedding turns queries and keys to the bit, and touches nothing else") {
  const TestRegistry registry;
  Random random(43);
  for (int i = 0; i < 200; ++i) {
    const testing::RotaryCall call(random);
    CAPTURE(call.problem().text());
    const DeviceBuffer memory = on_device(call.memory());
    const attune_rotary_embedding_args args = call.args(memory.data());
    REQUIRE_MESSAGE(attune_rotary_embedding_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
    REQUIRE_MESSAGE(attune_rotary_embedding(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    const bool agrees = fetched(memory, call.memory()) == call.expected();
    CHECK(agrees);
  }
}

}  // namespace attune::gpu_tests
