// The rules of prefill_sm90.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <string_view>
#include <tuple>
#include <vector>

#include "generator/condition.hpp"
#include "generator/family_checks.hpp"

namespace attune {
namespace {

constexpr int warpgroup_threads = 128;
constexpr int warpgroup_rows = 64;  // of wgmma, and so of each consumer warpgroup
constexpr int most_consumers = 3;
constexpr int panel_columns = 64;  // 128 bytes, the swizzle's row
constexpr int panel_row_bytes = 128;
constexpr int ring_stage_bytes = 16;   // a full and an empty mbarrier
constexpr int slot_bytes = 48;         // what a kernel that finds tiles says of one: of the one that Q is of, ...
constexpr int ragged_found = 4;        // ... and of those found for after it, of a ragged batch
constexpr int stage_block_bytes = 4;   // which block of keys a stage has, where a mask leaves some out
constexpr int alignment_slack = 1023;  // shared memory starts anywhere, panels at multiples of 1,024 bytes

constexpr int page_rows = 16;  // of pages that boxes divide: panels swizzle eight rows, B_c has sixteens

constexpr std::array head_dims{64, 96, 128, 192, 256};

int consumers_of(const Variant& v) { return v.B_r / warpgroup_rows; }

/// Registers per thread that the accumulators may have of the 160 or 240 that a consumer warpgroup takes. Measured with
/// ptxas 13.0: with three warpgroups 128 accumulators fit and 140 spill; with fewer 196 fit and most tiles of 200
/// spill.
int register_budget(const Variant& v) { return consumers_of(v) == most_consumers ? 128 : 196; }

bool is_head_dim(int head_dim) { return std::ranges::find(head_dims, head_dim) != head_dims.end(); }

bool has_head_dim(const Variant& v) { return is_head_dim(v.head_dim); }

bool has_head_dim_v(const Variant& v) {
  return v.head_dim_v == 0 || (is_head_dim(v.head_dim_v) && v.head_dim_v < v.head_dim);
}

int panels_of(int columns) { return (columns + panel_columns - 1) / panel_columns; }

bool has_consumers(const Variant& v) { return v.B_r % warpgroup_rows == 0 && consumers_of(v) <= most_consumers; }

Resources resources_of(const Variant& v) {
  const int K_panels = panels_of(v.head_dim);
  const int V_panels = panels_of(v.head_dim_of_v());
  const int output_panels = V_panels % 2 == 0 ? 2 : 1;  // that a warpgroup stores at once
  const int panel_rows = v.B_r * K_panels + v.stages * v.B_c * (K_panels + V_panels) + v.B_r * output_panels;
  Resources needs;
  needs.threads = (1 + consumers_of(v)) * warpgroup_threads;
  needs.shared_bytes = panel_rows * panel_row_bytes + (1 + 2 * v.stages) * ring_stage_bytes + alignment_slack;
  if (v.ragged != 0 || v.paged != 0 || v.mask != 0) {
    const int found = v.ragged != 0 ? ragged_found : 1;
    needs.shared_bytes += (1 + found) * slot_bytes + found * ring_stage_bytes;
  }
  if (v.mask != 0) needs.shared_bytes += v.stages * stage_block_bytes;
  // O, S, and P and Q in half a register an element.
  needs.accumulator_registers = v.head_dim_of_v() / 2 + v.B_c / 2 + v.B_c / 4 + v.Q_columns_in_registers / 4;
  return needs;
}

std::optional<Refusal> head_dim_rule(const Variant& v) {
  if (has_head_dim(v)) return std::nullopt;
  return refuse(v, {"head_dim"},
                fmt::format("head_dim is {}; prefill_sm90 has {}", v.head_dim, fmt::join(head_dims, ", ")),
                has_head_dim);
}

std::optional<Refusal> head_dim_v_rule(const Variant& v) {
  if (has_head_dim_v(v)) return std::nullopt;
  return refuse(v, {"head_dim_v"},
                fmt::format("head_dim_v is {}; prefill_sm90 has {} where that is less than head_dim, which is {}",
                            v.head_dim_v, fmt::join(head_dims, ", "), v.head_dim),
                [](const Variant& c) { return c.head_dim_v != 0 && has_head_dim_v(c); });
}

std::optional<Refusal> rows_rule(const Variant& v) {
  if (has_consumers(v)) return std::nullopt;
  return refuse(
      v, {"B_r"},
      fmt::format("B_r is {}, but 1 to {} warpgroups compute {} rows each", v.B_r, most_consumers, warpgroup_rows),
      has_consumers);
}

std::optional<Refusal> registers_rule(const Variant& v) {
  if (!has_consumers(v)) return std::nullopt;
  const int needed = resources_of(v).accumulator_registers;
  if (needed <= register_budget(v)) return std::nullopt;
  const auto passes = [](const Variant& c) {
    return has_consumers(c) && resources_of(c).accumulator_registers <= register_budget(c);
  };
  return refuse(
      v, {"B_c", "Q_columns_in_registers", "B_r"},
      fmt::format("O, S{} take {} registers per thread, over the {} that {} warpgroups leave without "
                  "spilling",
                  v.Q_columns_in_registers != 0 ? ", P and Q" : " and P", needed, register_budget(v), consumers_of(v)),
      passes);
}

std::optional<Refusal> Q_columns_in_registers_rule(const Variant& v) {
  const auto passes = [](const Variant& c) { return c.Q_columns_in_registers <= c.head_dim; };
  if (passes(v)) return std::nullopt;
  return refuse(v, {"Q_columns_in_registers"},
                fmt::format("a row of Q has head_dim {} columns, fewer than {}", v.head_dim, v.Q_columns_in_registers),
                passes);
}

std::optional<Refusal> P_residual_keys_rule(const Variant& v) {
  if (v.P_residual_keys == 0) return std::nullopt;
  const auto passes = [](const Variant& c) { return c.P_residual_keys <= c.B_c; };
  if (passes(v)) return std::nullopt;
  return refuse(v, {"P_residual_keys", "B_c"},
                fmt::format("a block has B_c {} keys, fewer than P_residual_keys {}", v.B_c, v.P_residual_keys),
                passes);
}

std::optional<Refusal> ping_pong_rule(const Variant& v) {
  if (v.ping_pong == 0 || v.B_r != warpgroup_rows) return std::nullopt;
  return Refusal{"ping_pong", fmt::format("ping_pong has warpgroups take turns, but B_r {} is one warpgroup's; "
                                          "ping_pong: false, or B_r: {}",
                                          v.B_r, 2 * warpgroup_rows)};
}

std::optional<Refusal> pack_gqa_rule(const Variant& v) {
  const auto passes = [](const Variant& c) {
    const auto ratio = static_cast<unsigned>(c.gqa_ratio);
    return ratio >= 2 && ratio <= warpgroup_rows && std::has_single_bit(ratio);
  };
  if (v.pack_gqa == 0 || passes(v)) return std::nullopt;
  const std::string given = value_text(*find_field("gqa_ratio"), v.gqa_ratio);
  return refuse(v, {"gqa_ratio"},
                fmt::format("gqa_ratio is {}, but pack_gqa packs a power of two from 2 to {} of heads into the {} rows "
                            "of a warpgroup",
                            given, warpgroup_rows, warpgroup_rows),
                passes);
}

std::optional<Refusal> ragged_rule(const Variant& v) {
  if (v.ragged == 0 || v.pack_gqa == 0) return std::nullopt;
  return Refusal{"pack_gqa",
                 "pack_gqa has the rows of several heads in one box of Q, whose map has no dimension left for where a "
                 "ragged batch's sequences end; pack_gqa: false"};
}

std::optional<Refusal> window_rule(const Variant& v) {
  if (v.window == 0) return std::nullopt;
  if (v.causal != 0) {
    return Refusal{"causal", "a window has the causal mask among its bounds, as window_right 0; causal: false"};
  }
  if (v.pack_gqa != 0) {
    return Refusal{"pack_gqa", "pack_gqa has no windows among its masks; pack_gqa: false, or window: false"};
  }
  return std::nullopt;
}

std::optional<Refusal> page_multiple_rule(const Variant& v) {
  const auto passes = [](const Variant& c) {
    return c.page_multiple == 1 || (c.paged != 0 && c.page_multiple == page_rows);
  };
  if (passes(v)) return std::nullopt;
  return refuse(v, {"page_multiple"},
                v.paged == 0 ? fmt::format("page_multiple is {}, but the kernel is not for pages", v.page_multiple)
                             : fmt::format("page_multiple is {}; prefill_sm90 has 1, {}", v.page_multiple, page_rows),
                passes);
}

std::optional<Refusal> dropout_rule(const Variant& v) {
  if (v.dropout == 0) return std::nullopt;
  if (v.pack_gqa != 0) {
    return Refusal{"pack_gqa",
                   "dropout has the random bits of rows 8 apart in one word, which pack_gqa makes rows of other heads; "
                   "pack_gqa: false"};
  }
  if (v.tile_list != 0) {
    return Refusal{"tile_list", "a tile_list leaves no room among the parameters for dropout's; tile_list: false"};
  }
  return std::nullopt;
}

std::optional<Refusal> tile_list_rule(const Variant& v) {
  if (v.tile_list == 0) return std::nullopt;
  if (v.paged != 0) {
    return Refusal{"tile_list",
                   "a list is balanced for sequences of one length, which in pages only the device knows; "
                   "tile_list: false"};
  }
  if (v.causal != 0) return std::nullopt;
  return Refusal{"tile_list", "without the causal mask all tiles take the same time; tile_list: false"};
}

std::optional<Refusal> stream_k_rule(const Variant& v) {
  if (v.stream_k == 0) return std::nullopt;
  if (v.dropout != 0) {
    return Refusal{"stream_k", "parameters with dropout have nothing about shared tiles; stream_k: false"};
  }
  if (v.causal != 0 || v.window != 0 || v.ragged != 0) {
    return Refusal{"stream_k",
                   "the keys of a tile are shared out by their number, which is the same for all tiles only without a "
                   "mask and in sequences of as many queries; stream_k: false"};
  }
  return std::nullopt;
}

std::optional<Refusal> tiles_of_expressions_rule(const Variant& v) {
  if (v.mask != 0 && (v.tile_list != 0 || v.stream_k != 0)) {
    const std::string key = v.tile_list != 0 ? "tile_list" : "stream_k";
    return Refusal{key,
                   key + " counts blocks of keys on the host, which masks leave to the device; " + key + ": false"};
  }
  if (v.stream_k != 0 && (v.score != 0 || v.sink != 0)) {
    return Refusal{"stream_k", fmt::format("parameters with {} have nothing about shared tiles; stream_k: false",
                                           v.score != 0 ? "a score's expression" : "sinks")};
  }
  return std::nullopt;
}

constexpr auto rules = std::to_array<Rule>(
    {head_dim_rule, head_dim_v_rule, rows_rule, registers_rule, Q_columns_in_registers_rule, P_residual_keys_rule,
     ping_pong_rule, pack_gqa_rule, ragged_rule, window_rule, page_multiple_rule, dropout_rule, tile_list_rule,
     stream_k_rule, expressions_rule, tiles_of_expressions_rule});

constexpr std::array<std::string_view, 3> shared_memory_keys{"stages", "B_c", "B_r"};

/// Which variants a tile is for: all, those with a causal mask, or these and those whose blocks share their last tiles.
enum class Serves { all, causal, causal_or_shared };

struct Tile {
  int head_dim;
  int head_dim_v;
  Serves serves;
  int B_r;
  int B_c;
  int Q_columns_in_registers;
  int P_residual_keys;
  bool ping_pong;
};

/// Chosen by measurement on an H200 (templates/prefill_sm90.md). Of two for the same head dimensions the one for long
/// sequences has the larger B_r, and the other wastes less of its last tile; of those with the same B_r the first is
/// taken that is for the mask.
constexpr auto tiles = std::to_array<Tile>({{64, 0, Serves::all, 192, 128, 0, 0, true},
                                            {64, 0, Serves::causal_or_shared, 128, 128, 64, 0, false},
                                            {96, 0, Serves::all, 192, 96, 0, 32, true},
                                            {96, 0, Serves::all, 128, 128, 96, 32, false},
                                            {128, 0, Serves::all, 128, 128, 128, 32, false},
                                            {192, 0, Serves::causal, 128, 96, 64, 32, true},
                                            {192, 0, Serves::all, 128, 96, 96, 32, true},
                                            {192, 128, Serves::causal, 128, 112, 192, 32, true},
                                            {192, 128, Serves::all, 128, 112, 192, 32, false},
                                            {256, 0, Serves::all, 128, 64, 80, 0, true}});

bool can_share(Variant variant) {
  variant.stream_k = 1;
  return !stream_k_rule(variant) && !tiles_of_expressions_rule(variant);
}

bool serves(const Tile& tile, const Variant& variant) {
  return tile.serves == Serves::all || variant.causal != 0 ||
         (tile.serves == Serves::causal_or_shared && can_share(variant));
}

/// The one architecture has one size of shared memory, so there are no smaller tiles.
void set_default_tile(Variant& variant, int /*shared_per_block*/, int B_r) {
  const Tile& tile = *std::ranges::min_element(tiles, {}, [&](const Tile& one) {
    const Variant sizes{.head_dim = one.head_dim, .head_dim_v = one.head_dim_v};
    const bool fits = one.head_dim >= variant.head_dim && sizes.head_dim_of_v() >= variant.head_dim_of_v();
    return std::tuple(!fits || !serves(one, variant), sizes.columns(), std::abs(one.B_r - B_r));
  });
  variant.head_dim = tile.head_dim;
  variant.head_dim_v = tile.head_dim_v;
  variant.B_r = tile.B_r;
  variant.B_c = tile.B_c;
  variant.stages = 2;
  variant.Q_columns_in_registers = tile.Q_columns_in_registers;
  // With a causal mask the errors of rows that see few keys are the largest, and half as many keys go as far.
  variant.P_residual_keys = 0;
  if (first_keys_apart(variant) == 0) variant.P_residual_keys = tile.P_residual_keys / (variant.causal != 0 ? 2 : 1);
  variant.ping_pong = tile.ping_pong ? 1 : 0;
  // A mask's look-ups need registers, too, and what it adds to some blocks stands best beside others' products.
  if (variant.mask != 0 && variant.head_dim == 128) {
    variant.Q_columns_in_registers = 64;
    variant.ping_pong = 1;
  }
  // Words of random bits, and a mask's look-ups, need the registers that a third warpgroup takes.
  if ((variant.dropout != 0 || variant.mask != 0) && variant.B_r == most_consumers * warpgroup_rows)
    variant.B_r -= warpgroup_rows;
  variant.stream_k = can_share(variant) ? 1 : 0;
}

}  // namespace

const FamilyChecks& prefill_sm90_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = has_consumers,
                                       .rules = rules,
                                       .shared_memory_keys = shared_memory_keys,
                                       .set_default_tile = set_default_tile};
  return checks;
}

}  // namespace attune
