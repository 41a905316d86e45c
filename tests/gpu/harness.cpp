#include "tests/gpu/harness.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace attune::gpu_tests {
const cli::Gpu& gpu() {
  static const cli::Found<cli::Gpu> found = cli::find_gpu();
  REQUIRE_MESSAGE(found, found.problem);
  return *found.value;
}

TestRegistry::TestRegistry(attune_compile_policy policy, attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(attune_options);
  options.compile_policy = policy;
  options.device = device;
  options.emulator_seed = 1;
  static_cast<void>(gpu());  // its context, in which calls are prepared
  REQUIRE(attune_registry_create(&options, &registry_) == ATTUNE_OK);
}

TestRegistry::~TestRegistry() { attune_registry_destroy(registry_); }

TestCall::TestCall(CallImage image) : image_(std::move(image)), memory_(on_device(image_.memory())) {
  args = image_.args(memory_.data());
}

void TestCall::poison() const { memory_.upload(image_.memory()); }

attune_status TestCall::run(const TestRegistry& registry, void* stream) const {
  const attune_status status = attune_prefill(registry.get(), &args, stream);
  gpu().driver.synchronize();
  return status;
}

Outputs TestCall::fetch() const { return image_.outputs(fetched(memory_, image_.memory())); }

void check_same_bits(const TestRegistry& registry, const TestCall& call, const Outputs& bits, int times) {
  for (int i = 0; i < times; ++i) {
    call.poison();
    REQUIRE(call.run(registry) == ATTUNE_OK);
    CHECK(call.fetch() == bits);
  }
}

void check_call(const TestRegistry& registry, const TestCall& call) {
  CAPTURE(call.image().problem().text());
  const attune_status status = call.run(registry);
  CHECK_MESSAGE(status == ATTUNE_OK, attune_last_error());
  if (status == ATTUNE_OK) call.image().check(call.fetch(), call.args.softmax_scale);
}

void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed) {
  CAPTURE(name_of(layout));
  check_call(registry, TestCall(problem, layout, seed));
}

}  // namespace attune::gpu_tests
