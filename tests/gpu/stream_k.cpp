// Tiles that thread blocks share, given a workspace.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/gpu/graph.hpp"
#include "tests/gpu/harness.hpp"

namespace attune::gpu_tests {
namespace {

/// One tile of each head and a few more heads than multiprocessors; or, with `rounds`, so many rounds before them.
Problem problem_of(int head_dim, int head_dim_v, int rounds) {
  const int heads = gpu().device.multiprocessors * (rounds + 1) + 15;
  return {.batch = 1,
          .heads_q = heads,
          .heads_kv = heads,
          .seqlen_q = 100,
          .seqlen_k = 700,
          .head_dim = head_dim,
          .head_dim_v = head_dim_v};
}

/// The workspace of a call, full of one byte.
class TestWorkspace {
 public:
  TestWorkspace(const TestRegistry& registry, TestCall& call, std::uint8_t filling) : memory_(of(registry, call)) {
    memory_.upload(std::vector<std::uint8_t>(call.args.workspace_bytes, filling));
    call.args.workspace = memory_.data();
  }

 private:
  static DeviceBuffer of(const TestRegistry& registry, TestCall& call) {
    REQUIRE(attune_prefill_workspace(registry.get(), &call.args, &call.args.workspace_bytes) == ATTUNE_OK);
    REQUIRE(call.args.workspace_bytes > 0);
    return {gpu().driver, call.args.workspace_bytes};
  }

  DeviceBuffer memory_;
};

}  // namespace

TEST_CASE("tiles that blocks share have the bits of whole ones, whatever the workspace held, ten times over") {
  const TestRegistry registry;
  struct Shape {
    int head_dim, head_dim_v, rounds;
  };
  for (const auto& [head_dim, head_dim_v, rounds] :
       {Shape{64, 0, 0}, Shape{64, 0, 2}, Shape{96, 0, 1}, Shape{128, 0, 0}, Shape{120, 0, 2}, Shape{192, 0, 1},
        Shape{192, 128, 1}}) {
    TestCall call(problem_of(head_dim, head_dim_v, rounds), Layout::gaps, 3);
    CAPTURE(call.image().problem().text());
    REQUIRE(call.run(registry) == ATTUNE_OK);
    const Outputs whole = call.fetch();
    CHECK(call.compare_with_reference(whole).agrees);
    for (const std::uint8_t filling : {0x00, 0xff, 0x3c}) {
      const TestWorkspace workspace(registry, call, filling);
      check_same_bits(registry, call, whole, 10);
    }
  }
}

TEST_CASE("too small a workspace is not used") {
  const TestRegistry registry;
  TestCall call(problem_of(128, 0, 0), Layout::bshd, 5);
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs whole = call.fetch();
  const TestWorkspace workspace(registry, call, 0xff);
  call.args.workspace_bytes -= 1;
  check_same_bits(registry, call, whole, 1);
}

TEST_CASE("a captured launch that shares tiles replays") {
  const TestRegistry registry;
  TestCall call(problem_of(128, 0, 1), Layout::bshd, 7);
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs whole = call.fetch();
  const TestWorkspace workspace(registry, call, 0xff);
  const CapturedGraph graph(
      [&](void* stream) { REQUIRE(attune_prefill(registry.get(), &call.args, stream) == ATTUNE_OK); });
  for (int i = 0; i < 5; ++i) {
    call.poison();
    graph.replay();
    CHECK(call.fetch() == whole);
  }
}

}  // namespace attune::gpu_tests
