#include "runtime/plan/balance.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <vector>

namespace attune {
namespace {

constexpr double tile_cost = 1;            // in blocks
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

/// Group sizes worth a look, in whole multiples of the GQA ratio: all heads, and the smallest and the largest that fit
/// L2 and share a divisor with the number of blocks, so that their tiles fill rounds.
std::set<int> candidates(const TileWork& work) {
  const int ratio = std::max(1, work.gqa_ratio);
  const long long fitting = work.l2_bytes * 9 / 10 / std::max(1LL, work.bytes_per_head) / ratio;
  const int units = static_cast<int>(std::clamp(fitting, 1LL, static_cast<long long>(work.heads) / ratio));
  std::set<int> result{work.heads};
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
  const auto multiprocessors = static_cast<std::size_t>(work.multiprocessors);
  std::vector<double> cost(static_cast<std::size_t>(work.q_blocks));
  for (int q_block = 0; q_block < work.q_blocks; ++q_block) {
    cost[static_cast<std::size_t>(q_block)] = blocks_of(work, q_block) + tile_cost;
  }
  std::vector<double> load(multiprocessors);
  std::size_t place = 0;  // in a round
  bool back = false;
  for (int first = 0; first < work.heads; first += group_heads) {
    const int members = std::min(group_heads, work.heads - first);
    for (int tile = 0; tile < work.q_blocks; ++tile) {
      const int q_block = work.causal ? work.q_blocks - 1 - tile : tile;
      for (int head = 0; head < members; ++head) {
        load[back ? multiprocessors - 1 - place : place] += cost[static_cast<std::size_t>(q_block)];
        if (++place < multiprocessors) continue;
        place = 0;
        back = !back;
      }
    }
  }
  const double mean = std::accumulate(load.begin(), load.end(), 0.0) / static_cast<double>(multiprocessors);
  return *std::ranges::max_element(load) / mean;
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
