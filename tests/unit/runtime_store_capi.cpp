// store_kv and merge_states through the C ABI and the C++ API: what misuse gets, on any machine. No test here has a
// CUDA context.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
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

float* floats(std::uintptr_t value) { return static_cast<float*>(address(value)); }

bool last_error_has(const std::string& text) {
  return std::string(attune_last_error()).find(text) != std::string::npos;
}

/// Calls with nothing wrong; the pointers are never followed.
at::Store good_store() {
  return {.shape = {.batch = 2,
                    .tokens = 3,
                    .heads_kv = 4,
                    .head_dim = 128,
                    .page_size = 16,
                    .pages = 50,
                    .table_width = 20,
                    .rotary = at::Rotary::halves,
                    .rotary_dim = 64,
                    .rotations = 1000},
          .k_new = at::bshd(address(0x1000), 3, 4, 128),
          .v_new = at::bhsd(address(0x2000), 3, 4, 128),
          .k = at::bshd(address(0x3000), 16, 4, 128),
          .v = at::bhsd(address(0x4000), 16, 4, 128),
          .seqlens_k = ints(0x5000),
          .block_table = ints(0x6000),
          .positions = ints(0x7000),
          .rotary_cos = address(0x8000),
          .rotary_sin = address(0x9000)};
}

at::Merge good_merge() {
  return {.shape = {.batch = 2, .seqlen = 3, .heads = 4, .head_dim = 64},
          .o1 = at::bshd(address(0x1000), 3, 4, 64),
          .o2 = at::bhsd(address(0x2000), 3, 4, 64),
          .o = at::bshd(address(0x3000), 3, 4, 64),
          .lse1 = floats(0x4000),
          .lse2 = floats(0x5000),
          .lse = floats(0x6000)};
}

template <class Args>
struct Misuse {
  const char* says;
  std::function<void(Args&)> apply;
};

}  // namespace

