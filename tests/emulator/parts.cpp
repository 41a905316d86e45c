// The emulator's parts by themselves: late copies, matrix fragments, strided buffers.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/emulator/box_stores.hpp"
#include "runtime/emulator/copies.hpp"
#include "runtime/emulator/fragments.hpp"
#include "runtime/emulator/global_memory.hpp"
#include "runtime/emulator/matrix_descriptor.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::emulator {
namespace {

/// After how many ticks each of 64 copies is there; -1: not before finish() made it.
std::vector<int> landings(std::uint64_t seed) {
  SharedMemory shared(64 * 16);
  shared.reset();
  Copies copies(1);
  copies.reset(seed);
  const std::array<char, 16> source{'x'};
  for (unsigned i = 0; i < 64; ++i) copies.issue(0, 1, shared.at(shared_base + i * 16), source.data(), 16);
  std::vector<int> landed(64, -1);
  const auto there = [&](unsigned i) { return std::memcmp(shared.at(shared_base + i * 16), source.data(), 16) == 0; };
  for (unsigned i = 0; i < 64; ++i) CHECK(!there(i));
  for (int tick = 0; tick < 1000; ++tick) {
    copies.tick();
    for (unsigned i = 0; i < 64; ++i) {
      if (landed[i] < 0 && there(i)) landed[i] = tick;
    }
  }
  copies.finish(0, 1);
  for (unsigned i = 0; i < 64; ++i) CHECK(there(i));
  return landed;
}

Buffer strided(std::array<long long, 4> extents, std::array<long long, 3> strides) {
  return {.name = "t",
          .data = reinterpret_cast<void*>(0x10000),  // never dereferenced
          .element_bytes = 2,
          .extents = extents,
          .strides = strides,
          .writable = false};
}

}  // namespace

TEST_CASE("copies land out of order, some early and some only when a wait makes them, as the seed says") {
  const std::vector<int> landed = landings(3);
  CHECK(landings(3) == landed);
  CHECK(landings(4) != landed);
  CHECK(std::ranges::count(landed, -1) > 10);
  CHECK(std::set<int>(landed.begin(), landed.end()).size() > 20);
  CHECK(!std::ranges::is_sorted(landed));
}

TEST_CASE("a copy reads its source when it lands, not when it is issued") {
  SharedMemory shared(16);
  Copies copies(1);
  copies.reset(1);
  std::array<char, 16> source{'a'};
  copies.issue(0, 1, shared.at(shared_base), source.data(), 16);
  source[0] = 'b';
  copies.finish(0, 1);
  CHECK(static_cast<char>(*shared.at(shared_base)) == 'b');
}

TEST_CASE("a wait lands the groups it covers and leaves the others under way") {
  const std::array<char, 16> source{'x'};
  int still_under_way = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SharedMemory shared(32);
    shared.reset();
    Copies copies(2);
    copies.reset(seed);
    copies.issue(1, 1, shared.at(shared_base), source.data(), 16);
    copies.issue(1, 2, shared.at(shared_base + 16), source.data(), 16);
    copies.finish(1, 1);
    CHECK(static_cast<char>(*shared.at(shared_base)) == 'x');
    if (static_cast<char>(*shared.at(shared_base + 16)) != 'x') ++still_under_way;
  }
  CHECK(still_under_way == 20);
}

TEST_CASE("boxes are stored out of order, some early and some only when a wait makes them, as the seed says") {
  const auto moments = [](std::uint64_t seed) {
    SharedMemory shared(2 * swizzle_atom);
    BoxStores stores;
    stores.reset(seed);
    std::array<std::uint16_t, 64 * 8> tensor{};
    const TensorMap map{
        .base = tensor.data(), .extents = {8, 64, 1, 1, 1}, .strides = {16, 1024, 1024}, .box = {8, 1, 1, 1, 1}};
    for (int i = 0; i < 64; ++i) {
      stores.issue(
          {.what = Box{.map = map, .at = {0, i, 0, 0}, .address = swizzle_atom}, .thread = 0, .group = 1, .line = 1});
    }
    std::memset(shared.at(swizzle_atom), 'x', 16);
    std::vector<int> stored(64, -1);
    for (int tick = 0; tick < 1000; ++tick) {
      stores.tick(shared);
      for (int i = 0; i < 64; ++i) {
        if (stored[i] < 0 && tensor[i * 8] != 0) stored[i] = tick;
      }
    }
    stores.finish(1, 1, shared);
    stores.finish(0, 0, shared);
    CHECK(stores.unfinished() != nullptr);
    for (int i = 0; i < 64; ++i) CHECK((tensor[i * 8] != 0) == (stored[i] >= 0));
    stores.finish(0, 1, shared);
    CHECK(stores.unfinished() == nullptr);
    for (int i = 0; i < 64; ++i) CHECK(tensor[i * 8] != 0);
    return stored;
  };
  const std::vector<int> stored = moments(3);
  CHECK(moments(3) == stored);
  CHECK(moments(4) != stored);
  CHECK(std::ranges::count(stored, -1) > 10);
  CHECK(!std::ranges::is_sorted(stored));
}

