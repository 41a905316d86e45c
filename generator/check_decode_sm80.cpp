// The rules of decode_sm80, and those of combine, which merges what its thread blocks leave.
#include <algorithm>
#include <array>

#include "generator/family_checks.hpp"

namespace attune {
namespace {

constexpr int lanes = 32;     // threads of a warp
constexpr int mma_rows = 16;  // rows of an m16n8k16 tile, and its depth
constexpr int float_bytes = 4;
constexpr int combine_lane_columns = 4;  // of O that a lane stores
constexpr std::array row_counts{16, 32};
constexpr int page_piece = mma_rows;  // keys that one lookup finds; a warp's strip has one or two such pieces
constexpr int most_strip_keys = 32;   // of a warp in a step: a lane finds the place of one
constexpr int most_shared_keys = 64;  // of a step of warps with rows of their own, whose scores each warp has
constexpr int merged_rows = 8;        // that the warps add up at a time, ...
constexpr int merged_columns = 128;   // ... and columns
constexpr int bank_columns = 32;      // of O, in all of shared memory's banks: what a row fills up to

constexpr int Q_elements_in_registers = mma_rows * 128;  // a larger tile of Q is read from shared memory

constexpr int most_row_warps = 8;  // that have rows of their own

/// Registers per thread that O, S and Q may have.
constexpr int register_budget = 192;

int step_up(int value, int step) { return (value + step - 1) / step * step; }

bool has_rows(const Variant& v) {
  if (v.split_rows != 0) {
    const int warp_rows = mma_rows * v.warps;
    return v.warps <= most_row_warps && (v.B_r == warp_rows || v.B_r == 2 * warp_rows);
  }
  return std::ranges::find(row_counts, v.B_r) != row_counts.end();
}

/// Of warps that have rows of their own each copies 16 or 32 of a step's keys, or some none.
bool keys_divide(const Variant& v) {
  if (v.split_rows != 0) {
    const int copied = v.B_c > mma_rows * v.warps ? most_strip_keys : mma_rows;
    return v.B_c % copied == 0 && v.B_c <= most_strip_keys * v.warps && v.B_c <= most_shared_keys;
  }
  return v.B_c % (mma_rows * v.warps) == 0 && v.B_c / v.warps <= most_strip_keys;
}

bool is_tile(const Variant& v) { return has_rows(v) && keys_divide(v); }

Resources resources_of(const Variant& v) {
  Resources needs;
  needs.threads = v.warps * lanes;
  const int pipeline = v.stages * 2 * v.B_c * v.head_dim * v.element_bytes();
  const int row_of_O = step_up(std::min(v.head_dim, merged_columns), bank_columns) + 2;  // with m and l
  const bool split_rows = v.split_rows != 0;
  const int merged = split_rows ? 0 : v.warps * merged_rows * row_of_O * float_bytes;
  const bool Q_in_registers = !split_rows && v.B_r * v.head_dim <= Q_elements_in_registers;
  const int Q_tile = Q_in_registers ? 0 : v.B_r * v.head_dim * v.element_bytes();
  needs.shared_bytes = pipeline + merged + Q_tile;
  // O, S, and Q in half a register an element.
  const int keys = split_rows ? v.B_c : v.B_c / v.warps;
  const int row_registers = v.head_dim / 2 + keys / 2 + (Q_in_registers ? v.head_dim / 4 : 0);
  needs.accumulator_registers = v.B_r / (split_rows ? mma_rows * v.warps : mma_rows) * row_registers;
  return needs;
}

std::optional<Refusal> rows_rule(const Variant& v) {
  if (has_rows(v)) return std::nullopt;
  if (v.split_rows != 0) {
    return refuse(v, {"B_r", "warps"},
                  fmt::format("B_r is {}, but each of {} warps, up to {}, has 16 or 32 rows of its own", v.B_r, v.warps,
                              most_row_warps),
                  has_rows);
  }
  return refuse(v, {"B_r"}, fmt::format("B_r is {}; decode_sm80 has {}", v.B_r, fmt::join(row_counts, ", ")), has_rows);
}

std::optional<Refusal> keys_rule(const Variant& v) {
  if (keys_divide(v)) return std::nullopt;
  if (v.split_rows != 0) {
    return refuse(v, {"B_c", "warps"},
                  fmt::format("B_c is {}, but {} warps share up to {} keys, of which each copies 16 or 32", v.B_c,
                              v.warps, most_shared_keys),
                  keys_divide);
  }
  return refuse(v, {"B_c", "warps"}, fmt::format("B_c is {}, but {} warps take 16 or 32 keys each", v.B_c, v.warps),
                keys_divide);
}

std::optional<Refusal> registers_rule(const Variant& v) {
  if (!is_tile(v)) return std::nullopt;
  const int needed = resources_of(v).accumulator_registers;
  if (needed <= register_budget) return std::nullopt;
  return refuse(
      v, {"B_c", "B_r"},
      fmt::format("O, S and Q take {} registers per thread, over the {} that leave no spills", needed, register_budget),
      [](const Variant& c) { return is_tile(c) && resources_of(c).accumulator_registers <= register_budget; });
}

/// Whether what a block of a cluster leaves to the others fits where its keys were.
bool rows_fit(const Variant& v) {
  const int left = v.B_r * (v.head_dim + 1) * float_bytes;
  return v.cluster == 0 || left <= v.stages * 2 * v.B_c * v.head_dim * v.element_bytes();
}

std::optional<Refusal> cluster_rule(const Variant& v) {
  if (rows_fit(v)) return std::nullopt;
  return refuse(v, {"B_c", "stages"},
                fmt::format("in a cluster {} rows of O take the place of {} keys, which have fewer bytes", v.B_r,
                            v.stages * v.B_c),
                [](const Variant& c) { return is_tile(c) && rows_fit(c); });
}

bool has_pages(const Variant& v) { return v.page_multiple == 1 || (v.page_multiple == page_piece && v.paged != 0); }

std::optional<Refusal> pages_rule(const Variant& v) {
  if (has_pages(v)) return std::nullopt;
  return refuse(v, {"page_multiple"},
                v.paged == 0 ? fmt::format("page_multiple is {}, but the kernel is not for pages", v.page_multiple)
                             : fmt::format("page_multiple is {}; decode_sm80 has 1, {}", v.page_multiple, page_piece),
                has_pages);
}

std::optional<Refusal> one_query_rule(const Variant& v) {
  if (v.one_query != 0 && v.cut_rows != 0) {
    return Refusal{"one_query", "one_query serves the kernel's own head_dim, which cuts no rows; one_query: false"};
  }
  if (v.one_query == 0 || v.gqa_ratio != 0) return std::nullopt;
  return Refusal{"one_query", "one_query makes sizes constants of a kernel for one gqa_ratio; one_query: false"};
}

constexpr auto rules = std::to_array<Rule>(
    {rows_rule, keys_rule, registers_rule, cluster_rule, pages_rule, one_query_rule, expressions_rule});

constexpr std::array<std::string_view, 2> shared_memory_keys{"stages", "B_c"};

/// The tile of one range of head_dims.
struct Tile {
  int head_dim;     ///< the largest it serves
  int largest_B_r;  ///< that leaves registers
  int B_c;
  int warps;
  int stages;
};

constexpr std::array tiles{
    Tile{64, 32, 128, 4, 2},
    Tile{128, 32, 64, 4, 3},
    Tile{176, 32, 64, 4, 1},
    Tile{256, 16, 64, 4, 1},
};

const Tile& tile_of(const Variant& variant) {
  return *std::ranges::find_if(tiles, [&](const Tile& t) { return variant.head_dim <= t.head_dim; });
}

/// Whether so many rows would take more tiles of warps that share out keys than are worth it, as each tile reads all
/// keys: three, or two of 16 rows. (Two of 32 rows run side by side, so that the second finds keys in L2.)
bool splits_rows(const Tile& tile, int rows) {
  const int most_tiles = tile.largest_B_r == row_counts.back() ? 2 : 1;
  return rows > most_tiles * tile.largest_B_r;
}

/// Warps with rows of their own, 16 each; or, of a tile of seven such and more, 32 each, as half as many warps read
/// half as many fragments of keys and leave each other registers.
void set_row_warps(Variant& variant, int rows) {
  constexpr int widest_of_two_tiles = 128;  // columns of O, of which a thread then has twice as many
  const int row_tiles = std::clamp(step_up(rows, mma_rows) / mma_rows, 2, most_row_warps);
  const bool pairs = row_tiles >= most_row_warps - 1 && variant.head_dim <= widest_of_two_tiles;
  variant.warps = pairs ? most_row_warps / 2 : row_tiles;
  variant.B_r = pairs ? mma_rows * most_row_warps : mma_rows * row_tiles;
}

/// Whether a multiprocessor of compute capability 9.0 has shared memory for two blocks: where rows are many, one with
/// more stages is slower.
bool two_blocks_fit(const Variant& v) {
  constexpr int multiprocessor_bytes = 228 * 1024;
  constexpr int reserved_bytes = 1024;  // of each block
  return 2 * (resources_of(v).shared_bytes + reserved_bytes) <= multiprocessor_bytes;
}

void set_default_tile(Variant& variant, int shared_per_block, int B_r) {
  variant.head_dim = step_up(variant.head_dim, find_field("head_dim")->step);
  const Tile& tile = tile_of(variant);
  variant.B_c = tile.B_c;
  variant.warps = tile.warps;
  variant.stages = tile.stages;
  if (splits_rows(tile, B_r)) {
    variant.split_rows = 1;
    set_row_warps(variant, B_r);
    variant.B_c = most_shared_keys;
    variant.stages = 2;
    if (!two_blocks_fit(variant)) variant.stages = 1;
  } else {
    variant.B_r = std::min(B_r <= row_counts.front() ? row_counts.front() : row_counts.back(), tile.largest_B_r);
    if (variant.B_r == row_counts.back() && variant.stages > 2 && !two_blocks_fit(variant)) variant.stages = 2;
  }
  while (resources_of(variant).shared_bytes > shared_per_block && variant.stages > 1) --variant.stages;
  const bool is_too_large = resources_of(variant).shared_bytes > shared_per_block;
  if (variant.split_rows != 0 && is_too_large) variant.B_c = most_shared_keys / 2;
}

Resources combine_resources(const Variant& v) {
  constexpr int l_bytes = 16;
  return {.threads = v.warps * lanes,
          .shared_bytes = v.warps * (l_bytes + v.head_dim * float_bytes),
          .accumulator_registers = step_up(v.head_dim, combine_lane_columns * lanes) / lanes};
}

bool has_lanes(const Variant& v) { return v.warps * lanes * combine_lane_columns >= v.head_dim; }

std::optional<Refusal> lanes_rule(const Variant& v) {
  if (has_lanes(v)) return std::nullopt;
  return refuse(v, {"warps"},
                fmt::format("warps is {}; head_dim {} needs a thread for each {} columns of O", v.warps, v.head_dim,
                            combine_lane_columns),
                has_lanes);
}

constexpr auto combine_rules = std::to_array<Rule>({lanes_rule});

constexpr std::array<std::string_view, 1> combine_shared_memory_keys{"warps"};

void set_default_combine(Variant& variant, int /*shared_per_block*/, int /*B_r*/) {
  variant.head_dim = step_up(variant.head_dim, find_field("head_dim")->step);
}

}  // namespace

const FamilyChecks& decode_sm80_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = is_tile,
                                       .rules = rules,
                                       .shared_memory_keys = shared_memory_keys,
                                       .set_default_tile = set_default_tile};
  return checks;
}

const FamilyChecks& combine_checks() {
  static constexpr FamilyChecks checks{.resources = combine_resources,
                                       .is_tile = has_lanes,
                                       .rules = combine_rules,
                                       .shared_memory_keys = combine_shared_memory_keys,
                                       .set_default_tile = set_default_combine};
  return checks;
}

}  // namespace attune
