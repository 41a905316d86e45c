#include "generator/check.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "generator/expression/cuda.hpp"
#include "generator/expression/derivative.hpp"
#include "generator/expression/pool.hpp"
#include "generator/family_checks.hpp"

namespace attune {
namespace {

const FamilyChecks& checks_of(const Variant& variant) { return family_of(variant).checks(); }

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

/// The rules that depend on the GPU; `gpu` names it.
std::vector<Refusal> check_gpu(const Variant& variant, std::string_view gpu, int capability, int shared_per_block) {
  std::vector<Refusal> refusals;
  const Family& family = family_of(variant);
  const FamilyChecks& checks = checks_of(variant);
  if (!runs_on(variant, capability)) {
    const std::string needed = capability_text(minimum_capability(variant));
    refusals.push_back({"arch", fmt::format("{} has compute capability {}; {}{} {}", gpu, capability_text(capability),
                                            family.name, variant.cluster != 0 ? " with clusters" : "",
                                            family.architecture_specific ? fmt::format("runs on {} alone", needed)
                                                                         : fmt::format("needs {} or newer", needed))});
  }
  const int needed = checks.resources(variant).shared_bytes;
  if (needed > shared_per_block) {
    const auto passes = [&](const Variant& candidate) {
      return checks.is_tile(candidate) && checks.resources(candidate).shared_bytes <= shared_per_block;
    };
    std::vector<std::string_view> keys;
    std::ranges::copy_if(checks.shared_memory_keys, std::back_inserter(keys), [&](std::string_view key) {
      const Field& field = *find_field(key);
      return variant.*field.member > field.minimum || key == checks.shared_memory_keys.back();
    });
    refusals.push_back(
        refuse(variant, keys,
               fmt::format("Q, K and V take {} bytes of shared memory, over the {} a block may have on {}", needed,
                           shared_per_block, gpu),
               passes));
  }
  return refusals;
}

/// The same for the GPU with the most shared memory among those that the family runs on.
std::vector<Refusal> check_roomiest(const Variant& variant) {
  const Family& family = family_of(variant);
  std::vector<Arch> archs;
  std::ranges::copy_if(all_archs(), std::back_inserter(archs),
                       [&](const Arch& arch) { return runs_on(variant, arch.capability); });
  const Arch& roomiest = *std::ranges::max_element(archs, {}, &Arch::shared_per_block);
  return check_gpu(variant, family.architecture_specific ? roomiest.name : "any GPU", roomiest.capability,
                   roomiest.shared_per_block);
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

std::optional<Refusal> expressions_rule(const Variant& variant) {
  if (variant.score == 0 || variant.mask == 0) return std::nullopt;
  const std::string conflict =
      expression::conflict_of(&expression::expression_of(variant.score), &expression::expression_of(variant.mask));
  if (conflict.empty()) return std::nullopt;
  return Refusal{"mask", conflict};
}

std::optional<Refusal> gradients_rule(const Variant& variant) {
  if (variant.score == 0) return std::nullopt;
  const expression::Expression& score = expression::expression_of(variant.score);
  if (!expression::has_unit_slope(score)) {
    return Refusal{"score",
                   fmt::format("score is {}, whose derivative by s is not one; gradients pass what only adds to "
                               "s, as s + slope[h] * (k - p)",
                               score.formula())};
  }
  if (variant.softcap == 0) return std::nullopt;
  return Refusal{"softcap", "the slope of a soft cap is not known behind a score's expression; softcap: false"};
}

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
    std::ranges::move(check_roomiest(variant), std::back_inserter(refusals));
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

Variant default_variant(int family, const Need& need, int shared_per_block, int B_r) {
  Variant variant = families()[static_cast<std::size_t>(family)].defaults;
  for (const Field& field : fields()) {
    const bool is_asked = field.wanted != nullptr && field.relation != Relation::any_or_equal;
    if (!is_asked || !family_of(variant).has_key(field.key)) continue;
    const int wanted = need.*field.wanted;
    // Sizes between those of kernels are rounded up with the tile.
    variant.*field.member = field.relation == Relation::at_least ? std::clamp(wanted, 0, field.maximum) : wanted;
  }
  checks_of(variant).set_default_tile(variant, shared_per_block, B_r);
  return variant;
}

}  // namespace attune