TEST_CASE(
    "a row is added as it was when it was read, and some only behind the wait for that, at the block's end at last") {
  int added_by_reads = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SharedMemory shared(64);
    BoxStores stores;
    stores.reset(seed);
    std::array<float, 4> sums{1, 2, 3, 4};
    const float ones[4] = {1, 1, 1, 1};
    std::memcpy(shared.at(shared_base), ones, sizeof(ones));
    stores.issue(
        {.what = AddedRow{.to = sums.data(), .address = shared_base, .count = 4}, .thread = 0, .group = 1, .line = 1});
    CHECK(stores.unfinished() != nullptr);
    stores.finish_reads(0, 1, shared);
    CHECK(stores.unfinished() == nullptr);
    std::memset(shared.at(shared_base), 0, sizeof(ones));
    if (sums[0] == 2) ++added_by_reads;
    if (seed % 2 == 0) stores.finish(0, 1, shared);
    if (seed % 2 != 0) stores.end(shared);
    CHECK(sums == std::array<float, 4>{2, 3, 4, 5});
  }
  CHECK(added_by_reads == 0);
}

TEST_CASE("ldmatrix gives lane i the pair (i / 4, i % 4 * 2) of each matrix, or of its transpose") {
  std::array<std::array<std::uint16_t, 8>, 32> memory{};
  Lanes<const std::byte*> rows{};
  for (unsigned r = 0; r < 32; ++r) {
    for (unsigned c = 0; c < 8; ++c) memory[r][c] = static_cast<std::uint16_t>(r * 100 + c);
    rows[r] = reinterpret_cast<const std::byte*>(memory[r].data());
  }
  for (const bool transposed : {false, true}) {
    std::array<std::array<std::uint32_t, 4>, 32> got{};
    Lanes<std::uint32_t*> words{};
    for (unsigned lane = 0; lane < 32; ++lane) words[lane] = got[lane].data();
    ldmatrix(rows, transposed, words);
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned i = lane / 4;
        const unsigned j = lane % 4 * 2;
        const unsigned low = transposed ? memory[m * 8 + j][i] : memory[m * 8 + i][j];
        const unsigned high = transposed ? memory[m * 8 + j + 1][i] : memory[m * 8 + i][j + 1];
        CHECK(got[lane][m] == (high << 16 | low));
      }
    }
  }
}

TEST_CASE("stmatrix stores what ldmatrix reads") {
  std::array<std::array<std::uint32_t, 4>, 32> memory{};
  std::array<std::array<std::uint32_t, 4>, 32> sent{};
  std::array<std::array<std::uint32_t, 4>, 32> got{};
  Lanes<std::byte*> to{};
  Lanes<const std::byte*> from{};
  Lanes<const std::uint32_t*> source{};
  Lanes<std::uint32_t*> target{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned m = 0; m < 4; ++m) sent[lane][m] = lane * 7919 + m * 104729;
    from[lane] = to[lane] = reinterpret_cast<std::byte*>(memory[lane].data());
    source[lane] = sent[lane].data();
    target[lane] = got[lane].data();
  }
  stmatrix(to, source);
  ldmatrix(from, false, target);
  CHECK(got == sent);
}

TEST_CASE("mma multiplies with the operand layout of m16n8k16 and adds to what is there") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    // Small integers, so that every sum is exact in any order.
    const auto a_at = [](int i, int k) { return (i * 3 + k * 5) % 17 - 8; };
    const auto b_at = [](int k, int j) { return (k * 7 + j * 11) % 13 - 6; };
    const auto packed = [&](int low, int high) {
      return to_storage(dtype, static_cast<float>(low)) |
             static_cast<std::uint32_t>(to_storage(dtype, static_cast<float>(high))) << 16;
    };
    std::array<float[4], 32> d{};
    std::array<std::uint32_t[4], 32> a{};
    std::array<MmaOperands, 32> operands{};
    Lanes<const MmaOperands*> lanes{};
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      a[lane][0] = packed(a_at(g, 2 * t), a_at(g, 2 * t + 1));
      a[lane][1] = packed(a_at(g + 8, 2 * t), a_at(g + 8, 2 * t + 1));
      a[lane][2] = packed(a_at(g, 2 * t + 8), a_at(g, 2 * t + 9));
      a[lane][3] = packed(a_at(g + 8, 2 * t + 8), a_at(g + 8, 2 * t + 9));
      for (float& value : d[lane]) value = 0.5F;
      operands[lane] = {&d[lane],
                        &a[lane],
                        {packed(b_at(2 * t, g), b_at(2 * t + 1, g)), packed(b_at(2 * t + 8, g), b_at(2 * t + 9, g))}};
      lanes[lane] = &operands[lane];
    }
    mma(dtype, lanes);
    const auto expected = [&](int i, int j) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += a_at(i, k) * b_at(k, j);
      return static_cast<float>(sum) + 0.5F;
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4;
      const int t = lane % 4;
      CHECK(d[lane][0] == expected(g, 2 * t));
      CHECK(d[lane][1] == expected(g, 2 * t + 1));
      CHECK(d[lane][2] == expected(g + 8, 2 * t));
      CHECK(d[lane][3] == expected(g + 8, 2 * t + 1));
    }
  }
}

