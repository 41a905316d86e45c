// Groups of heads for blocks that stay: finishing together, and keys and values in L2.
#include "runtime/operations/prefill/balance.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <set>
#include <utility>
#include <vector>

using namespace attune;

namespace {

/// 16,384 tokens and a hidden size of 2048 on an H100.
TileWork work_of(int head_dim, int B_r, int B_c, int seqlen, bool causal = true) {
  return {.q_blocks = (seqlen + B_r - 1) / B_r,
          .heads = 2048 / head_dim * (16384 / seqlen),
          .gqa_ratio = 1,
          .B_r = B_r,
          .rows_per_query = 1,
          .B_c = B_c,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .causal = causal,
          .multiprocessors = 132,
          .bytes_per_head = 4LL * seqlen * head_dim,
          .l2_bytes = 50LL << 20};
}

}  // namespace

TEST_CASE("tiles of one length that fill every round are balanced") {
  TileWork work = work_of(128, 128, 128, 2048, false);
  work.heads = 132;
  CHECK(imbalance(work, 132) == doctest::Approx(1));
  CHECK(imbalance(work, 7) == doctest::Approx(1));
}

TEST_CASE("a round that goes back evens out the one before it") {
  TileWork work = work_of(128, 128, 128, 256);
  work.heads = 132;
  CHECK(work.q_blocks == 2);
  CHECK(imbalance(work, 132) == doctest::Approx(1));
  work.multiprocessors = 4;
  work.heads = 2;  // tiles of 2, 2, 1 and 1 blocks, and one more each
  CHECK(imbalance(work, 2) == doctest::Approx(3 / 2.5));
}

TEST_CASE("groups of the prefill cases finish within 3.5% of each other and fit L2, or are all heads") {
  for (const int seqlen : {512, 1024, 2048, 4096, 8192, 16384}) {
    for (const TileWork& work :
         {work_of(64, 192, 128, seqlen), work_of(128, 128, 128, seqlen), work_of(256, 128, 64, seqlen)}) {
      const int group = choose_group_heads(work);
      CAPTURE(seqlen);
      CAPTURE(work.B_c);
      CAPTURE(group);
      CHECK(imbalance(work, group) <= 1.035);
      CHECK((group == work.heads || group * work.bytes_per_head <= work.l2_bytes * 9 / 10));
    }
  }
}

TEST_CASE("where all tiles are alike, heads take turns one by one, or as many as share keys and values") {
  for (const int seqlen : {512, 2048, 16384}) {
    TileWork work = work_of(128, 128, 128, seqlen, false);
    CHECK(choose_group_heads(work) == 1);
    work.gqa_ratio = 4;
    work.bytes_per_head /= 4;
    CHECK(choose_group_heads(work) == 4);
  }
}

TEST_CASE("the first tiles of many short heads do not wait for memory all at once") {
  for (const int head_dim : {64, 128, 256}) CHECK(choose_group_heads(work_of(head_dim, 128, 128, 512)) <= 44);
}

TEST_CASE("a smaller L2 has groups of fewer heads") {
  TileWork work = work_of(128, 128, 128, 4096);
  const int group = choose_group_heads(work);
  work.l2_bytes /= 4;
  CHECK(choose_group_heads(work) < group);
}

TEST_CASE("long sequences of few heads are taken all at once, since no smaller group evens out") {
  const TileWork work = work_of(128, 128, 128, 16384);
  CHECK(choose_group_heads(work) == work.heads);
  CHECK(imbalance(work, 4) > 1.1);
}

TEST_CASE("heads that share keys and values stay together") {
  TileWork work = work_of(128, 128, 128, 2048);
  work.gqa_ratio = 4;
  work.bytes_per_head /= 4;
  const int group = choose_group_heads(work);
  CHECK(group % 4 == 0);
}

TEST_CASE("a causal tile of packed heads sees the keys of its last query") {
  TileWork work = work_of(128, 128, 128, 512);
  work.heads = 1;
  work.multiprocessors = 2;
  work.rows_per_query = 4;
  work.q_blocks = 16;  // tiles of 32 queries: four of 1, 2, 3 and 4 blocks each, and one more for each tile
  CHECK(imbalance(work, 1) == doctest::Approx(1));
  work.multiprocessors = 16;
  CHECK(imbalance(work, 1) == doctest::Approx(5 / 3.5));
}

TEST_CASE("there is a group even for one head and for more tiles than are counted") {
  TileWork work = work_of(128, 128, 128, 2048);
  work.heads = 1;
  CHECK(choose_group_heads(work) == 1);
  work.heads = 1 << 20;
  const int group = choose_group_heads(work);
  CHECK(group >= 1);
  CHECK(group * work.bytes_per_head <= work.l2_bytes);
}

TEST_CASE("a list has every tile once, each block's from the group before the next and the longest first") {
  for (const int heads : {1, 7, 24}) {
    TileWork work = work_of(128, 128, 128, 2000);
    work.heads = heads;
    work.listed = true;
    work.multiprocessors = 5;
    const int group = heads == 24 ? 8 : heads;
    const AttuneTileList list = list_tiles(work, group);
    std::set<int> met;
    CHECK(list.first[0] == 0);
    for (int block = 0; block < AttuneTileList::most_blocks; ++block) {
      std::pair<int, int> before{-1, 0};  // of a group, and how much shorter than the longest
      for (int place = list.first[block]; place < list.first[block + 1]; ++place) {
        const int tile = list.tiles[place];
        const std::pair own{tile / work.q_blocks / group, -(tile % work.q_blocks)};
        CHECK(std::pair(own.first, own.second + work.q_blocks) >= before);
        before = {own.first, own.second + work.q_blocks};
        met.insert(tile);
      }
    }
    const int tiles = heads * work.q_blocks;
    CHECK(static_cast<int>(met.size()) == tiles);
    CHECK(*met.rbegin() == tiles - 1);
    CHECK(list.first[work.multiprocessors] == tiles);
    CHECK(list.first[AttuneTileList::most_blocks] == tiles);
  }
}

TEST_CASE("in a list the longest tile goes to whoever is free first") {
  TileWork work = work_of(128, 128, 128, 512);
  work.listed = true;
  work.heads = 1;
  work.multiprocessors = 2;  // tiles of 4, 3, 2 and 1 blocks, and one more each
  const AttuneTileList list = list_tiles(work, 1);
  CHECK(std::vector<int>(list.tiles, list.tiles + 4) == std::vector<int>{3, 0, 2, 1});
  CHECK(list.first[1] == 2);
  CHECK(imbalance(work, 1) == doctest::Approx(1));
}

TEST_CASE("lists of long sequences finish within 1.1% of each other in groups that two thirds of L2 hold") {
  for (const int seqlen : {8192, 16384}) {
    for (TileWork work :
         {work_of(64, 192, 128, seqlen), work_of(128, 128, 160, seqlen), work_of(256, 128, 64, seqlen)}) {
      work.listed = true;
      const int group = choose_group_heads(work);
      CAPTURE(seqlen);
      CAPTURE(work.B_c);
      CAPTURE(group);
      CHECK(imbalance(work, group) <= 1.011);
      CHECK(group * work.bytes_per_head <= work.l2_bytes * 2 / 3);
    }
  }
}
