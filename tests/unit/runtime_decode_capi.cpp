// Decode through the C ABI and the C++ API: what misuse gets, on any machine. No test here has a CUDA context.
#include <doctest/doctest.h>

#include <cmath>
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

bool last_error_has(const std::string& text) {
  return std::string(attune_last_error()).find(text) != std::string::npos;
}

/// A call with nothing wrong; the pointers are never followed.
at::Decode good_call() {
  return {.shape = {.batch = 2,
                    .seqlen_q = 3,
                    .heads_q = 8,
                    .heads_kv = 2,
                    .head_dim = 128,
                    .max_seqlen_k = 1000,
                    .page_size = 16,
                    .pages = 500,
                    .table_width = 63,
                    .splits = 2,
                    .seqlen_new = 2,
                    .rotary = at::Rotary::halves,
                    .rotary_dim = 96,
                    .rotations = 1024},
          .q = at::bshd(address(0x1000), 3, 8, 128),
          .k = at::bshd(address(0x2000), 16, 2, 128),
          .v = at::bhsd(address(0x3000), 16, 2, 128),
          .o = at::bshd(address(0x4000), 3, 8, 128),
          .lse = static_cast<float*>(address(0x5000)),
          .seqlens_k = ints(0x6000),
          .block_table = ints(0x7000),
          .workspace = address(0x8000),
          .workspace_bytes = 1 << 20,
          .k_new = at::bshd(address(0x9000), 2, 2, 128),
          .v_new = at::bshd(address(0xa000), 2, 2, 128),
          .rotary_cos = address(0xb000),
          .rotary_sin = address(0xc000)};
}

/// Makes a call one of packed keys.
void pack_keys(attune_decode_args& args) {
  args.cu_seqlens_q = ints(0xd000);
  args.cu_seqlens_k = ints(0xe000);
  args.total_q = 5;
  args.total_k = 9;
  args.block_table = nullptr;
  args.page_size = args.pages = args.table_width = -1;  // nobody looks at them
  args.seqlen_new = 0;
  args.rotary = ATTUNE_ROTARY_NONE;
}

struct Misuse {
  const char* says;
  std::function<void(attune_decode_args&)> apply;
};

