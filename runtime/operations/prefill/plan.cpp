#include "runtime/operations/prefill/plan.hpp"
#include "runtime/base/division.hpp"
#include "runtime/call/field_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/operations/prefill/balance.hpp"

namespace attune {
namespace {

bool packs(const Variant& variant) { return variant.pack_gqa != 0; }

/// (batch, head) pairs: of query heads or, packed, of K/V heads.
long long heads_of(const Variant& variant, const Problem& problem) {
  return static_cast<long long>(packs(variant) ? problem.heads_kv : problem.heads_q) * problem.batch;
}

/// How many of those heads share keys and values.
long long sharers_of(const Variant& variant, const Problem& problem) {
  return packs(variant) ? 1 : problem.heads_q / problem.heads_kv;
}

long long q_blocks_of(const Variant& variant, const Problem& problem) {
  return ceil_div(problem.rows(packs(variant)), variant.B_r);
}

/// Of the keys and values of one head.
long long bytes_of_kv_head(const Problem& problem) {
  return static_cast<long long>(problem.seqlen_k) * (problem.head_dim + problem.head_dim_of_v()) *
         bytes_of(problem.dtype);
}

/// How many (batch, query head) pairs run side by side, whole K/V heads at a time. Measured on an H200: with the full
/// mask all tiles are equal, and the fewer K/V heads share L2 the better, down to a quarter of it. With the causal mask
/// tiles shrink from the last to the first, and a group must be wide enough that short ones fill its tail: as many K/V
/// heads as fit three quarters of L2, and never fewer than half the multiprocessors.
long long heads_per_group(const Variant& variant, const Problem& problem, const Device& device) {
  const long long ratio = sharers_of(variant, problem);
  const long long heads = heads_of(variant, problem);
  const long long bytes_per_kv_head = bytes_of_kv_head(problem);
  if (bytes_per_kv_head == 0) return heads;
  const long long kv_heads =
      problem.causal ? std::max<long long>(device.l2_bytes * 3 / 4 / bytes_per_kv_head, device.multiprocessors / 2)
                     : device.l2_bytes / 4 / bytes_per_kv_head;
  const long long fewest = ceil_div(ceil_div(heads, Grid::max_yz), ratio);  // more groups than that no grid can hold
  return std::min(heads, std::max({kv_heads, fewest, 1LL}) * ratio);
}

/// How blocks that stay take their tiles.
struct TileOrder {
  int group_heads = 0;
  std::shared_ptr<const AttuneTileList> tiles = {};  ///< where they are listed
};

/// The order that costs least. A thread remembers that of its last problems: a launch must not wait for it.
TileOrder remembered_order(const TileWork& work) {
  struct Entry {
    TileWork work;
    TileOrder order;
  };
  thread_local std::array<Entry, 16> met{};
  thread_local std::size_t replaced = 0;
  if (const auto* known = std::ranges::find(met, work, &Entry::work); known != met.end()) return known->order;
  TileOrder order{.group_heads = choose_group_heads(work)};
  if (work.listed) order.tiles = std::make_shared<const AttuneTileList>(list_tiles(work, order.group_heads));
  Entry& entry = met[replaced++ % met.size()];
  entry = {work, std::move(order)};
  return entry.order;
}

/// Blocks that stay have to finish together, and K and V of a group to come from L2.
TileOrder order_of_tiles(const Variant& variant, const Problem& problem, const Device& device, int q_blocks,
                         int blocks) {
  const long long ratio = sharers_of(variant, problem);
  const long long bytes_per_head = std::max(1LL, bytes_of_kv_head(problem) / ratio);
  return remembered_order({.q_blocks = q_blocks,
                           .heads = static_cast<int>(heads_of(variant, problem)),
                           .gqa_ratio = static_cast<int>(ratio),
                           .B_r = variant.B_r,
                           .rows_per_query = packs(variant) ? variant.gqa_ratio : 1,
                           .B_c = variant.B_c,
                           .seqlen_q = problem.seqlen_q,
                           .seqlen_k = problem.seqlen_k,
                           .causal = problem.causal || problem.expressions.mask != 0,
                           .listed = variant.tile_list != 0,
                           .multiprocessors = blocks,
                           .bytes_per_head = bytes_per_head,
                           .l2_bytes = device.l2_bytes});
}

/// Bytes that a warp leaves of a tile: O, the maximum and the sum of two rows in each lane
/// (templates/blocks/unfinished_tile.cuh), and a word that says so.
std::size_t unfinished_bytes(const Variant& variant) {
  constexpr std::size_t lanes = 32;
  return lanes * (static_cast<std::size_t>(variant.head_dim_of_v()) / 2 + 4) * sizeof(float) + sizeof(std::uint64_t);
}

/// As many keys as a tile could read in the time that it takes to leave one to another thread block, which goes on with
/// it. Measured on an H200: 3 us at head_dim 64 and 128, 8 us at 256.
constexpr double handover_keys = 300;

/// Sets which tiles blocks share, where the last round would leave some without one for long enough. A share is a
/// tile's keys at least, as a tile is passed on once.
void share_tiles(PrefillPlan& plan, const Problem& problem, long long tiles) {
  const auto blocks = static_cast<long long>(plan.grid.x);
  const long long rounds = tiles / blocks;
  plan.shares.tiles = plan.shares.whole_tiles = static_cast<int>(tiles);
  if (rounds == 0 || tiles % blocks == 0) return;
  const double spared_tiles = static_cast<double>((rounds + 1) * blocks - tiles) / static_cast<double>(blocks);
  if (spared_tiles * problem.seqlen_k < handover_keys) return;
  const long long whole = (rounds - 1) * blocks;
  const long long keys = (tiles - whole) * ceil_div(problem.seqlen_k, plan.variant.B_c);
  plan.shares.whole_tiles = static_cast<int>(whole);
  plan.shares.share = static_cast<int>(keys / blocks);
  plan.shares.longer_shares = static_cast<int>(keys % blocks);
  plan.workspace_bytes = static_cast<std::size_t>(plan.sharing_warps()) * unfinished_bytes(plan.variant);
}

/// Bytes of what rows are carried in from one block of keys to the next (templates/carried_rows.h): of each 16 rows O,
/// the maximum and the sum.
std::size_t carried_bytes(const Variant& variant, long long tiles) {
  constexpr std::size_t lanes = 32;
  constexpr std::size_t lane_bytes = 4 * sizeof(float);
  const std::size_t columns = static_cast<std::size_t>(variant.head_dim) / 8 + 1;
  return static_cast<std::size_t>(tiles) * static_cast<std::size_t>(variant.B_r / 16) * columns * lanes * lane_bytes;
}

/// Sets how the tiles are laid out over blocks.
void lay_out(PrefillPlan& plan, const Problem& problem, const Device& device) {
  const long long heads = heads_of(plan.variant, problem);
  const long long q_blocks = q_blocks_of(plan.variant, problem);
  if (heads == 0 || q_blocks == 0) return;
  plan.q_blocks = static_cast<int>(q_blocks);
  if (plan.variant.family == prefill_fa1_sm80) {
    plan.group_heads = static_cast<int>(heads);
    plan.grid = {.x = static_cast<unsigned>(heads), .y = 1, .z = 1};
    plan.workspace_bytes = carried_bytes(plan.variant, heads * q_blocks);
    return;
  }
  if (family_of(plan.variant).tensor_maps) {
    const long long most = plan.variant.tile_list != 0 ? AttuneTileList::most_blocks : device.multiprocessors;
    const long long blocks = std::min({most, static_cast<long long>(device.multiprocessors), q_blocks * heads});
    plan.grid = {.x = static_cast<unsigned>(blocks), .y = 1, .z = 1};
    if (plan.variant.stream_k != 0) {
      plan.group_heads = static_cast<int>(heads);
      share_tiles(plan, problem, q_blocks * heads);
      return;
    }
    const bool searched = problem.ragged && plan.variant.tile_list == 0;
    TileOrder order = order_of_tiles(plan.variant, searched ? problem.typical() : problem, device,
                                     static_cast<int>(q_blocks), static_cast<int>(blocks));
    // A block looks at the lengths of every group, so that a group should have tiles for all blocks; of whole K/V
    // heads. Without a causal mask tiles come in runs of one head's, so that a larger group does not begin more heads
    // at once; a third of L2 serves it without loss.
    const long long ratio = sharers_of(plan.variant, problem);
    const long long fitting =
        problem.causal ? 0 : device.l2_bytes / 3 / std::max(1LL, bytes_of_kv_head(problem)) * ratio;
    const long long fewest = std::min(heads, std::max(ceil_div(ceil_div(blocks, q_blocks), ratio) * ratio, fitting));
    plan.group_heads = searched ? std::max(order.group_heads, static_cast<int>(fewest)) : order.group_heads;
    plan.tiles = std::move(order.tiles);
  } else {
    const long long group = heads_per_group(plan.variant, problem, device);
    plan.group_heads = static_cast<int>(group);
    plan.grid = {.x = static_cast<unsigned>(group),
                 .y = static_cast<unsigned>(q_blocks),
                 .z = static_cast<unsigned>(ceil_div(heads, group))};
  }
}

/// What comes before the size of tiles, the smaller the better.
auto rank_of(const Variant& variant, const Problem& problem) {
  const Family& family = family_of(variant);
  const bool spare_window = variant.window != 0 && !has_window(problem);
  return std::tuple(family.named_only, -family.minimum_capability, variant.columns(), spare_window);
}

/// choose() among those with pack_gqa, or among those without.
std::optional<Variant> choose_alike(std::span<const Variant> candidates, bool packed, const Problem& problem,
                                    const Device& device) {
  const int best_B_r = problem.best_B_r(packed);
  const auto rank = [&](const Variant& variant) {
    return std::pair(rank_of(variant, problem), std::abs(variant.B_r - best_B_r));
  };
  std::optional<Variant> best;
  for (const Variant& variant : candidates) {
    const bool better = packs(variant) == packed && (!best || rank(variant) < rank(*best));
    if (better && refusals(variant, problem, device).empty()) best = variant;
  }
  return best;
}

// As ProblemFacts has them.
std::vector<std::string> refusals_of_prefill(const void* problem, const Variant& variant) {
  return launch_refusals(variant, *static_cast<const Problem*>(problem));
}
std::optional<Variant> best_of(const void* problem, std::span<const Variant> candidates, const Device& device) {
  return choose_prefill(candidates, *static_cast<const Problem*>(problem), device);
}

}  // namespace

std::vector<std::string> launch_refusals(const Variant& variant, const Problem& problem) {
  std::vector<std::string> result;
  if (family_of(variant).tensor_maps) {
    // Blocks that stay count tiles in an int, and a round beyond the last.
    constexpr long long most_tiles = Grid::max_x / 2;
    const long long heads = heads_of(variant, problem);
    const long long q_blocks = q_blocks_of(variant, problem);
    if (heads > 0 && q_blocks > most_tiles / heads) {
      result.push_back(
          fmt::format("grid: {} heads of {} tiles are more than {}; split the batch", heads, q_blocks, most_tiles));
    }
    if (variant.tile_list != 0 && heads * q_blocks > AttuneTileList::most_tiles) {
      result.push_back(
          fmt::format("tile_list: {} heads of {} tiles are more than {}", heads, q_blocks, AttuneTileList::most_tiles));
    }
    if (variant.tile_list != 0 && !problem.one_length()) {
      result.emplace_back("tile_list: a list is balanced for sequences of one length, which the totals deny");
    }
    if (variant.paged != 0 && variant.page_multiple == 1 &&
        (is_cut(problem.head_dim) || is_cut(problem.head_dim_of_v()))) {
      result.push_back(fmt::format("head_dim: {} is no multiple of 8, and rows are gathered 16 bytes at a time",
                                   is_cut(problem.head_dim) ? problem.head_dim : problem.head_dim_of_v()));
    }
    if (packs(variant) && problem.rows(true) > most_rows) {
      result.push_back(fmt::format("grid: seqlen_q is {}; kernels with pack_gqa take up to {} of {} heads",
                                   problem.seqlen_q, most_rows / variant.gqa_ratio, variant.gqa_ratio));
    }
    return result;
  }
  if (q_blocks_of(variant, problem) > Grid::max_yz) {
    result.push_back(fmt::format("grid: seqlen_q is {}; a kernel of B_r {} takes up to {}", problem.seqlen_q,
                                 variant.B_r, Grid::max_yz * variant.B_r));
  }
  if (heads_of(variant, problem) > Grid::max_x) {
    result.push_back(fmt::format("grid: batch {} x heads_q {} is more than {}; split the batch", problem.batch,
                                 problem.heads_q, Grid::max_x));
  }
  return result;
}

const ProblemFacts Problem::facts = usual_facts<Problem>(refusals_of_prefill, best_of);

std::optional<Variant> choose_prefill(std::span<const Variant> candidates, const Problem& problem,
                                      const Device& device) {
  const std::optional<Variant> plain = choose_alike(candidates, false, problem, device);
  const std::optional<Variant> packed = choose_alike(candidates, true, problem, device);
  if (!plain || !packed) return plain ? plain : packed;
  const auto plain_rank = rank_of(*plain, problem);
  const auto packed_rank = rank_of(*packed, problem);
  if (packed_rank != plain_rank) return packed_rank < plain_rank ? packed : plain;
  return problem.packing_saves_rows(packed->B_r, plain->B_r) ? packed : plain;
}

PrefillPlan plan(const Variant& variant, const Problem& problem, const Device& device) {
  if (const auto reasons = launch_refusals(variant, problem); !reasons.empty()) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("{}", fmt::join(reasons, "; ")));
  }
  const Resources needs = resources(variant);
  PrefillPlan result{.variant = variant,
                     .grid = {},
                     .threads = needs.threads,
                     .shared_bytes = needs.shared_bytes,
                     .head_dim_v = problem.head_dim_of_v()};
  lay_out(result, problem, device);
  result.mask_blocks = plan_mask_blocks(variant, problem);
  // Neither of what else takes a workspace has expressions.
  if (problem.expressions.any()) result.workspace_bytes = result.mask_blocks.bytes();
  return result;
}

}  // namespace attune
