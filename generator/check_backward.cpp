// The rules of the kernels of the backward pass on mma.sync: backward_sm80, backward_dq_sm80 and backward_rows.
#include <algorithm>
#include <array>

#include "generator/family_checks.hpp"
#include "templates/backward_params.h"

namespace attune {
namespace {

constexpr int lanes = 32;           // threads of a warp
constexpr int mma_rows = 16;        // rows of an m16n8k16 tile, and its depth
constexpr int max_registers = 255;  // of a thread
constexpr int block_registers = 65536;
constexpr int padded_rows = ATTUNE_BACKWARD_ROWS;
constexpr int statistics_bytes = 8;  // of a row: LSE and D

/// As prefill_sm80 has it: what addresses and fragments in flight take beside the accumulators.
constexpr int working_registers = 55;

int register_budget(int threads) { return std::min(max_registers, block_registers / threads) - working_registers; }

/// Tiles of 16 keys that a warp of backward_sm80 has: two where all of a block's warps meet at dS anyway, for sums in
/// any order, and shared memory has room for P.
int tiles_of_warp(const Variant& v) {
  constexpr int pair = 2;
  const int each_way = pair * mma_rows * mma_rows * v.warps;  // of rows or columns times keys
  const bool pairs = v.deterministic == 0 && v.stages > 1 && v.B_c % (pair * mma_rows) == 0 &&
                     v.B_c <= mma_rows * v.warps && v.B_r * v.B_c % each_way == 0 && v.head_dim * v.B_c % each_way == 0;
  return pairs ? pair : std::max(1, v.B_c / (mma_rows * v.warps));
}

/// How backward_sm80's warps share a tile.
struct WarpLayout {
  int key_tiles;     ///< of 16 keys, that a warp has
  int key_warps;     ///< that have keys of their own
  int column_warps;  ///< that share them