TEST_CASE("every bad field of a decode call gets a status and a message that names it") {
  const std::vector<Misuse> misuses = {
      {"attune_decode_args.struct_size is 0; it must be sizeof(attune_decode_args), at least",
       [](auto& a) { a.struct_size = 0; }},
      {"dtype is 7", [](auto& a) { std::memset(&a.dtype, 0, sizeof(a.dtype)), std::memset(&a.dtype, 7, 1); }},
      {"seqlen_q is 17; it must be from 0 to 16", [](auto& a) { a.seqlen_q = 17; }},
      {"heads_kv is 3; it must divide heads_q, which is 8", [](auto& a) { a.heads_kv = 3; }},
      {"head_dim is 257", [](auto& a) { a.head_dim = 257; }},
      {"k.stride_head is 100; it must be a multiple of 8 elements, 0 or more",
       [](auto& a) { a.head_dim = 100, a.k = at::bshd(a.k.data, 16, 2, 100); }},
      {"rotary_dim is 64; it must be a multiple of 16, and at most head_dim, which is 59",
       [](auto& a) { a.head_dim = 59, a.rotary_dim = 64; }},
      {"max_seqlen_k is 1009; it must be at most table_width 63 x page_size 16",
       [](auto& a) { a.max_seqlen_k = 1009; }},
      {"splits is -1", [](auto& a) { a.splits = -1; }},
      {"softcap is -1; it must be from 0, for none, to 1.8446744e+19", [](auto& a) { a.softcap = -1; }},
      {"softcap is nan", [](auto& a) { a.softcap = std::nanf(""); }},
      {"seqlen_new is -1; it must be at least 0", [](auto& a) { a.seqlen_new = -1; }},
      {"seqlen_new is 1001; it must be at most max_seqlen_k, which is 1000", [](auto& a) { a.seqlen_new = 1001; }},
      {"seqlen_new is 0; queries are rotated where the same call appends keys alone",
       [](auto& a) { a.seqlen_new = 0; }},
      {"k_new.data is null", [](auto& a) { a.k_new.data = nullptr; }},
      {"v_new.stride_seq is 4; it must be a multiple of 8", [](auto& a) { a.v_new.stride_seq = 4; }},
      {"v.stride_batch is 0; rows that are written must not share memory", [](auto& a) { a.v.stride_batch = 0; }},
      {"seqlens_k is null; it must say how many keys each sequence has before the new ones",
       [](auto& a) { a.seqlens_k = nullptr; }},
      {"rotary is 3; it must be from 0 to 2",
       [](auto& a) { std::memset(&a.rotary, 0, sizeof(a.rotary)), std::memset(&a.rotary, 3, 1); }},
      {"rotary_dim is 24; it must be a multiple of 16, and at most head_dim, which is 128",
       [](auto& a) { a.rotary_dim = 24; }},
      {"rotations is 0; it must be from 1", [](auto& a) { a.rotations = 0; }},
      {"check_tables is 2; it must be 0 or 1", [](auto& a) { a.check_tables = 2; }},
      {"rotary_cos is null", [](auto& a) { a.rotary_cos = nullptr; }},
      {"rotary_sin is 0xc008; it must be a multiple of 16 bytes", [](auto& a) { a.rotary_sin = address(0xc008); }},
      {"window_left is -2", [](auto& a) { a.window_left = -2; }},
      {"softmax_scale is nan", [](auto& a) { a.softmax_scale = std::nanf(""); }},
      {"q.data is null", [](auto& a) { a.q.data = nullptr; }},
      {"k.data is 0x2002; it must be a multiple of 16 bytes", [](auto& a) { a.k.data = address(0x2002); }},
      {"v.stride_batch is 12; it must be a multiple of 8", [](auto& a) { a.v.stride_batch = 12; }},
      {"k.stride_seq is -8", [](auto& a) { a.k.stride_seq = -8; }},
      {"o.stride_head is 0; rows that are written must not share memory", [](auto& a) { a.o.stride_head = 0; }},
      {"reach beyond 2^63 bytes", [](auto& a) { a.k.stride_batch = INT64_MAX / 8 * 8; }},
      {"lse is 0x5002; it must be a multiple of 4 bytes",
       [](auto& a) { a.lse = static_cast<float*>(address(0x5002)); }},
      {"seqlens_k is 0x6001; it must be a multiple of 4 bytes", [](auto& a) { a.seqlens_k = ints(0x6001); }},
      {"block_table is 0x7003; it must be a multiple of 4 bytes", [](auto& a) { a.block_table = ints(0x7003); }},
      {"workspace is 0x8008; it must be a multiple of 16 bytes", [](auto& a) { a.workspace = address(0x8008); }},
      {"seqlen_new is 2; calls of a ragged batch append no keys",
       [](auto& a) { a.cu_seqlens_q = ints(0xd000), a.total_q = 5; }},
      {"total_q is -1; it must be from 0 to", [](auto& a) { a.cu_seqlens_q = ints(0xd000), a.total_q = -1; }},
      {"cu_seqlens_q is 0xd002; it must be a multiple of 4 bytes",
       [](auto& a) { a.cu_seqlens_q = ints(0xd002), a.seqlen_new = 0, a.rotary = ATTUNE_ROTARY_NONE; }},
      {"cu_seqlens_k is given without cu_seqlens_q; packed keys are those of ragged batches",
       [](auto& a) { a.cu_seqlens_k = ints(0xe000), a.total_k = 9; }},
      {"seqlen_new is 2; calls of a ragged batch append no keys",
       [](auto& a) { a.cu_seqlens_q = ints(0xd000), a.cu_seqlens_k = ints(0xe000), a.total_q = 5, a.total_k = 9; }},
      {"total_k is -1; it must be from 0 to", [](auto& a) { pack_keys(a), a.total_k = -1; }},
      {"max_seqlen_k is -1; it must be from 0 to", [](auto& a) { pack_keys(a), a.max_seqlen_k = -1; }},
      {"k.data is null", [](auto& a) { pack_keys(a), a.k.data = nullptr; }},
      {"v.stride_seq is 12; it must be a multiple of 8", [](auto& a) { pack_keys(a), a.v.stride_seq = 12; }},
      {"cu_seqlens_k is 0xe002; it must be a multiple of 4 bytes",
       [](auto& a) { pack_keys(a), a.cu_seqlens_k = ints(0xe002); }},
      {"seqused_q is given without cu_seqlens_q; only ragged batches have it",
       [](auto& a) { a.cu_seqlens_q = nullptr, a.seqused_q = ints(0xf000); }},
      {"seqused_q is 0xf003; it must be a multiple of 4 bytes", [](auto& a) { a.seqused_q = ints(0xf003); }},
      {"leftpad_k is 0xf001; it must be a multiple of 4 bytes", [](auto& a) { a.leftpad_k = ints(0xf001); }},
      {"cu_seqlens_k and block_table are both given; lengths in pages are those of seqlens_k",
       [](auto& a) { pack_keys(a), a.block_table = ints(0x7000); }},
      {"block_table is null; it must name the pages where table_width is 63", [](auto& a) { a.block_table = nullptr; }},
      {"pages is 1; without a block_table it must be at least batch, which is 2",
       [](auto& a) { a.block_table = nullptr, a.table_width = 1, a.page_size = 1000, a.pages = 1; }},
  };
  const RegistryHandle registry;
  for (const Misuse& misuse : misuses) {
    CAPTURE(misuse.says);
    attune_decode_args args = good_call().args();
    misuse.apply(args);
    CHECK(attune_decode(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
    CHECK(attune_decode_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
    CHECK_MESSAGE(last_error_has(misuse.says), attune_last_error());
  }
}

TEST_CASE("null handles are refused") {
  const attune_decode_args args = good_call().args();
  const RegistryHandle registry;
  size_t bytes = 0;
  CHECK(attune_decode(nullptr, &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode(registry.get(), nullptr, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode_prepare(nullptr, &args) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode_prepare(registry.get(), nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode_workspace(nullptr, &args, &bytes) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode_workspace(registry.get(), nullptr, &bytes) == ATTUNE_INVALID_ARGUMENT);
  CHECK(attune_decode_workspace(registry.get(), &args, nullptr) == ATTUNE_INVALID_ARGUMENT);
  CHECK(last_error_has("bytes is null"));
}

TEST_CASE("what a number of splits needs is known without a GPU, from shapes alone") {
  const at::Attention attention({.compile = at::Compile::frozen, .cache_dir = "/nowhere/at/all"});
  at::Decode call{.shape = good_call().shape};
  CHECK(attention.workspace(call) == std::size_t{2 * 2} * 2 * (3 * 4) * (128 + 1) * 4);
  call.shape.splits = 1;
  CHECK(attention.workspace(call) == 0);
  call.shape.splits = 0;
  CHECK_THROWS_AS(static_cast<void>(attention.workspace(call)), at::Error);  // the parts depend on the GPU
  call.shape.batch = 0;
  CHECK(attention.workspace(call) == 0);
  call.shape.seqlen_q = 17;
  CHECK_THROWS_AS(static_cast<void>(attention.workspace(call)), at::Error);
}

TEST_CASE("a sound decode call without a GPU or context gets ATTUNE_NO_DEVICE") {
  const RegistryHandle registry;
  std::vector<attune_decode_args> calls(7, good_call().args());
  calls[1].lse = nullptr;
  calls[1].seqlens_k = nullptr;
  calls[1].seqlen_new = 0;  // and nothing to say about new keys
  calls[1].rotary = ATTUNE_ROTARY_NONE;
  calls[1].k_new.data = calls[1].v_new.data = nullptr;
  calls[1].rotary_dim = calls[1].rotations = -1;
  calls[2].block_table = nullptr;  // a contiguous cache
  calls[2].table_width = 1;
  calls[2].page_size = 1000;
  calls[2].pages = 2;
  calls[3].max_seqlen_k = 0;  // no keys to point to
  calls[3].seqlen_new = 0;
  calls[3].rotary = ATTUNE_ROTARY_NONE;
  calls[3].k.data = calls[3].v.data = nullptr;
  pack_keys(calls[4]);  // of which max_seqlen_k may be more than there are
  calls[4].k.stride_batch = 12;
  pack_keys(calls[5]);
  calls[5].seqlens_k = nullptr;
  pack_keys(calls[6]);
  calls[6].total_k = 0;
  calls[6].k.data = calls[6].v.data = nullptr;
  for (const attune_decode_args& args : calls) {
    CHECK(attune_decode_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
    CHECK(attune_decode(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
  }
}

TEST_CASE("of a smaller, older decode call nothing behind its end is looked at") {
  const RegistryHandle registry;
  attune_decode_args args = good_call().args();
  args.softcap = std::nanf("");
  args.seqlen_new = args.rotations = args.check_tables = args.total_q = -1;
  args.cu_seqlens_q = ints(1);
  args.k_new.data = nullptr;
  args.struct_size = offsetof(attune_decode_args, splits) + sizeof(args.splits);
  CHECK(attune_decode_prepare(registry.get(), &args) == ATTUNE_NO_DEVICE);
  --args.struct_size;
  CHECK(attune_decode_prepare(registry.get(), &args) == ATTUNE_INVALID_ARGUMENT);
  // One that knows of tables to check, but of no ragged batches.
  attune_decode_args middle = good_call().args();
  middle.total_q = -1;
  middle.cu_seqlens_q = ints(1);
  middle.struct_size = offsetof(attune_decode_args, check_tables) + sizeof(args.check_tables);
  CHECK(attune_decode_prepare(registry.get(), &middle) == ATTUNE_NO_DEVICE);
  // One that knows of ragged batches, but of no packed keys.
  attune_decode_args ragged = good_call().args();
  ragged.seqlen_new = 0;
  ragged.rotary = ATTUNE_ROTARY_NONE;
  ragged.cu_seqlens_q = ints(0xd000);
  ragged.cu_seqlens_k = ints(1);
  ragged.total_k = -1;
  ragged.struct_size = offsetof(attune_decode_args, total_q) + sizeof(args.total_q);
  CHECK(attune_decode_prepare(registry.get(), &ragged) == ATTUNE_NO_DEVICE);
  ragged.struct_size = offsetof(attune_decode_args, cu_seqlens_k);  // with padding at the end
  CHECK(attune_decode_prepare(registry.get(), &ragged) == ATTUNE_NO_DEVICE);
}

TEST_CASE("nothing to decode needs neither pointers nor a GPU") {
  const RegistryHandle registry;
  attune_decode_args args = good_call().args();
  args.batch = 0;
  args.q.data = args.k.data = args.v.data = args.o.data = nullptr;
  CHECK(attune_decode(registry.get(), &args, nullptr) == ATTUNE_OK);
  args = good_call().args();
  args.seqlen_q = args.seqlen_new = 0;
  args.rotary = ATTUNE_ROTARY_NONE;
  CHECK(attune_decode(registry.get(), &args, nullptr) == ATTUNE_OK);
  attune_decode_args ragged = args;
  ragged.seqlen_q = 3;
  ragged.cu_seqlens_q = ints(0xd000);
  ragged.total_q = 0;
  CHECK(attune_decode(registry.get(), &ragged, nullptr) == ATTUNE_OK);
  pack_keys(ragged);
  ragged.total_q = ragged.total_k = 0;
  ragged.k.data = ragged.v.data = nullptr;
  CHECK(attune_decode(registry.get(), &ragged, nullptr) == ATTUNE_OK);
  args.seqlen_new = 2;  // keys to store
  CHECK(attune_decode(registry.get(), &args, nullptr) == ATTUNE_NO_DEVICE);
}

TEST_CASE("the C++ API passes every field of a decode call on") {
  at::Decode call = good_call();
  call.shape.dtype = at::Dtype::fp16;
  call.shape.window_left = 9;
  call.shape.softcap = 30;
  CHECK(call.args().check_tables == 0);
  call.check_tables = true;
  call.cu_seqlens_q = ints(0xd000);
  call.shape.total_q = 5;
  call.cu_seqlens_k = ints(0xe000);
  call.shape.total_k = 9;
  call.leftpad_k = ints(0xf000);
  call.seqused_q = ints(0xf100);
  const attune_decode_args args = call.args();
  CHECK(args.struct_size == sizeof(args));
  CHECK(args.dtype == ATTUNE_FP16);
  CHECK(args.batch == 2);
  CHECK(args.seqlen_q == 3);
  CHECK(args.heads_q == 8);
  CHECK(args.heads_kv == 2);
  CHECK(args.head_dim == 128);
  CHECK(args.max_seqlen_k == 1000);
  CHECK(args.page_size == 16);
  CHECK(args.pages == 500);
  CHECK(args.table_width == 63);
  CHECK(args.window_left == 9);
  CHECK(args.window_right == 0);
  CHECK(args.splits == 2);
  CHECK(args.softcap == 30);
  CHECK(args.check_tables == 1);
  CHECK(args.cu_seqlens_q == address(0xd000));
  CHECK(args.total_q == 5);
  CHECK(args.cu_seqlens_k == address(0xe000));
  CHECK(args.total_k == 9);
  CHECK(args.leftpad_k == address(0xf000));
  CHECK(args.seqused_q == address(0xf100));
  CHECK(args.seqlen_new == 2);
  CHECK(args.k_new.data == address(0x9000));
  CHECK(args.v_new.data == address(0xa000));
  CHECK(args.v_new.stride_seq == 2 * 128);
  CHECK(args.rotary == ATTUNE_ROTARY_HALVES);
  CHECK(args.rotary_dim == 96);
  CHECK(args.rotations == 1024);
  CHECK(args.rotary_cos == address(0xb000));
  CHECK(args.rotary_sin == address(0xc000));
  CHECK(args.softmax_scale == doctest::Approx(1 / std::sqrt(128.0)));
  CHECK(args.q.data == address(0x1000));
  CHECK(args.v.data == address(0x3000));
  CHECK(args.k.stride_seq == 2 * 128);
  CHECK(args.v.stride_seq == 128);
  CHECK(args.lse == address(0x5000));
  CHECK(args.seqlens_k == address(0x6000));
  CHECK(args.block_table == address(0x7000));
  CHECK(args.workspace == address(0x8000));
  CHECK(args.workspace_bytes == 1 << 20);
  call.softmax_scale = 2.0F;
  CHECK(call.args().softmax_scale == 2.0F);
}

}  // namespace
