// What check.cpp asks of each family: its arithmetic, its rules and its default tiles. One file a family.
#pragma once

#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "generator/check.hpp"

namespace attune {

/// One rule: nothing where it holds, else the refusal.
using Rule = std::optional<Refusal> (*)(const Variant&);

/// Whether a score's and a mask's expressions go together, in every family that has them.
std::optional<Refusal> expressions_rule(const Variant& variant);

/// What is particular to a family.
struct FamilyChecks {
  Resources (*resources)(const Variant&);
  /// Whether the tile's sizes go together, shared memory and registers apart.
  bool (*is_tile)(const Variant&);
  std::span<const Rule> rules;
  /// What to make smaller where shared memory is short, in the order in which it is given up.
  std::span<const std::string_view> shared_memory_keys;
  /// Sets the tile for the variant's own dtype, head dimensions and mask, of several the one whose B_r is nearest to
  /// the last argument; rounds the head dimensions up to some that the family has.
  void (*set_default_tile)(Variant&, int shared_per_block, int B_r);
};

const FamilyChecks& prefill_sm80_checks();
const FamilyChecks& prefill_fa1_sm80_checks();
const FamilyChecks& prefill_sm90_checks();
const FamilyChecks& decode_sm80_checks();
const FamilyChecks& combine_checks();
const FamilyChecks& chunk_checks();  ///< of kernels in which a thread has 16 bytes of a tensor
const FamilyChecks& check_tables_checks();
const FamilyChecks& backward_sm80_checks();
const FamilyChecks& backward_sm90_checks();
const FamilyChecks& backward_rows_checks();
const FamilyChecks& backward_dq_sm80_checks();
const FamilyChecks& backward_convert_checks();

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
Refusal refuse(const Variant& variant, std::span<const std::string_view> keys, const std::string& what,
               const Passes& passes) {
  for (const std::string_view key : keys) {
    if (const auto value = nearest_passing(variant, key, passes)) {
      return {std::string{key}, fmt::format("{}; nearest that passes: {} {}", what, key, *value)};
    }
  }
  return {std::string{keys.front()}, fmt::format("{}; no value of {} alone passes", what, fmt::join(keys, " or "))};
}

template <class Passes>
Refusal refuse(const Variant& variant, std::initializer_list<std::string_view> keys, const std::string& what,
               const Passes& passes) {
  return refuse(variant, std::span(keys.begin(), keys.size()), what, passes);
}

}  // namespace attune
