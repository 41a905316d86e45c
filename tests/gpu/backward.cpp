// The backward pass on the GPU through the C ABI, against its float64 reference.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/graph.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/backward_image.hpp"

namespace attune::gpu_tests {
namespace {

using testing::BackwardCase;
using testing::BackwardImage;

/// A call in device memory.
class BackwardCall {
 public:
  explicit BackwardCall(const BackwardImage& image)
      : image_(image), memory_(on_device(image.memory())), args_(image.args(memory_.data())) {}

  [[nodiscard]] const attune_backward_args& args() const { return args_; }

  /// The memory that the call leaves, which before was as it is in the beginning; `beside` is done just before the
  /// call.
  [[nodiscard]] Memory run(
      const TestRegistry& registry, const std::function<void()>& beside = [] {}) const {
    memory_.upload(image_.memory());
    std::size_t bytes = 0;
    REQUIRE_MESSAGE(attune_backward_workspace(registry.get(), &args_, &bytes) == ATTUNE_OK, attune_last_error());
    CHECK(bytes <= image_.workspace_bytes());
    beside();
    REQUIRE_MESSAGE(attune_backward(registry.get(), &args_, nullptr) == ATTUNE_OK, attune_last_error());
    return fetched(memory_, image_.memory());
  }

 private:
  const BackwardImage& image_;
  DeviceBuffer memory_;
  attune_backward_args args_;
};

/// Runs a call twice, each time on memory full of poison.
void check(const TestRegistry& registry, const BackwardCase& one, const BackwardImage& image) {
  CAPTURE(one.text());
  const BackwardCall call(image);
  const Memory first = call.run(registry);
  image.check(first);
  const Memory second = call.run(registry);
  image.check(second);
  if (one.any_order) return;
  const bool same_bits = image.gradients(first) == image.gradients(second);
  CHECK(same_bits);
}

/// Compiles the kernels of these cases together, and runs each of them.
void check_all(const std::vector<BackwardCase>& cases) {
  const TestRegistry registry;
  std::vector<std::unique_ptr<BackwardImage>> images;  // expressions' arrays are theirs
  std::vector<attune_backward_args> calls;
  for (std::uint64_t i = 0; i < cases.size(); ++i) {
    images.push_back(std::make_unique<BackwardImage>(cases[i], i + 1));
    calls.push_back(images.back()->args(no_memory()));
  }
  prepare_ahead(registry, ATTUNE_BACKWARD, calls);
  for (std::uint64_t i = 0; i < cases.size(); ++i) check(registry, cases[i], *images[i]);
}

BackwardCase dense(int head_dim, int seqlen_q, int seqlen_k, bool causal) {
  BackwardCase one;
  one.prefill.problem = {.batch = 2,
                         .heads_q = 4,
                         .heads_kv = 2,
                         .seqlen_q = seqlen_q,
                         .seqlen_k = seqlen_k,
                         .head_dim = head_dim,
                         .causal = causal};
  return one;
}

}  // namespace

TEST_CASE("gradients of random problems agree with the reference on the GPU, twice, to the same bits") {
  Random random(67);
  std::vector<BackwardCase> cases;
  for (int i = 0; i < 300; ++i) cases.push_back(testing::random_backward_case(random, 400));
  check_all(cases);
}

TEST_CASE("gradients of 100 random additive scores and masks agree with the reference on the GPU, to the same bits") {
  Random random(68);
  std::vector<BackwardCase> cases;
  for (int i = 0; i < 100; ++i) cases.push_back(testing::random_expressed_backward_case(random, 400));
  check_all(cases);
}

TEST_CASE("gradients of every head_dim agree with the reference on the GPU") {
  std::vector<BackwardCase> cases;
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (const bool any_order : {false, true}) {
      cases.push_back(dense(head_dim, 300, 333, head_dim % 16 == 0));
      cases.back().any_order = any_order;
    }
  }
  check_all(cases);
}

