// rotary_embedding on the GPU through the C ABI, against its definition.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/gpu/harness.hpp"
#include "tests/harness/rotary_call.hpp"

namespace attune::gpu_tests {

TEST_CASE("rotary_embedding turns queries and keys to the bit, and touches nothing else") {
  const TestRegistry registry;
  Random random(43);
  for (int i = 0; i < 200; ++i) {
    const testing::RotaryCall call(random);
    CAPTURE(call.problem().text());
    const cli::DeviceBuffer elements(gpu().driver, call.elements().size() * sizeof(std::uint16_t));
    const cli::DeviceBuffer positions(gpu().driver, call.positions().size() * sizeof(std::int32_t));
    elements.upload(call.elements());
    positions.upload(call.positions());
    const attune_rotary_embedding_args args = call.args(elements.data(), positions.data());
    REQUIRE_MESSAGE(attune_rotary_embedding_prepare(registry.get(), &args) == ATTUNE_OK, attune_last_error());
    REQUIRE_MESSAGE(attune_rotary_embedding(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    gpu().driver.synchronize();
    std::vector<std::uint16_t> after = call.elements();
    elements.download(after);
    const bool agrees = after == call.expected();
    CHECK(agrees);
  }
}

}  // namespace attune::gpu_tests
