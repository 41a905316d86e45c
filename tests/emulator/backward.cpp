// The backward pass on the emulator against its float64 reference.
#include <doctest/doctest.h>

#include "runtime/base/error.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/backward_image.hpp"

namespace attune::emulator_tests {

using testing::BackwardCase;
using testing::BackwardImage;
using testing::Layout;

namespace {

/// The memory that a call leaves.
Memory run(Registry& registry, const BackwardImage& image) {
  Memory memory = image.memory();
  registry.run(image.args(memory.data()), nullptr);
  return memory;
}

void check(Registry& registry, const BackwardCase& one, std::uint64_t seed) {
  const BackwardImage image(one, seed);
  image.check(run(registry, image));
}

BackwardCase dense(int head_dim, int seqlen_q, int seqlen_k, bool causal) {
  BackwardCase one;
  one.prefill.problem = {.batch = 1,
                         .heads_q = 2,
                         .heads_kv = 1,
                         .seqlen_q = seqlen_q,
                         .seqlen_k = seqlen_k,
                         .head_dim = head_dim,
                         .causal = causal};
  one.prefill.layout = Layout::gaps;
  return one;
}

}  // namespace

TEST_CASE("gradients of every head_dim agree with the reference, whatever the order of sums") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const int head_dim : {32, 64, 96, 128, 192, 256}) {
    for (const bool any_order : {false, true}) {
      BackwardCase one = dense(head_dim, 150, 170, head_dim % 64 == 0);
      one.any_order = any_order;
      one.has_dlse = any_order;
      check(registry, one, static_cast<std::uint64_t>(head_dim));
    }
  }
}

TEST_CASE(
    "random problems with windows, soft caps, ragged batches, grouped heads and poison agree with the reference") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(61);
  for (int i = 0; i < 40; ++i) check(registry, testing::random_backward_case(random, 150), random());
}

}  // namespace attune::emulator_tests
