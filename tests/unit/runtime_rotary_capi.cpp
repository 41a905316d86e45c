// rotary_embedding through the C ABI and the C++ API: what misuse gets, on any machine. No test here has a CUDA
// context.
#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "tests/unit/closed_registry.hpp"

namespace {

using attune::testing::address;
using attune::testing::RegistryHandle;

namespace at = attune::api;

const std::int32_t* ints(std::uintptr_t value) { return static_cast<const std::int32_t*>(address(value)); }

/// A call with nothing wrong; the pointers are never followed.
at::RotaryEmbedding good_call() {
  return {.shape = {.batch = 2,
                    .seqlen = 3,
                    .heads_q = 8,
                    .heads_kv = 2,
                    .head_dim = 128,
                    .rotary = at::Rotary::interleaved,
                    .rotary_dim = 64,
                    .rotations = 1000},
          .q = at::bshd(address(0x1000), 3, 8, 128),
          .k = at::bhsd(address(0x2000), 3, 2, 128),
          .positions = ints(0x3000),
          .offsets = ints(0x4000),
          .rotary_cos = address(0x5000),
          .rotary_sin = address(0x6000)};
}

}  // namespace

TEST_CASE("every bad field of a rotary_embedding call gets a status and a message that names it") {
  const RegistryHandle registry;
  using Spoil = std::function<void(attune_rotary_embedding_args&)>;
  const std::vector<std::pair<Spoil, std::string>> bad{
      {[](auto& args) { args.struct_size = 8; }, "attune_rotary_embedding_args.struct_size is 8"},
      {[](auto& args) { args.dtype = static_cast<attune_dtype>(7); }, "dtype is 7"},
      {[](auto& args) { args.batch = -1; }, "batch is -1"},
      {[](auto& args) { args.seqlen = -1; }, "seqlen is -1"},
      {[](auto& args) { args.heads_q = 0; }, "heads_q is 0"},
      {[](auto& args) { args.heads_kv = -2; }, "heads_kv is -2"},
      {[](auto& args) { args.head_dim = 44; }, "head_dim is 44"},
      {[](auto& args) { args.rotary = ATTUNE_ROTARY_NONE; }, "rotary is 0 (none)"},
      {[](auto& args) { args.rotary_dim = 24; }, "rotary_dim is 24"},
      {[](auto& args) { args.rotary_dim = 144; }, "rotary_dim is 144"},
      {[](auto& args) { args.rotations = 0; }, "rotations is 0"},
      {[](auto& args) { args.q.data = nullptr; }, "q.data is null"},
      {[](auto& args) { args.k.stride_seq = 0; }, "k.stride_seq is 0"},
      {[](auto& args) { args.positions = ints(0x3002); }, "positions is 0x3002"},
      {[](auto& args) { args.offsets = ints(0x4001); }, "offsets is 0x4001"},
      {[](auto& args) { args.rotary_cos = nullptr; }, "rotary_cos is null"},
      {[](auto& args) { args.rotary_sin = address(0x6008); }, "rotary_sin is 0x6008"}};
  for (const auto& [spoil, message] : bad) {
    CAPTURE(message);
    attune_rotary_embedding_args args = good_call().args();
    spoil(args);
    CHECK(attune_rotary_embedding(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    const std::string said = attune_last_error();
    CHECK(said.find(message) != std::string::npos);
    CHECK(attune_rotary_embedding_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
  }
}

TEST_CASE("what rotary_embedding does not look at may be anything") {
  const RegistryHandle registry;
  attune_rotary_embedding_args args = good_call().args();
  args.heads_kv = 0;
  args.k = {};
  args.positions = args.offsets = nullptr;
  CHECK(attune_rotary_embedding(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);  // and nothing else is wrong
  args.seqlen = 0;
  args.q.data = nullptr;
  args.rotary_cos = args.rotary_sin = nullptr;
  CHECK(attune_rotary_embedding(registry.get(), &args, nullptr) == ATTUNE_OK);
  CHECK(attune_rotary_embedding(nullptr, &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_rotary_embedding(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
}

TEST_CASE("the C++ API passes every field of rotary_embedding on") {
  const attune_rotary_embedding_args args = good_call().args();
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.dtype == ATTUNE_BF16);
  CHECK(args.q.data == address(0x1000));
  CHECK(args.q.stride_seq == 8 * 128);
  CHECK(args.k.data == address(0x2000));
  CHECK(args.k.stride_head == 3 * 128);
  CHECK(args.positions == ints(0x3000));
  CHECK(args.offsets == ints(0x4000));
  CHECK(args.rotary_cos == address(0x5000));
  CHECK(args.rotary_sin == address(0x6000));
  CHECK(args.batch == 2);
  CHECK(args.seqlen == 3);
  CHECK(args.heads_q == 8);
  CHECK(args.heads_kv == 2);
  CHECK(args.head_dim == 128);
  CHECK(args.rotary == ATTUNE_ROTARY_INTERLEAVED);
  CHECK(args.rotary_dim == 64);
  CHECK(args.rotations == 1000);
}
