#include "runtime/operations/prefill/balance.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

namespace attune {
namespace {

constexpr int tile_cost = 1;               // in blocks
constexpr long long most_tiles = 1 << 12;  // beyond, any group evens out, and counting takes too long

/// Blocks of keys that tile `q_block` of a head reads.
int blocks_of(const TileWork& work, int q_block) {
  long long limit = work.seqlen_k;
  if (work.causal) {
    const long long last = ((q_block + 1LL) * work.B_r - 1) / work.rows_per_query + 1;
    limit = std::min(limit, last + work.seqlen_k - work.seqlen_q);
  }
  return static_cast<int>(std::max(1LL, (limit + work.B_c - 1) / work.B_c));
}

/// What reading a group's keys and values costs, as a share of the time. Fitted to an H200; templates/prefill_sm90.md
/// has the figures behind it. A third of L2 serves a group without loss. And where the first tiles of many heads run at
/// once, whose keys nobody has read before, all of them wait for memory.
double memory_cost(const TileWork& work, int group_heads) {
  const double share = static_cast<double>(group_heads) * static_cast<double>(work.bytes_per_head) /
                       static_cast<double>(std::max(1LL, work.l2_bytes));
  // Blocks that walk the same head at the same time read it together.
  const double together = std::max(1.0, static_cast<double>(work.multiprocessors) * work.gqa_ratio / group_heads);
  const double missing = 0.06 * std::clamp(share - 1.0 / 3, 0.0, 1.0) * std::min(1.0, 6 / together);
  const double time_of_first = work.causal ? 2.0 / (work.q_blocks + 1) : 1.0 / work.q_blocks;  // of a head's tiles
  const double rush = 0.4 * time_of_first / (together * together);
  // Bytes for each operation, and operations for each second: exponentials slow down the narrow heads.
  const double columns = static_cast<double>(work.bytes_per_head) * work.gqa_ratio / (2.0 * std::max(1, work.seqlen_k));
  const double demand = 128.0 / work.B_r * std::sqrt(std::min(1.0, columns / 256));
  return demand * demand * (missing + rush);
}

/// Gives every tile, in the order of groups of so many heads, to visit(its number in a list, its cost).
template <class Visit>
void for_each_tile(const TileWork& work, int group_heads, const Visit& visit) {
  for (int first = 0; first < work.heads; first += group_heads) {
    const int members = std::min(group_heads, work.heads - first);
    for (int tile = 0; tile < work.q_blocks; ++tile) {
      const int q_block = work.causal ? work.q_blocks - 1 - tile : tile;
      const int cost = blocks_of(work, q_block) + tile_cost;
      for (int head = 0; head < members; ++head) visit((first + head) * work.q_blocks + q_block, cost);
    }
  }
}

/// Gives every tile to the multiprocessor that is free first, visit(tile, multiprocessor), and returns what each has
/// to do then.
template <class Visit>
std::vector<double> list_loads(const TileWork& work, int group_heads, const Visit& visit) {
  constexpr unsigned place_bits = 16;
  // When a multiprocessor is free, and which it is: the least is the next, and a number compares faster than a pair.
  std::vector<std::uint64_t> queue(static_cast<std::size_t>(work.multiprocessors));
  std::iota(queue.begin(), queue.end(), 0);
  for_each_tile(work, group_heads, [&](int tile, int cost) {
    std::ranges::pop_heap(queue, std::greater<>{});
    visit(tile, static_cast<int>(queue.back() & ((1U << place_bits) - 1)));
    queue.back() += static_cast<std::uint64_t>(cost) << place_bits;
    std::ranges::push_heap(queue, std::greater<>{});
  });
  std::vector<double> load;
  for (const std::uint64_t one : queue) load.push_back(static_cast<double>(one >> place_bits));
  return load;
}

/// The same for tiles that are taken in rounds, every other one backwards.
std::vector<double> round_loads(const TileWork& work, int group_heads) {
  const auto multiprocessors = static_cast<std::size_t>(work.multiprocessors);
  std::vector<double> load(multiprocessors);
  std::size_t place = 0;  // in a round
  bool back = false;
  for_each_tile(work, group_heads, [&](int /*tile*/, int cost) {
    load[back ? multiprocessors - 1 - place : place] += cost;
    if (++place < multiprocessors) return;
    place = 0;
    back = !back;
  });
  return load;
}

/// The largest divisor of `count` up to a limit, or 1.
int largest_divisor(int count, int limit) {
  int divisor = std::clamp(limit, 1, count);
  while (count % divisor != 0) --divisor;
  return divisor;
}

/// Group sizes worth a look, in whole multiples of the GQA ratio: all heads, and the smallest and the largest that fit
/// L2 and share a divisor with the number of blocks, so that their tiles fill rounds. Of a list, which fills any round,
/// those that divide the heads, so that the last is like the others: up to a third of L2, and up to two.
std::set<int> candidates(const TileWork& work) {
  const int ratio = std::max(1, work.gqa_ratio);
  const long long fitting = work.l2_bytes * 9 / 10 / std::max(1LL, work.bytes_per_head) / ratio;
  const int units = static_cast<int>(std::clamp(fitting, 1LL, static_cast<long long>(work.heads) / ratio));
  std::set<int> result{work.heads};
  if (work.listed) {
    const int all = work.heads / ratio;
    for (const int thirds : {1, 2}) result.insert(largest_divisor(all, units * thirds * 10 / 27) * ratio);
    return result;
  }
  for (int divisor = 1; divisor <= std::min(units, work.multiprocessors); ++divisor) {
    if (work.multiprocessors % divisor != 0) continue;
    const int largest = units / divisor * divisor;
    result.insert(divisor * ratio);
    result.insert(largest * ratio);
    if (largest > divisor) result.insert((largest - divisor) * ratio);
  }
  return result;
}

}  // namespace

double imbalance(const TileWork& work, int group_heads) {
  const std::vector<double> load =
      work.listed ? list_loads(work, group_heads, [](int, int) {}) : round_loads(work, group_heads);
  const double mean = std::accumulate(load.begin(), load.end(), 0.0) / static_cast<double>(load.size());
  return *std::ranges::max_element(load) / mean;
}

AttuneTileList list_tiles(const TileWork& work, int group_heads) {
  std::vector<std::vector<std::uint16_t>> own(static_cast<std::size_t>(work.multiprocessors));
  list_loads(work, group_heads, [&](int tile, int multiprocessor) {
    own[static_cast<std::size_t>(multiprocessor)].push_back(static_cast<std::uint16_t>(tile));
  });
  AttuneTileList list{};
  std::size_t listed = 0;
  for (std::size_t i = 0; i < AttuneTileList::most_blocks; ++i) {
    if (i < own.size()) {
      std::ranges::copy(own[i], list.tiles + listed);
      listed += own[i].size();
    }
    list.first[i + 1] = static_cast<std::uint16_t>(listed);
  }
  return list;
}

int choose_group_heads(const TileWork& work) {
  const bool even = static_cast<long long>(work.q_blocks) * work.heads > most_tiles;
  int best = work.heads;
  double least = 0;
  for (const int group : candidates(work)) {
    const double cost = (even ? 1 : imbalance(work, group)) + memory_cost(work, group);
    if (least == 0 || cost < least) {
      least = cost;
      best = group;
    }
  }
  return best;
}

}  // namespace attune
