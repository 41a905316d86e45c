// The rules of prefill_sm80, and of prefill_fa1_sm80, which has its tiles, one of K and of V.
#include <algorithm>
#include <array>

#include "generator/family_checks.hpp"

namespace attune {
namespace {

constexpr int lanes = 32;           // threads of a warp
constexpr int mma_rows = 16;        // rows of an m16n8k16 tile, and its depth
constexpr int max_registers = 255;  // of a thread
constexpr int block_registers = 65536;

/// Registers that addresses, fragments in flight and the softmax state take beside the accumulators. Measured with
/// ptxas 13.0 on sm_80 and sm_90: no tile spills at 192 accumulators of 255 registers, most do at 208.
constexpr int working_registers = 55;

/// Registers per thread that the accumulators may have: what a thread may address, or a large block leaves it.
int register_budget(int threads) { return std::min(max_registers, block_registers / threads) - working_registers; }

bool rows_divide(const Variant& v) { return v.B_r % (mma_rows * v.warps) == 0; }

Resources resources_of(const Variant& v) {
  Resources needs;
  needs.threads = v.warps * lanes;
  // O leaves through Q's region, so Q and the K and V blocks in flight are all there is.
  needs.shared_bytes = v.element_bytes() * (v.B_r * v.head_dim + 2 * v.stages * v.B_c * v.head_dim);
  needs.accumulator_registers = (v.B_r * v.head_dim + v.B_r * v.B_c) / needs.threads;
  if (v.Q_in_registers != 0) needs.accumulator_registers += v.B_r * v.head_dim / 2 / needs.threads;
  return needs;
}

std::optional<Refusal> rows_rule(const Variant& v) {
  if (rows_divide(v)) return std::nullopt;
  return refuse(v, {"B_r", "warps"},
                fmt::format("B_r is {}, which is not a multiple of 16 * warps = {}: every warp computes whole 16-row "
                            "tiles",
                            v.B_r, mma_rows * v.warps),
                rows_divide);
}

std::optional<Refusal> registers_rule(const Variant& v) {
  const auto passes = [](const Variant& c) {
    const Resources needs = resources_of(c);
    return rows_divide(c) && needs.accumulator_registers <= register_budget(needs.threads);
  };
  const Resources needs = resources_of(v);
  const int budget = register_budget(needs.threads);
  if (needs.accumulator_registers <= budget) return std::nullopt;
  return refuse(
      v, {"B_c", "B_r", "warps"},
      fmt::format("O and S{} take {} registers per thread, over the {} that {} threads leave without spilling",
                  v.Q_in_registers != 0 ? " and Q" : "", needs.accumulator_registers, budget, needs.threads),
      passes);
}

std::optional<Refusal> divides_rule(const Variant& v, std::string_view key, std::string_view along, int extent) {
  const auto passes = [&](const Variant& c) { return extent / mma_rows % (c.*find_field(key)->member) == 0; };
  const int tiles = v.*find_field(key)->member;
  if (tiles == 0 || passes(v)) return std::nullopt;
  return refuse(
      v, {key},
      fmt::format("{} is {}, which does not divide the {} tiles of {} / 16", key, tiles, extent / mma_rows, along),
      passes);
}

std::optional<Refusal> Q_tiles_rule(const Variant& v) {
  return divides_rule(v, "Q_fragment_tiles", "head_dim", v.head_dim);
}
std::optional<Refusal> K_tiles_rule(const Variant& v) {
  return divides_rule(v, "K_fragment_tiles", "head_dim", v.head_dim);
}
std::optional<Refusal> V_tiles_rule(const Variant& v) { return divides_rule(v, "V_fragment_tiles", "B_c", v.B_c); }

std::optional<Refusal> Q_in_registers_rule(const Variant& v) {
  if (v.Q_in_registers == 0 || v.Q_fragment_tiles == 0) return std::nullopt;
  return Refusal{"Q_fragment_tiles",
                 fmt::format("Q_in_registers loads all of Q's fragments once, so Q_fragment_tiles {} means nothing; "
                             "Q_fragment_tiles: whole",
                             v.Q_fragment_tiles)};
}

std::optional<Refusal> common_tiles_rule(const Variant& v) {
  if (v.Q_fragment_tiles == 0 || v.K_fragment_tiles == 0 || v.Q_fragment_tiles == v.K_fragment_tiles) {
    return std::nullopt;
  }
  return Refusal{
      "Q_fragment_tiles",
      fmt::format("Q_fragment_tiles is {} and K_fragment_tiles {}, but both advance together along head_dim; "
                  "Q_fragment_tiles: {} or whole",
                  v.Q_fragment_tiles, v.K_fragment_tiles, v.K_fragment_tiles)};
}

std::optional<Refusal> double_buffer_rule(const Variant& v) {
  const auto in_steps = [](int tiles, int extent) { return tiles != 0 && tiles * mma_rows < extent; };
  const bool steps = in_steps(v.Q_fragment_tiles, v.head_dim) || in_steps(v.K_fragment_tiles, v.head_dim) ||
                     in_steps(v.V_fragment_tiles, v.B_c);
  if (v.double_buffer == 0 || steps) return std::nullopt;
  return Refusal{"double_buffer",
                 "double_buffer loads the next tiles ahead, but the fragments of Q, K and V are all loaded whole; "
                 "double_buffer: false"};
}

std::optional<Refusal> stages_rule(const Variant& v) {
  if (v.stages == 1 || v.eager_load != 0) return std::nullopt;
  return Refusal{"stages", fmt::format("stages is {}, but without eager_load only 1 is ever filled ahead of its use; "
                                       "stages: 1, or eager_load: true",
                                       v.stages)};
}

std::optional<Refusal> eager_load_rule(const Variant& v) {
  if (v.eager_load == 0 || v.async_copy != 0) return std::nullopt;
  return Refusal{"eager_load",
                 "eager_load asks for a block early, but without async_copy a thread waits for every copy; "
                 "eager_load: false, or async_copy: true"};
}

std::optional<Refusal> window_rule(const Variant& v) {
  if (v.window == 0 || v.causal == 0) return std::nullopt;
  return Refusal{"causal", "a window has the causal mask among its bounds, as window_right 0; causal: false"};
}

std::optional<Refusal> cut_rows_rule(const Variant& v) {
  if (v.cut_rows == 0 || v.async_copy != 0) return std::nullopt;
  return Refusal{"async_copy", "cut_rows needs cp.async, which ends a copy where a row does; async_copy: true"};
}

/// The tile of one range of head_dims.
struct Tile {
  int head_dim;  ///< the largest it serves
  int B_r;
  int B_c;
  int warps;
  int stages;
  bool double_buffer;
};

constexpr std::array tiles{
    Tile{64, 128, 128, 4, 2, false},
    Tile{128, 128, 64, 4, 2, true},
    Tile{256, 64, 64, 4, 1, true},
};

constexpr auto rules = std::to_array<Rule>({rows_rule, registers_rule, Q_tiles_rule, K_tiles_rule, V_tiles_rule,
                                            Q_in_registers_rule, common_tiles_rule, double_buffer_rule, stages_rule,
                                            eager_load_rule, window_rule, cut_rows_rule, expressions_rule});

constexpr std::array<std::string_view, 3> shared_memory_keys{"stages", "B_c", "B_r"};

void set_default_tile(Variant& variant, int shared_per_block, int /*B_r*/) {
  const int step = find_field("head_dim")->step;
  variant.head_dim = (variant.head_dim + step - 1) / step * step;
  const Tile& tile = *std::ranges::find_if(tiles, [&](const Tile& t) { return variant.head_dim <= t.head_dim; });
  variant.B_r = tile.B_r;
  variant.B_c = tile.B_c;
  variant.warps = tile.warps;
  variant.stages = tile.stages;
  variant.double_buffer = tile.double_buffer ? 1 : 0;
  // On a smaller GPU give up look-ahead first, then the depth of a step, then rows (each reads K and V again).
  while (resources_of(variant).shared_bytes > shared_per_block) {
    if (variant.stages > 1) {
      --variant.stages;
    } else if (variant.B_c > mma_rows) {
      variant.B_c -= mma_rows;
    } else if (variant.B_r > mma_rows * variant.warps) {
      variant.B_r -= mma_rows * variant.warps;
    } else {
      break;
    }
  }
  // One tile in each direction leaves nothing to load ahead.
  if (variant.head_dim == mma_rows && variant.B_c == mma_rows) variant.double_buffer = 0;
}

constexpr auto fa1_rules = std::to_array<Rule>({rows_rule, registers_rule});

constexpr std::array<std::string_view, 2> fa1_shared_memory_keys{"B_c", "B_r"};

void set_default_fa1_tile(Variant& variant, int shared_per_block, int /*B_r*/) {
  const int step = find_field("head_dim")->step;
  variant.head_dim = (variant.head_dim + step - 1) / step * step;
  while (resources_of(variant).shared_bytes > shared_per_block && variant.B_c > mma_rows) variant.B_c -= mma_rows;
}

}  // namespace

const FamilyChecks& prefill_fa1_sm80_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = rows_divide,
                                       .rules = fa1_rules,
                                       .shared_memory_keys = fa1_shared_memory_keys,
                                       .set_default_tile = set_default_fa1_tile};
  return checks;
}

const FamilyChecks& prefill_sm80_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = rows_divide,
                                       .rules = rules,
                                       .shared_memory_keys = shared_memory_keys,
                                       .set_default_tile = set_default_tile};
  return checks;
}

}  // namespace attune
