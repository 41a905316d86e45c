// Calls of more sequences than a launch takes.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/operations/decode/arguments.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/unit/environment.hpp"

namespace {

using namespace attune;

alignas(16) std::array<std::byte, 16> somewhere{};
std::array<float, 1> lses{};
std::array<std::int32_t, 1> integers{};

constexpr int begin = 3;

attune_decode_args call(int batch = 8) {
  attune_decode_args args{};
  args.struct_size = sizeof(args);
  args.dtype = ATTUNE_BF16;
  args.q = args.o = {somewhere.data(), 512, 256, 64};
  args.k = args.v = {somewhere.data(), 2048, 128, 64};
  args.lse = lses.data();
  args.batch = batch;
  args.seqlen_q = 2;
  args.heads_q = 4;
  args.heads_kv = 2;
  args.head_dim = 64;
  args.max_seqlen_k = 16;
  args.page_size = 16;
  args.pages = batch;
  args.table_width = 1;
  args.softmax_scale = 1;
  args.window_left = args.window_right = -1;
  args.check_tables = 1;
  return args;
}

attune_decode_args part(const attune_decode_args& args) { return part_of(args, check_shapes(args), begin, 4); }

/// Bytes behind where it was.
std::ptrdiff_t moved(const void* pointer, const void* from) {
  return static_cast<const char*>(pointer) - static_cast<const char*>(from);
}

TEST_CASE("decode parts: sequences of a cache have their own rows, results and pages") {
  attune_decode_args args = call();
  args.seqlens_k = args.leftpad_k = integers.data();
  args.seqlen_new = 1;
  args.k_new = args.v_new = {somewhere.data(), 128, 128, 64};
  const attune_decode_args found = part(args);
  CHECK(found.batch == 4);
  CHECK(found.pages == 5);
  CHECK(found.check_tables == 0);
  CHECK(moved(found.q.data, somewhere.data()) == begin * 512 * 2);
  CHECK(moved(found.o.data, somewhere.data()) == begin * 512 * 2);
  CHECK(moved(found.k.data, somewhere.data()) == begin * 2048 * 2);
  CHECK(moved(found.v.data, somewhere.data()) == begin * 2048 * 2);
  CHECK(moved(found.k_new.data, somewhere.data()) == begin * 128 * 2);
  CHECK(moved(found.v_new.data, somewhere.data()) == begin * 128 * 2);
  CHECK(moved(found.lse, lses.data()) == begin * 4 * 2 * 4);
  CHECK(moved(found.seqlens_k, integers.data()) == begin * 4);
  CHECK(moved(found.leftpad_k, integers.data()) == begin * 4);
}

TEST_CASE("decode parts: pages that a table names stay where they are") {
  attune_decode_args args = call();
  args.block_table = integers.data();
  args.table_width = 5;
  const attune_decode_args found = part(args);
  CHECK(found.k.data == somewhere.data());
  CHECK(found.pages == 8);
  CHECK(moved(found.block_table, integers.data()) == begin * 5 * 4);
}

TEST_CASE("decode parts: sequences of a ragged batch are found by where they begin") {
  attune_decode_args args = call();
  args.cu_seqlens_q = args.cu_seqlens_k = args.seqused_q = integers.data();
  args.total_q = args.total_k = 100;
  const attune_decode_args found = part(args);
  CHECK(found.q.data == somewhere.data());
  CHECK(found.o.data == somewhere.data());
  CHECK(found.k.data == somewhere.data());
  CHECK(found.lse == lses.data());
  CHECK(moved(found.cu_seqlens_q, integers.data()) == begin * 4);
  CHECK(moved(found.cu_seqlens_k, integers.data()) == begin * 4);
  CHECK(moved(found.seqused_q, integers.data()) == begin * 4);
  CHECK(found.total_q == 100);
}

TEST_CASE("decode parts: what an older caller does not know of is not read") {
  attune_decode_args args = call();
  args.struct_size = offsetof(attune_decode_args, softcap);
  args.softcap = 7;
  args.cu_seqlens_q = integers.data();
  const attune_decode_args found = part(args);
  CHECK(found.softcap == 0);
  CHECK(found.cu_seqlens_q == nullptr);
  CHECK(found.struct_size == sizeof(found));
}

TEST_CASE("decode parts: workspace is that of the launch which needs most") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  attune_decode_args args = call(most_launched_sequences);
  args.splits = 2;
  const std::size_t of_one = registry.workspace_bytes(args);
  CHECK(of_one > 0);
  args.batch = args.pages = 3 * most_launched_sequences + 1;
  CHECK(registry.workspace_bytes(args) == of_one);
}

}  // namespace
