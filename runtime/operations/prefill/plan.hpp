// From a problem to the one variant that serves it, and the launch facts that follow.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/call/device.hpp"
#include "runtime/call/fit.hpp"
#include "runtime/operations/prefill/mask_blocks.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "templates/tile_list.h"

namespace attune {

/// Which tiles rounds of whole tiles take, and how the keys of the others are shared out (templates/shared_tiles.h).
struct TileShares {
  int tiles = 0;  ///< there are
  int whole_tiles = 0;
  int share = 0;
  int longer_shares = 0;
};

/// Everything a launch needs besides pointers; decided once per problem.
struct PrefillPlan {
  Variant variant;
  /// Heads of a group x tiles of B_r rows x groups (templates/blocks/schedule.cuh), or as many blocks as stay on the
  /// GPU (templates/blocks/tile_order.cuh); empty: no launch.
  Grid grid;
  int q_blocks = 0;     ///< tiles of B_r rows in a head: a query head or, with pack_gqa, a K/V head
  int group_heads = 0;  ///< (batch, head) pairs whose tiles run together, so that their keys and values share L2
  std::shared_ptr<const AttuneTileList> tiles = {};  ///< of each block, where the variant has a tile_list
  TileShares shares = {};                            ///< where the variant has stream_k
  MaskBlocksPlan mask_blocks = {};                   ///< where a launch before this one finds them
  std::size_t workspace_bytes = 0;  ///< for tiles that thread blocks share, rows that they carry, or which blocks a
                                    ///< mask leaves; 0: there are none
  int threads = 0;
  int shared_bytes = 0;
  int head_dim_v = 0;      ///< the problem's, of V and O
  int fewest_queries = 0;  ///< of a ragged batch: sequences of fewer are left out

  /// How many warps, of all thread blocks, may leave a tile to others.
  [[nodiscard]] long long sharing_warps() const { return static_cast<long long>(grid.x) * (variant.B_r / 16); }
};

/// Why no launch of a variant that meets the problem's need can hold the problem; empty when one can.
std::vector<std::string> launch_refusals(const Variant& variant, const Problem& problem);

/// The best of the candidates: those that serve, by a family that need not be named, then by the newest, then by least
/// padding of head_dim and V's together, then without a window that is not needed, then by the tile nearest to the
/// problem's best, then by the order given. Those with pack_gqa and those without are compared among themselves; of the
/// two that are left the one with pack_gqa is better where it is newer, pads less or, both being equal, computes fewer
/// rows (Problem::packing_saves_rows()).
std::optional<Variant> choose_prefill(std::span<const Variant> candidates, const Problem& problem,
                                      const Device& device);

/// The launch facts of one variant for one problem.
PrefillPlan plan(const Variant& variant, const Problem& problem, const Device& device);

}  // namespace attune