TEST_CASE("gradients at every length around the tiles' edges agree with the reference on the GPU") {
  std::vector<BackwardCase> cases;
  for (const int seqlen : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257}) {
    for (const bool any_order : {false, true}) {
      cases.push_back(dense(seqlen % 2 == 0 ? 64 : 128, seqlen, seqlen + seqlen % 3, true));
      cases.back().any_order = any_order;
      cases.back().has_dlse = true;
    }
  }
  check_all(cases);
}

TEST_CASE("gradients of many queries on few keys have the same bits in ten calls on the GPU") {
  const TestRegistry registry;
  for (const int head_dim : {64, 128, 256}) {
    BackwardCase one = dense(head_dim, 1500, 200, true);
    one.prefill.problem.heads_q = 8;
    one.prefill.problem.heads_kv = 1;
    const BackwardImage image(one, 5);
    const BackwardCall call(image);
    const auto first = image.gradients(call.run(registry));
    for (int i = 0; i < 9; ++i) {
      const bool same_bits = image.gradients(call.run(registry)) == first;
      CHECK(same_bits);
    }
  }
}

TEST_CASE("gradients have the same bits in ten calls while another stream keeps a changing part of the GPU busy") {
  const TestRegistry registry;
  void* const other = make_stream();
  std::vector<std::unique_ptr<TestCall>> work;
  for (const int tiles : {8, 136, 40, 104, 72}) {  // of 128 queries, each with keys for about 100 us
    work.push_back(std::make_unique<TestCall>(Problem{.seqlen_q = 128 * tiles, .seqlen_k = 16384}, Layout::bshd, 1));
    REQUIRE_MESSAGE(work.back()->run(registry) == ATTUNE_OK, attune_last_error());
  }
  for (const int head_dim : {64, 128, 256}) {
    for (const int left : {-1, 150}) {
      BackwardCase one = dense(head_dim, 700, 700, left < 0);
      one.prefill.problem.heads_q = 8;
      one.prefill.problem.heads_kv = 4;
      one.prefill.problem.window_left = left;
      CAPTURE(one.text());
      const BackwardImage image(one, 6);
      const BackwardCall call(image);
      const auto first = image.gradients(call.run(registry));
      for (std::size_t i = 0; i < 10; ++i) {
        const auto take_a_part = [&] {
          for (std::size_t j = 0; j < 3; ++j) {
            const attune_prefill_args& args = work[(i + j) % work.size()]->args;
            REQUIRE_MESSAGE(attune_prefill(registry.get(), &args, other) == ATTUNE_OK, attune_last_error());
          }
        };
        const bool same_bits = image.gradients(call.run(registry, take_a_part)) == first;
        CHECK(same_bits);
      }
    }
  }
}

TEST_CASE("gradients of rows that no sequence has or uses become zeros on the GPU") {
  std::vector<BackwardCase> cases;
  for (const bool any_order : {false, true}) {
    for (const int head_dim : {64, 128, 192}) {
      cases.push_back(testing::far_apart_case(head_dim, head_dim == 192 ? 128 : 0, 6, 2));
      cases.back().any_order = any_order;
    }
  }
  check_all(cases);
}

TEST_CASE("a workspace that is too small or missing is named before anything is launched on the GPU") {
  const TestRegistry registry;
  const BackwardImage image(dense(64, 40, 40, false), 3);
  const DeviceBuffer memory = on_device(image.memory());
  attune_backward_args args = image.args(memory.data());
  args.workspace_bytes = 8;
  CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(std::string(attune_last_error()).find("workspace_bytes is 8; it must be at least") != std::string::npos);
  args.workspace = nullptr;
  CHECK(attune_backward(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(std::string(attune_last_error()).find("workspace is null") != std::string::npos);
  const bool untouched = fetched(memory, image.memory()) == image.memory();
  CHECK(untouched);
}

}  // namespace attune::gpu_tests
