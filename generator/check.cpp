#include "generator/check.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>

namespace attune {
namespace {

constexpr int lanes = 32;           // threads of a warp
constexpr int mma_rows = 16;        // rows of an m16n8k16 tile, and its depth
constexpr int element_bytes = 2;    // fp16 and bf16
constexpr int max_registers = 255;  // of a thread
constexpr int block_registers = 65536;

/// Registers that addresses, fragments in flight and the softmax state take beside the accumulators. Measured with
/// ptxas 13.0 on sm_80 and sm_90: no tile spills at 192 accumulators of 255 registers, most do at 208.
constexpr int working_registers = 55;

/// Registers per thread that the accumulators may have: what a thread may address, or a large block leaves it.
int register_budget(int threads) { return std::min(max_registers, block_registers / threads) - working_registers; }

/// The legal value of a field nearest to the variant's own with which `passes` holds; nothing when none does.
template <class Passes>
std::optional<int> nearest_passing(const Variant& variant, std::string_view key, const Passes& passes) {
  const Field& field = *find_field(key);
  const int own = variant.*field.member;
  std::optional<int> best;
  Variant candidate = variant;
  for (int value = field.minimum; value <= field.maximum; ++value) {
    candidate.*field.member = value;
    if (!is_legal(field, value) || !passes(candidate)) continue;
    if (!best || std::abs(value - own) < std::abs(*best - own)) best = value;
  }
  return best;
}

/// Refuses with the first of `keys` that can be changed alone to make `passes` hold, and says to what.
template <class Passes>
Refusal refuse(const Variant& variant, std::initializer_list<std::string_view> keys, const std::string& what,
               const Passes& passes) {
  for (const std::string_view key : keys) {
    if (const auto value = nearest_passing(variant, key, passes)) {
      return {std::string{key}, fmt::format("{}; nearest that passes: {} {}", what, key, *value)};
    }
  }
  return {std::string{*keys.begin()}, fmt::format("{}; no value of {} alone passes", what, fmt::join(keys, " or "))};
}

bool rows_divide(const Variant& v) { return v.B_r % (mma_rows * v.warps) == 0; }

// --- prefill_sm80 ---------------------------------------------------------------------------------------------------

Resources prefill_sm80_resources(const Variant& v) {
  Resources needs;
  needs.threads = v.warps * lanes;
  // O leaves through Q's region, so Q and the K and V blocks in flight are all there is.
  needs.shared_bytes = element_bytes * (v.B_r * v.head_dim + 2 * v.stages * v.B_c * v.head_dim);
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
    const Resources needs = prefill_sm80_resources(c);
    return rows_divide(c) && needs.accumulator_registers <= register_budget(needs.threads);
  };
  const Resources needs = prefill_sm80_resources(v);
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

std::optional<Refusal> splits_rule(const Variant& v) {
  if (v.splits == 1) return std::nullopt;
  return Refusal{"splits", fmt::format("splits is {}, but {} computes all keys in one thread block; splits: 1",
                                       v.splits, family_of(v).name)};
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

constexpr std::array prefill_sm80_tiles{
    Tile{64, 128, 128, 4, 2, false},
    Tile{128, 128, 64, 4, 2, true},
    Tile{256, 64, 64, 4, 1, true},
};

using Rule = std::optional<Refusal> (*)(const Variant&);

constexpr auto prefill_sm80_rules =
    std::to_array<Rule>({rows_rule, registers_rule, Q_tiles_rule, K_tiles_rule, V_tiles_rule, Q_in_registers_rule,
                         common_tiles_rule, double_buffer_rule, stages_rule, eager_load_rule, splits_rule});

// --- every family ---------------------------------------------------------------------------------------------------

/// What is particular to a family; element i belongs to families()[i].
struct FamilyChecks {
  Resources (*resources)(const Variant&);
  std::span<const Rule> rules;
};

constexpr std::array family_checks{
    FamilyChecks{prefill_sm80_resources, prefill_sm80_rules},
};

const FamilyChecks& checks_of(const Variant& variant) {
  return family_checks.at(static_cast<std::size_t>(variant.family));
}

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

/// The rules that depend on the GPU; `gpu` names it.
std::vector<Refusal> check_gpu(const Variant& variant, std::string_view gpu, int capability, int shared_per_block) {
  std::vector<Refusal> refusals;
  const Family& family = family_of(variant);
  if (capability < family.minimum_capability) {
    refusals.push_back(
        {"arch", fmt::format("{} has compute capability {}; {} needs {} or newer", gpu, capability_text(capability),
                             family.name, capability_text(family.minimum_capability))});
  }
  const int needed = resources(variant).shared_bytes;
  if (needed > shared_per_block) {
    const auto passes = [&](const Variant& candidate) {
      return rows_divide(candidate) && resources(candidate).shared_bytes <= shared_per_block;
    };
    const std::string what = fmt::format(
        "Q, K and V take {} bytes of shared memory, over the {} a block may have on {}", needed, shared_per_block, gpu);
    refusals.push_back(variant.stages > 1 ? refuse(variant, {"stages", "B_c", "B_r"}, what, passes)
                                          : refuse(variant, {"B_c", "B_r"}, what, passes));
  }
  return refusals;
}

/// Each field against the table, the others apart.
std::vector<Refusal> check_ranges(const Variant& variant) {
  std::vector<Refusal> refusals;
  for (const std::string_view key : family_of(variant).keys) {
    const Field& field = *find_field(key);
    const int value = variant.*field.member;
    if (is_legal(field, value)) continue;
    std::string message = fmt::format("{} is {}; {}", key, value, accepted_values(field));
    if (field.kind == FieldKind::integer) {
      message += fmt::format(", nearest {}", nearest_value(field, std::to_string(value)));
    }
    refusals.push_back({std::string{key}, message});
  }
  return refusals;
}

}  // namespace

Resources resources(const Variant& variant) { return checks_of(variant).resources(variant); }

std::vector<Refusal> check(const Variant& variant) {
  if (variant.family < 0 || static_cast<std::size_t>(variant.family) >= families().size()) {
    return {{"template", fmt::format("template {} does not exist; 0 to {}", variant.family, families().size() - 1)}};
  }
  std::vector<Refusal> refusals = check_ranges(variant);
  // The arithmetic of the rules needs values that mean something.
  if (!refusals.empty()) return refusals;
  for (const Rule rule : checks_of(variant).rules) {
    if (auto refusal = rule(variant)) refusals.push_back(std::move(*refusal));
  }
  if (variant.arch == 0) {
    const auto largest = std::ranges::max_element(all_archs(), {}, &Arch::shared_per_block);
    std::ranges::move(check_gpu(variant, "any GPU", largest->capability, largest->shared_per_block),
                      std::back_inserter(refusals));
  } else {
    for (const Arch& arch : target_archs(variant)) {
      std::ranges::move(check_arch(variant, arch), std::back_inserter(refusals));
    }
  }
  return refusals;
}

std::vector<Refusal> check_arch(const Variant& variant, const Arch& arch) {
  return check_gpu(variant, arch.name, arch.capability, arch.shared_per_block);
}

std::vector<Refusal> check_limits(const Variant& variant, int capability, int shared_per_block) {
  return check_gpu(variant, "this GPU", capability, shared_per_block);
}

std::vector<Arch> target_archs(const Variant& variant) {
  std::vector<Arch> archs;
  const auto known = all_archs();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const bool wanted = variant.arch == 0 ? check_arch(variant, known[i]).empty() : (variant.arch >> i & 1U) != 0;
    if (wanted) archs.push_back(known[i]);
  }
  return archs;
}

Variant default_variant(Dtype dtype, int head_dim, bool causal, int shared_per_block) {
  Variant variant;
  variant.dtype = static_cast<int>(dtype);
  const Field& D = *find_field("head_dim");
  variant.head_dim = (std::clamp(head_dim, 1, D.maximum) + D.step - 1) / D.step * D.step;
  variant.causal = causal ? 1 : 0;
  const auto fitting =
      std::ranges::find_if(prefill_sm80_tiles, [&](const Tile& tile) { return variant.head_dim <= tile.head_dim; });
  const Tile& tile = fitting == prefill_sm80_tiles.end() ? prefill_sm80_tiles.back() : *fitting;
  variant.B_r = tile.B_r;
  variant.B_c = tile.B_c;
  variant.warps = tile.warps;
  variant.stages = tile.stages;
  variant.double_buffer = tile.double_buffer ? 1 : 0;
  // On a smaller GPU give up look-ahead first, then the depth of a step, then rows (each reads K and V again).
  while (resources(variant).shared_bytes > shared_per_block) {
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
  return variant;
}

}  // namespace attune