TEST_CASE("an address belongs to a strided buffer exactly where one of its rows is, in every order of dimensions") {
  struct Layout {
    std::array<long long, 4> extents;
    std::array<long long, 3> strides;
  };
  for (const Layout& layout : {Layout{{2, 3, 4, 8}, {96, 32, 8}},       // batch, seqlen, heads
                               Layout{{2, 3, 4, 8}, {96, 8, 24}},       // batch, heads, seqlen
                               Layout{{2, 3, 4, 8}, {400, 104, 16}},    // gaps everywhere
                               Layout{{2, 3, 1, 8}, {0, 16, 0}},        // one sequence for the whole batch
                               Layout{{2, 3, 4, 16}, {200, 8, 48}}}) {  // rows that overlap
    const Buffer buffer = strided(layout.extents, layout.strides);
    std::set<long long> inside;
    for (long long b = 0; b < layout.extents[0]; ++b) {
      for (long long s = 0; s < layout.extents[1]; ++s) {
        for (long long h = 0; h < layout.extents[2]; ++h) {
          for (long long d = 0; d + 8 <= layout.extents[3]; d += 8) {
            inside.insert(b * layout.strides[0] + s * layout.strides[1] + h * layout.strides[2] + d);
          }
        }
      }
    }
    GlobalMemory memory({buffer});
    const Clock clock(1);
    for (long long offset = -16; offset < 1000; offset += 8) {
      const void* pointer = static_cast<char*>(buffer.data) + offset * 2;
      CAPTURE(offset);
      CHECK(memory.check_load(pointer, 16, {0, &clock, {}}, 16).has_value() == !inside.contains(offset));
    }
  }
}

TEST_CASE("the 128-byte swizzle moves chunk c of row r of each eight to c xor r") {
  for (unsigned row = 0; row < 24; ++row) {
    for (unsigned c = 0; c < 8; ++c) {
      CHECK(swizzle_128(4096 + row * 128 + c * 16 + 5) == 4096 + row * 128 + (c ^ row % 8) * 16 + 5);
    }
  }
}

TEST_CASE("descriptors lead to the chunks that the PTX ISA's canonical layouts name") {
  constexpr std::uint64_t bits =
      0x2000 / 16 | std::uint64_t{0x3000 / 16} << 16 | std::uint64_t{1024 / 16} << 32 | std::uint64_t{1} << 62;
  // K-major, the second 16 of k: 32 bytes along each row of 128.
  const std::vector<unsigned> rows = chunk_addresses(bits + 2, Major::k, 64);
  REQUIRE(rows.size() == 128);
  for (unsigned r = 0; r < 64; ++r) {
    for (unsigned c = 0; c < 2; ++c) CHECK(rows[r * 2 + c] == 0x2000 + r * 128 + ((2 + c) ^ r % 8) * 16);
  }
  // MN-major: 64 columns a run, the next run where the leading offset says.
  const std::vector<unsigned> columns = chunk_addresses(bits, Major::mn, 96);
  REQUIRE(columns.size() == 16 * 12);
  for (unsigned k = 0; k < 16; ++k) {
    for (unsigned c = 0; c < 12; ++c) {
      CHECK(columns[k * 12 + c] == 0x2000 + c / 8 * 0x3000 + k * 128 + (c % 8 ^ k % 8) * 16);
    }
  }
}

TEST_CASE("a tensor map that the driver would refuse cannot be made, and other bytes are none") {
  alignas(16) const std::array<char, 16> memory{};
  const TensorMap map{
      .base = memory.data(), .extents = {64, 8, 2, 1, 1}, .strides = {128, 1024, 2048}, .box = {64, 8, 1, 1, 1}};
  REQUIRE(read_map(emulated_map(map).opaque));
  CHECK(read_map(emulated_map(map).opaque)->strides == map.strides);
  CHECK(!read_map(AttuneTensorMap{}.opaque));
  const auto refused = [&](const auto& change) {
    TensorMap wrong = map;
    change(wrong);
    CHECK_THROWS_AS(emulated_map(wrong), Error);
  };
  refused([](TensorMap& wrong) { wrong.base = static_cast<const char*>(wrong.base) + 8; });
  refused([](TensorMap& wrong) { wrong.rank = 6; });
  refused([](TensorMap& wrong) { wrong.extents[1] = 0; });
  refused([](TensorMap& wrong) { wrong.strides[0] = 120; });
  refused([](TensorMap& wrong) { wrong.box[0] = 128; });
  refused([](TensorMap& wrong) { wrong.box[1] = 257; });
}

}  // namespace attune::emulator
