// Calls with expressions as scores and masks on the GPU through the C ABI, against the float64 reference that
// evaluates the same text.
#include <doctest/doctest.h>

#include <optional>

#include "tests/gpu/harness.hpp"
#include "tests/harness/expressed_image.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::gpu_tests {
namespace {

using testing::ExpressedCase;
using testing::ExpressedImage;
using testing::KeyStorage;
using testing::up_to;

/// Device memory for a call, full of NaN, with nothing known to be after it.
DeviceBuffer workspace_of(std::size_t bytes) {
  DeviceBuffer buffer(gpu().driver, bytes + 16);
  buffer.upload(std::vector<std::uint8_t>(bytes + 16, 0xff));
  return buffer;
}

/// Runs prefill twice with a workspace and once without, each time on memory full of poison. The first call looks its
/// kernel up, the second one finds it.
void check_prefill(const TestRegistry& registry, const ExpressedImage& image) {
  CAPTURE(image.problem().text());
  const DeviceBuffer memory = on_device(image.memory());
  attune_prefill_args args = image.prefill_args(memory.data());
  REQUIRE_MESSAGE(attune_prefill_workspace(registry.get(), &args, &args.workspace_bytes) == ATTUNE_OK,
                  attune_last_error());
  // Without a workspace nothing tells which blocks there are.
  for (const bool has_workspace : {true, true, false}) {
    const DeviceBuffer workspace = workspace_of(args.workspace_bytes);
    args.workspace = has_workspace ? workspace.data() : nullptr;
    memory.upload(image.memory());
    REQUIRE_MESSAGE(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    CHECK(image.wrong(fetched(memory, image.memory())) == "");
  }
}

void check_decode(const TestRegistry& registry, const ExpressedImage& image, int splits) {
  CAPTURE(image.decode_problem(splits).text());
  const DeviceBuffer memory = on_device(image.memory());
  attune_decode_args args = image.decode_args(memory.data(), splits);
  REQUIRE_MESSAGE(attune_decode_workspace(registry.get(), &args, &args.workspace_bytes) == ATTUNE_OK,
                  attune_last_error());
  const DeviceBuffer workspace = workspace_of(args.workspace_bytes);
  args.workspace = workspace.data();
  for (int call = 0; call < 2; ++call) {
    memory.upload(image.memory());
    REQUIRE_MESSAGE(attune_decode(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    CHECK(image.wrong(fetched(memory, image.memory())) == "");
  }
}

/// A quarter of the expressions: one for each kind of call, so that as many processes can share them.
void check_random_expressions(std::uint64_t seed, KeyStorage storage, bool decodes) {
  const TestRegistry registry;
  Random random(seed);
  for (int i = 0; i < testing::expression_count() / 4; ++i) {
    CAPTURE(i);
    ExpressedCase one = testing::random_expressed_case(random, storage, decodes ? 4 : 300, 700);
    one.texts = testing::random_texts(random);
    one.texts.sink = testing::once_in(random, 4);
    one.texts.sink_like_q = one.texts.sink && i % 2 == 1;
    CAPTURE(one.texts.score);
    CAPTURE(one.texts.mask);
    const ExpressedImage image(one, random());
    if (decodes) {
      check_decode(registry, image, up_to(random, 3));
    } else {
      check_prefill(registry, image);
    }
  }
}

}  // namespace

TEST_CASE("random expressions agree with the reference on the GPU, dense") {
  check_random_expressions(71, KeyStorage::dense, false);
}

TEST_CASE("random expressions agree with the reference on the GPU, ragged") {
  check_random_expressions(72, KeyStorage::ragged, false);
}

TEST_CASE("random expressions agree with the reference on the GPU, in pages") {
  check_random_expressions(73, KeyStorage::paged, false);
}

TEST_CASE("random expressions agree with the reference on the GPU, in decode") {
  check_random_expressions(74, KeyStorage::paged, true);
}

TEST_CASE("blocks that a mask hides, by itself or by what it looks up, are not read on the GPU") {
  const TestRegistry registry;
  ExpressedCase one;
  one.problem = {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 90, .seqlen_k = 1000, .head_dim = 64};
  one.texts.mask = "document[b, p] == document[b, k] and k <= p where document: int32[batch, position]";
  ExpressedImage documents(one, 5);
  documents.set_array("document", [](int i) { return i % 1000 < 512 ? 3 : 4; });
  check_prefill(registry, documents);
  one.texts.mask = "k < 16 or p - k < 100";
  ExpressedImage window(one, 5);
  window.poison_keys(256, 512);
  check_prefill(registry, window);
}

}  // namespace attune::gpu_tests