TEST_CASE("every bad field of a store_kv call gets a status and a message that names it") {
  const std::vector<Misuse<attune_store_kv_args>> misuses = {
      {"attune_store_kv_args.struct_size is 8; it must be sizeof(attune_store_kv_args), at least",
       [](auto& a) { a.struct_size = 8; }},
      {"dtype is 7", [](auto& a) { std::memset(&a.dtype, 0, sizeof(a.dtype)), std::memset(&a.dtype, 7, 1); }},
      {"rotary is 5", [](auto& a) { std::memset(&a.rotary, 0, sizeof(a.rotary)), std::memset(&a.rotary, 5, 1); }},
      {"tokens is -1", [](auto& a) { a.tokens = -1; }},
      {"head_dim is 257", [](auto& a) { a.head_dim = 257; }},
      {"v.stride_seq is 300; it must be a multiple of 8", [](auto& a) { a.head_dim = 100, a.v.stride_seq = 300; }},
      {"page_size is 0", [](auto& a) { a.page_size = 0; }},
      {"table_width is 0", [](auto& a) { a.table_width = 0; }},
      {"rotary_dim is 40; it must be a multiple of 16, and at most head_dim, which is 128",
       [](auto& a) { a.rotary_dim = 40; }},
      {"rotary_dim is 144", [](auto& a) { a.rotary_dim = 144; }},
      {"rotations is 0", [](auto& a) { a.rotations = 0; }},
      {"k_new.data is null", [](auto& a) { a.k_new.data = nullptr; }},
      {"v_new.data is 0x2008; it must be a multiple of 16 bytes", [](auto& a) { a.v_new.data = address(0x2008); }},
      {"k.stride_seq is 0; rows that are written must not share memory", [](auto& a) { a.k.stride_seq = 0; }},
      {"v.stride_batch is 12; it must be a multiple of 8", [](auto& a) { a.v.stride_batch = 12; }},
      {"reach beyond 2^63 bytes", [](auto& a) { a.v.stride_batch = INT64_MAX / 8 * 8; }},
      {"slot_mapping is 0x5004; it must be a multiple of 8 bytes",
       [](auto& a) { a.slot_mapping = static_cast<const std::int64_t*>(address(0x5004)); }},
      {"seqlens_k is 0x5002; it must be a multiple of 4 bytes", [](auto& a) { a.seqlens_k = ints(0x5002); }},
      {"block_table is 0x6001; it must be a multiple of 4 bytes", [](auto& a) { a.block_table = ints(0x6001); }},
      {"positions is 0x7003; it must be a multiple of 4 bytes", [](auto& a) { a.positions = ints(0x7003); }},
      {"rotary_cos is 0x8008; it must be a multiple of 16 bytes", [](auto& a) { a.rotary_cos = address(0x8008); }},
      {"rotary_sin is null; it must point to memory of the device (the host's for the emulator) where keys are rotated",
       [](auto& a) { a.rotary_sin = nullptr; }},
      {"check_tables is -1; it must be 0 or 1", [](auto& a) { a.check_tables = -1; }},
      {"block_table is null; it must name the pages where table_width is 20", [](auto& a) { a.block_table = nullptr; }},
      {"pages is 1; without a block_table it must be at least batch, which is 2",
       [](auto& a) { a.block_table = nullptr, a.table_width = 1, a.pages = 1; }},
  };
  const RegistryHandle registry;
  for (const auto& misuse : misuses) {
    CAPTURE(misuse.says);
    attune_store_kv_args args = good_store().args();
    misuse.apply(args);
    CHECK(attune_store_kv(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
    CHECK(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
  }
}

TEST_CASE("of a smaller, older store_kv call nothing behind its end is looked at") {
  const RegistryHandle registry;
  attune_store_kv_args args = good_store().args();
  args.check_tables = 7;
  args.struct_size = offsetof(attune_store_kv_args, rotations) + sizeof(args.rotations);
  CHECK(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
  --args.struct_size;
  CHECK(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
}

TEST_CASE("every bad field of a merge_states call gets a status and a message that names it") {
  const std::vector<Misuse<attune_merge_states_args>> misuses = {
      {"attune_merge_states_args.struct_size is 0", [](auto& a) { a.struct_size = 0; }},
      {"dtype is 7", [](auto& a) { std::memset(&a.dtype, 0, sizeof(a.dtype)), std::memset(&a.dtype, 7, 1); }},
      {"seqlen is -1", [](auto& a) { a.seqlen = -1; }},
      {"heads is 0", [](auto& a) { a.heads = 0; }},
      {"head_dim is 4", [](auto& a) { a.head_dim = 4; }},
      {"o1.data is null", [](auto& a) { a.o1.data = nullptr; }},
      {"o2.stride_head is 4", [](auto& a) { a.o2.stride_head = 4; }},
      {"o.stride_head is 0; rows that are written must not share memory", [](auto& a) { a.o.stride_head = 0; }},
      {"lse1 is null", [](auto& a) { a.lse1 = nullptr; }},
      {"lse2 is 0x5002; it must be a multiple of 4 bytes", [](auto& a) { a.lse2 = floats(0x5002); }},
      {"lse is 0x6003; it must be a multiple of 4 bytes", [](auto& a) { a.lse = floats(0x6003); }},
      {"lse is 0x4000; it must be apart from lse1, which is 0x4000", [](auto& a) { a.lse = floats(0x4000); }},
      {"lse is 0x505c; it must be apart from lse2, which is 0x5000", [](auto& a) { a.lse = floats(0x505c); }},
      {"lse is 0x4fa4; it must be apart from lse2, which is 0x5000", [](auto& a) { a.lse = floats(0x4fa4); }},
      {"o has the data of o2; it must have its strides too", [](auto& a) { a.o.data = a.o2.data; }},
  };
  const RegistryHandle registry;
  for (const auto& misuse : misuses) {
    CAPTURE(misuse.says);
    attune_merge_states_args args = good_merge().args();
    misuse.apply(args);
    CHECK(attune_merge_states(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
    CHECK(attune_merge_states_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
  }
}

TEST_CASE("null handles of stores and merges are refused") {
  const attune_store_kv_args store = good_store().args();
  const attune_merge_states_args merge = good_merge().args();
  const RegistryHandle registry;
  CHECK(attune_store_kv(nullptr, &store, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_store_kv(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_store_kv_prepare(nullptr, &store) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_store_kv_prepare(registry.get(), nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_merge_states(nullptr, &merge, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_merge_states(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_merge_states_prepare(nullptr, &merge) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_merge_states_prepare(registry.get(), nullptr) == ATTUNE_INVALID_ARGUMENT);
}

TEST_CASE("sound calls of stores and merges without a GPU or context get ATTUNE_NO_DEVICE") {
  const RegistryHandle registry;
  std::vector<attune_store_kv_args> stores(4, good_store().args());
  stores[1].slot_mapping = static_cast<const std::int64_t*>(address(0xa000));  // and nothing that names pages
  stores[1].block_table = nullptr;
  stores[1].seqlens_k = stores[1].positions = nullptr;
  stores[1].table_width = 0;
  stores[2].block_table = nullptr;  // a contiguous cache
  stores[2].table_width = 1;
  stores[3].rotary = ATTUNE_ROTARY_NONE;  // and nothing that rotates
  stores[3].rotary_cos = stores[3].rotary_sin = nullptr;
  stores[3].rotary_dim = stores[3].rotations = -1;
  for (const attune_store_kv_args& args : stores) {
    CHECK(attune_store_kv_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
    CHECK(attune_store_kv(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
  }
  std::vector<attune_merge_states_args> merges(5, good_merge().args());
  merges[1].lse = nullptr;
  merges[2].o = merges[2].o1;
  merges[3].o = merges[3].o2;
  merges[4].lse = floats(0x4060);  // right behind lse1's 24 floats
  for (const attune_merge_states_args& args : merges) {
    CHECK(attune_merge_states_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
    CHECK(attune_merge_states(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
  }
}

TEST_CASE("nothing to store or to merge needs neither pointers nor a GPU") {
  const RegistryHandle registry;
  attune_store_kv_args store = good_store().args();
  store.tokens = 0;
  store.k_new.data = store.v_new.data = store.k.data = store.v.data = nullptr;
  store.rotary_cos = nullptr;
  CHECK(attune_store_kv(registry.get(), &store, nullptr) == ATTUNE_OK);
  attune_merge_states_args merge = good_merge().args();
  merge.batch = 0;
  merge.o1.data = merge.o2.data = merge.o.data = nullptr;
  merge.lse1 = nullptr;
  CHECK(attune_merge_states(registry.get(), &merge, nullptr) == ATTUNE_OK);
}

TEST_CASE("the C++ API passes every field of stores and merges on") {
  at::Store store = good_store();
  store.shape.dtype = at::Dtype::fp16;
  store.slot_mapping = static_cast<const std::int64_t*>(address(0xa000));
  store.check_tables = true;
  const attune_store_kv_args args = store.args();
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.check_tables == 1);
  CHECK(args.dtype == ATTUNE_FP16);
  CHECK(args.k_new.data == address(0x1000));
  CHECK(args.v_new.stride_seq == 128);
  CHECK(args.k.data == address(0x3000));
  CHECK(args.v.data == address(0x4000));
  CHECK(args.slot_mapping == store.slot_mapping);
  CHECK(args.seqlens_k == address(0x5000));
  CHECK(args.block_table == address(0x6000));
  CHECK(args.positions == address(0x7000));
  CHECK(args.rotary_cos == address(0x8000));
  CHECK(args.rotary_sin == address(0x9000));
  CHECK(args.batch == 2);
  CHECK(args.tokens == 3);
  CHECK(args.heads_kv == 4);
  CHECK(args.head_dim == 128);
  CHECK(args.page_size == 16);
  CHECK(args.pages == 50);
  CHECK(args.table_width == 20);
  CHECK(args.rotary == ATTUNE_ROTARY_HALVES);
  CHECK(args.rotary_dim == 64);
  CHECK(args.rotations == 1000);

  const attune_merge_states_args merge = good_merge().args();
  CHECK(merge.struct_size == sizeof(merge));
  CHECK(merge.dtype == ATTUNE_BF16);
  CHECK(merge.o1.data == address(0x1000));
  CHECK(merge.o2.stride_seq == 64);
  CHECK(merge.o.data == address(0x3000));
  CHECK(merge.lse1 == address(0x4000));
  CHECK(merge.lse2 == address(0x5000));
  CHECK(merge.lse == address(0x6000));
  CHECK(merge.batch == 2);
  CHECK(merge.seqlen == 3);
  CHECK(merge.heads == 4);
  CHECK(merge.head_dim == 64);

  const at::Attention attention({.compile = at::Compile::frozen, .cache_dir = "/nowhere/at/all"});
  store.shape.batch = 0;
  attention(store);
  CHECK_THROWS_AS(attention(good_store()), at::Error);
  CHECK_THROWS_AS(attention(good_merge()), at::Error);
  CHECK_THROWS_AS(attention.prepare(good_store()), at::Error);
  CHECK_THROWS_AS(attention.prepare(good_merge()), at::Error);
}