  explicit WarpLayout(const Variant& v)
      : key_tiles(tiles_of_warp(v)),
        key_warps(std::max(1, v.B_c / (mma_rows * key_tiles))),
        column_warps(std::max(1, v.warps / key_warps)) {}
};

bool warps_share(const Variant& v) {
  const WarpLayout layout(v);
  return v.B_c == mma_rows * layout.key_tiles * layout.key_warps && v.warps == layout.key_warps * layout.column_warps;
}

bool columns_divide(const Variant& v) {
  const int piece = mma_rows * WarpLayout(v).column_warps;
  return v.head_dim % piece == 0 && v.B_r % piece == 0;
}

bool rows_are_padded(const Variant& v) { return padded_rows % v.B_r == 0; }

Resources resources_of(const Variant& v) {
  const WarpLayout layout(v);
  const int block = v.element_bytes() * v.B_r * v.head_dim;
  // P and dS where warps share keys, and dS where all warps need it.
  const int score_tiles = layout.column_warps > 1 ? 2 : v.deterministic != 0 ? 0 : 1;
  Resources needs;
  needs.threads = v.warps * lanes;
  needs.shared_bytes = 2 * v.element_bytes() * v.B_c * v.head_dim + v.stages * (2 * block + v.B_r * statistics_bytes) +
                       score_tiles * v.element_bytes() * v.B_c * v.B_r;
  needs.accumulator_registers = layout.key_tiles * (v.head_dim + v.B_r) / layout.column_warps;
  return needs;
}

std::optional<Refusal> warps_rule(const Variant& v) {
  if (warps_share(v)) return std::nullopt;
  return refuse(v, {"warps", "B_c"},
                fmt::format("warps is {}; of B_c {} each warp has whole tiles of 16 keys, or as many warps share each "
                            "tile",
                            v.warps, v.B_c),
                warps_share);
}

std::optional<Refusal> columns_rule(const Variant& v) {
  if (!warps_share(v) || columns_divide(v)) return std::nullopt;
  const int column_warps = WarpLayout(v).column_warps;
  return refuse(v, {"B_r", "head_dim", "warps"},
                fmt::format("B_r is {} and head_dim {}; {} warps that share 16 keys of B_c {} take multiples of {}",
                            v.B_r, v.head_dim, column_warps, v.B_c, mma_rows * column_warps),
                [](const Variant& c) { return warps_share(c) && columns_divide(c); });
}

/// Whether warps can share dQ's tiles of 16 rows and 16 columns, where they compute it.
bool dq_divides(const Variant& v) {
  if (v.deterministic != 0) return true;
  return std::ranges::any_of(std::array{4, 2, 1}, [&](int column_warps) {
    return v.warps % column_warps == 0 && v.head_dim / mma_rows % column_warps == 0 &&
           v.B_r / mma_rows % (v.warps / column_warps) == 0;
  });
}

std::optional<Refusal> dq_rule(const Variant& v) {
  if (dq_divides(v)) return std::nullopt;
  return refuse(v, {"head_dim", "B_r", "warps"},
                fmt::format("B_r is {} and head_dim {}, of which {} warps cannot share dQ in whole tiles of 16 x 16",
                            v.B_r, v.head_dim, v.warps),
                dq_divides);
}

std::optional<Refusal> padding_rule(const Variant& v) {
  if (rows_are_padded(v)) return std::nullopt;
  return refuse(v, {"B_r"}, fmt::format("B_r is {}, which does not divide {}", v.B_r, padded_rows), rows_are_padded);
}

bool is_tile(const Variant& v) { return warps_share(v) && columns_divide(v) && dq_divides(v) && rows_are_padded(v); }

std::optional<Refusal> registers_rule(const Variant& v) {
  const auto passes = [](const Variant& c) {
    return is_tile(c) && resources_of(c).accumulator_registers <= register_budget(resources_of(c).threads);
  };
  const Resources needs = resources_of(v);
  const int budget = register_budget(needs.threads);
  if (needs.accumulator_registers <= budget) return std::nullopt;
  return refuse(v, {"B_r", "B_c", "warps"},
                fmt::format("dK, dV, S and dP take {} registers per thread, over the {} that {} threads leave without "
                            "spilling",
                            needs.accumulator_registers, budget, needs.threads),
                passes);
}

std::optional<Refusal> window_rule(const Variant& v) {
  if (v.window == 0 || v.causal == 0) return std::nullopt;
  return Refusal{"causal", "a window has the causal mask among its bounds, as window_right 0; causal: false"};
}

constexpr auto rules = std::to_array<Rule>(
    {warps_rule, columns_rule, dq_rule, padding_rule, registers_rule, window_rule, expressions_rule, gradients_rule});

constexpr std::array<std::string_view, 3> shared_memory_keys{"stages", "B_r", "B_c"};

/// The tile of one range of head_dims.
struct Tile {
  int head_dim;  ///< the largest it serves
  int B_r;
  int B_c;
  int warps;
  int stages;
};

constexpr std::array tiles{
    Tile{64, 32, 128, 4, 2},
    Tile{128, 64, 128, 8, 2},
    Tile{256, 64, 64, 8, 2},
};

void round_head_dim(Variant& variant, int step) { variant.head_dim = (variant.head_dim + step - 1) / step * step; }

template <std::size_t count>
void set_tile(Variant& variant, const std::array<Tile, count>& of_family) {
  const Tile& tile = *std::ranges::find_if(of_family, [&](const Tile& t) { return variant.head_dim <= t.head_dim; });
  variant.B_r = tile.B_r;
  variant.B_c = tile.B_c;
  variant.warps = tile.warps;
  variant.stages = tile.stages;
}

/// Halves what has to be small, the first of them that leaves a tile, while shared memory is short.
template <class TileCheck, class Bytes, std::size_t count>
void shrink(Variant& variant, int shared_per_block, const TileCheck& passes, const Bytes& bytes,
            const std::array<Variant (*)(Variant), count>& steps) {
  while (bytes(variant) > shared_per_block) {
    const auto* const step =
        std::ranges::find_if(steps, [&](const auto& one) { return one(variant) != variant && passes(one(variant)); });
    if (step == steps.end()) return;
    variant = (*step)(variant);
  }
}

Variant with_one_stage(Variant v) {
  v.stages = 1;
  return v;
}
Variant with_half_the_rows(Variant v) {
  v.B_r /= 2;
  return v;
}
Variant with_half_the_keys(Variant v) {
  v.B_c /= 2;
  v.warps /= 2;
  return v;
}
Variant with_half_the_warps(Variant v) {
  v.B_r /= 2;
  v.warps /= 2;
  return v;
}

void set_default_tile(Variant& variant, int shared_per_block, int /*B_r*/) {
  const bool one_warp = variant.head_dim <= padded_rows && variant.deterministic != 0;
  round_head_dim(variant, one_warp ? mma_rows : 2 * mma_rows);
  set_tile(variant, tiles);
  const auto passes = [](const Variant& v) {
    return v.B_r >= mma_rows && v.B_c >= mma_rows && v.warps >= 1 && is_tile(v);
  };
  shrink(
      variant, shared_per_block, passes, [](const Variant& v) { return resources_of(v).shared_bytes; },
      std::array{with_one_stage, with_half_the_rows, with_half_the_keys});
}

bool rows_divide(const Variant& v) { return v.B_r % (mma_rows * v.warps) == 0; }

bool is_dq_tile(const Variant& v) { return rows_divide(v) && rows_are_padded(v); }

Resources dq_resources(const Variant& v) {
  Resources needs;
  needs.threads = v.warps * lanes;
  // dQ leaves through Q's region.
  needs.shared_bytes = 2 * v.element_bytes() * v.head_dim * (v.B_r + v.stages * v.B_c);
  needs.accumulator_registers = (v.B_r * v.head_dim + 2 * v.B_r * v.B_c) / needs.threads;
  return needs;
}

std::optional<Refusal> dq_rows_rule(const Variant& v) {
  if (rows_divide(v)) return std::nullopt;
  return refuse(v, {"B_r", "warps"},
                fmt::format("B_r is {}, which is not a multiple of 16 * warps = {}: every warp computes whole 16-row "
                            "tiles",
                            v.B_r, mma_rows * v.warps),
                is_dq_tile);
}

std::optional<Refusal> dq_registers_rule(const Variant& v) {
  const auto passes = [](const Variant& c) {
    return is_dq_tile(c) && dq_resources(c).accumulator_registers <= register_budget(dq_resources(c).threads);
  };
  const Resources needs = dq_resources(v);
  const int budget = register_budget(needs.threads);
  if (needs.accumulator_registers <= budget) return std::nullopt;
  return refuse(v, {"B_c", "B_r", "warps"},
                fmt::format("dQ, S and dP take {} registers per thread, over the {} that {} threads leave without "
                            "spilling",
                            needs.accumulator_registers, budget, needs.threads),
                passes);
}

constexpr auto dq_rules =
    std::to_array<Rule>({dq_rows_rule, padding_rule, dq_registers_rule, window_rule, expressions_rule, gradients_rule});

constexpr std::array<std::string_view, 3> dq_shared_memory_keys{"stages", "B_c", "B_r"};

constexpr std::array dq_tiles{
    Tile{64, 128, 64, 4, 2},
    Tile{128, 128, 64, 8, 2},
    Tile{256, 128, 32, 8, 2},
};

void set_default_dq_tile(Variant& variant, int shared_per_block, int /*B_r*/) {
  round_head_dim(variant, mma_rows);
  set_tile(variant, dq_tiles);
  const auto passes = [](const Variant& v) { return v.warps >= 1 && v.B_r >= mma_rows && is_dq_tile(v); };
  shrink(
      variant, shared_per_block, passes, [](const Variant& v) { return dq_resources(v).shared_bytes; },
      std::array{with_one_stage, with_half_the_warps});
}

/// A run of lanes has a row.
Resources rows_resources(const Variant& v) {
  return {.threads = v.warps * lanes, .shared_bytes = 0, .accumulator_registers = 8};
}

/// Rows of dQ pass through it.
Resources convert_resources(const Variant& v) {
  return {.threads = v.warps * lanes,
          .shared_bytes = v.warps * mma_rows * v.head_dim * v.element_bytes(),
          .accumulator_registers = mma_rows * v.head_dim / lanes};
}

constexpr std::array<std::string_view, 1> convert_shared_memory_keys{"warps"};

void set_default_rows(Variant& variant, int /*shared_per_block*/, int /*B_r*/) { round_head_dim(variant, mma_rows); }

}  // namespace

const FamilyChecks& backward_sm80_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = is_tile,
                                       .rules = rules,
                                       .shared_memory_keys = shared_memory_keys,
                                       .set_default_tile = set_default_tile};
  return checks;
}

const FamilyChecks& backward_dq_sm80_checks() {
  static constexpr FamilyChecks checks{.resources = dq_resources,
                                       .is_tile = is_dq_tile,
                                       .rules = dq_rules,
                                       .shared_memory_keys = dq_shared_memory_keys,
                                       .set_default_tile = set_default_dq_tile};
  return checks;
}

const FamilyChecks& backward_rows_checks() {
  static constexpr FamilyChecks checks{.resources = rows_resources,
                                       .is_tile = [](const Variant&) { return true; },
                                       .rules = {},
                                       .shared_memory_keys = {},
                                       .set_default_tile = set_default_rows};
  return checks;
}

const FamilyChecks& backward_convert_checks() {
  static constexpr FamilyChecks checks{.resources = convert_resources,
                                       .is_tile = [](const Variant&) { return true; },
                                       .rules = {},
                                       .shared_memory_keys = convert_shared_memory_keys,
                                       .set_default_tile = set_default_rows};
  return checks;
}

}  // namespace attune
