// The rules of backward_sm90.
#include <algorithm>
#include <array>
#include <string_view>

#include "generator/family_checks.hpp"
#include "templates/backward_params.h"

namespace attune {
namespace {

constexpr int warpgroup_threads = 128;
constexpr int warpgroup_rows = 64;  // of wgmma: of keys, and of queries of dQ
constexpr int consumers = 2;        // warpgroups that multiply
constexpr int block_keys = consumers * warpgroup_rows;
constexpr int panel_columns = 64;     // 128 bytes, the swizzle's row
constexpr int sums_bytes = 4;         // of an element of dQ, in fp32
constexpr int ring_stage_bytes = 16;  // a full and an empty mbarrier
constexpr int alignment = 1024;       // of panels; shared memory starts anywhere
constexpr int padded_rows = ATTUNE_BACKWARD_ROWS;

constexpr std::array head_dims{64, 96, 128, 192, 256};
constexpr int most_columns_of_own_keys = 128;  // of whose gradients a warpgroup can hold all

/// Registers per thread that accumulators and fragments may have of the 240 that a consumer warpgroup takes.
constexpr int register_budget = 224;

bool is_head_dim(const Variant& v) { return std::ranges::find(head_dims, v.head_dim) != head_dims.end(); }

bool is_query_tile(const Variant& v) { return v.B_r == warpgroup_rows || v.B_r == padded_rows; }

/// Whether both warpgroups work on the same keys.
bool shares_keys(const Variant& v) { return v.B_c == warpgroup_rows; }

bool has_keys(const Variant& v) { return v.B_c == block_keys || (shares_keys(v) && v.B_r == warpgroup_rows); }

/// Columns of dQ that a warpgroup has.
int dq_columns(const Variant& v) { return v.head_dim * v.B_r / block_keys; }

bool is_tile(const Variant& v) { return is_query_tile(v) && has_keys(v); }

/// Columns that a row of a tile takes, whose `parts` begin with a panel each.
int stored_columns(const Variant& v, int parts) {
  const int part = v.head_dim / parts;
  return parts * ((part + panel_columns - 1) / panel_columns * panel_columns);
}

Resources resources_of(const Variant& v) {
  const int key_parts = consumers * warpgroup_rows / v.B_r;
  const int query_parts = shares_keys(v) ? consumers : 1;
  const int dout_stages = shares_keys(v) ? 1 : v.stages;
  const int sums_at_once = v.B_r * v.head_dim / (shares_keys(v) ? 2 : 1);
  // K and V, two tiles of P and dS, and in each stage Q, dO and statistics, behind which panels are aligned again.
  const int elements = 2 * v.B_c * (stored_columns(v, key_parts) + v.B_r) +
                       (v.stages + dout_stages) * v.B_r * stored_columns(v, query_parts);
  Resources needs;
  needs.threads = (1 + consumers) * warpgroup_threads;
  needs.shared_bytes = elements * v.element_bytes() + sums_at_once * sums_bytes + v.stages * alignment +
                       (2 + v.stages + dout_stages) * ring_stage_bytes + alignment - 1;
  // dK and dV; S and dP, or S and dQ; P or dS in half a register an element. Of shared keys each has half, and half of
  // dQ is gone when S and dP come.
  if (shares_keys(v)) {
    const int scores_or_dq = std::max(v.B_r / 2 + dq_columns(v) / 4, dq_columns(v) / 2);
    needs.accumulator_registers = v.head_dim / 2 + scores_or_dq + v.B_r / 4;
  } else {
    const int scores_and_gradients = v.B_r / 2 + std::max(v.B_r, dq_columns(v)) / 2;
    needs.accumulator_registers = v.head_dim + scores_and_gradients + v.B_r / 4;
  }
  return needs;
}

std::optional<Refusal> head_dim_rule(const Variant& v) {
  if (is_head_dim(v)) return std::nullopt;
  return refuse(v, {"head_dim"},
                fmt::format("head_dim is {}; backward_sm90 has {}", v.head_dim, fmt::join(head_dims, ", ")),
                is_head_dim);
}

std::optional<Refusal> rows_rule(const Variant& v) {
  if (is_query_tile(v)) return std::nullopt;
  return refuse(
      v, {"B_r"},
      fmt::format("B_r is {}; a step of backward_sm90 has {} or {} queries", v.B_r, warpgroup_rows, padded_rows),
      is_query_tile);
}

std::optional<Refusal> keys_rule(const Variant& v) {
  if (has_keys(v)) return std::nullopt;
  return refuse(v, {"B_c", "B_r"},
                fmt::format("B_c is {}; {} warpgroups of backward_sm90 have {} keys each, or with B_r {} share {}",
                            v.B_c, consumers, warpgroup_rows, warpgroup_rows, warpgroup_rows),
                has_keys);
}

std::optional<Refusal> stages_rule(const Variant& v) {
  const auto passes = [](const Variant& c) { return c.stages > 1; };
  if (passes(v)) return std::nullopt;
  return refuse(v, {"stages"}, "stages is 1, but the next queries are read beside those whose dK is under way", passes);
}

std::optional<Refusal> registers_rule(const Variant& v) {
  const int needed = resources_of(v).accumulator_registers;
  if (needed <= register_budget) return std::nullopt;
  return refuse(v, {"B_r", "B_c", "head_dim"},
                fmt::format("dK, dV, S, dP and P take {} registers per thread, over the {} that {} warpgroups leave "
                            "without spilling",
                            needed, register_budget, consumers),
                [](const Variant& c) {
                  return is_tile(c) && is_head_dim(c) && resources_of(c).accumulator_registers <= register_budget;
                });
}

std::optional<Refusal> window_rule(const Variant& v) {
  if (v.window == 0 || v.causal == 0) return std::nullopt;
  return Refusal{"causal", "a window has the causal mask among its bounds, as window_right 0; causal: false"};
}

constexpr auto rules = std::to_array<Rule>(
    {head_dim_rule, rows_rule, keys_rule, stages_rule, registers_rule, window_rule, expressions_rule, gradients_rule});

constexpr std::array<std::string_view, 2> shared_memory_keys{"stages", "B_r"};

void set_default_tile(Variant& variant, int /*shared_per_block*/, int /*B_r*/) {
  const auto* const fitting =
      std::ranges::find_if(head_dims, [&](int head_dim) { return head_dim >= variant.head_dim; });
  variant.head_dim = fitting != head_dims.end() ? *fitting : head_dims.back();  // which then is refused
  variant.B_r = variant.head_dim <= panel_columns ? padded_rows : warpgroup_rows;
  variant.B_c = variant.head_dim <= most_columns_of_own_keys ? block_keys : warpgroup_rows;
  variant.stages = 2;
}

}  // namespace

const FamilyChecks& backward_sm90_checks() {
  static constexpr FamilyChecks checks{.resources = resources_of,
                                       .is_tile = is_tile,
                                       .rules = rules,
                                       .shared_memory_keys = shared_memory_keys,
                                       .set_default_tile = set_default_tile};
  return checks;
}

}  // namespace attune
