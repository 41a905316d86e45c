#include "generator/expand.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "generator/problem_list.hpp"

namespace attune {
namespace {

/// One key of a row with the values it takes there.
struct Axis {
  const Field* field;
  const Choice* choice;
};

/// What `variants:` row `row` and the common keys say together, in the order of the table.
std::vector<Axis> axes_of(const Spec& spec, const Settings* row) {
  std::vector<Axis> axes;
  for (const Field& field : fields()) {
    const std::string key{field.key};
    const auto common = spec.common.keys.find(key);
    const auto tune = spec.tune.keys.find(key);
    if (row != nullptr && row->keys.contains(key)) {
      axes.push_back({&field, &row->keys.at(key)});
    } else if (common != spec.common.keys.end()) {
      axes.push_back({&field, &common->second});
    } else if (tune != spec.tune.keys.end()) {
      axes.push_back({&field, &tune->second});
    }
  }
  return axes;
}

/// How many combinations the axes make; max_variants + 1 stands for anything above the limit.
std::size_t count(const std::vector<Axis>& axes) {
  std::size_t product = 1;
  for (const Axis& axis : axes) {
    // At most 4,097 times the 256 values of a field: no overflow.
    product = std::min(product * axis.choice->values.size(), max_variants + 1);
  }
  return product;
}

/// How many combinations the whole spec makes, up to that number.
std::size_t count(const Spec& spec) {
  std::size_t total = spec.rows.empty() ? count(axes_of(spec, nullptr)) : 0;
  for (const Settings& row : spec.rows) total = std::min(total + count(axes_of(spec, &row)), max_variants + 1);
  return total;
}

/// Rows of exclude times combinations, each of which is compared: half a second.
constexpr std::size_t most_comparisons = std::size_t{1} << 25;

/// What keeps a spec from being expanded in a moment.
std::optional<Diagnostic> beyond_limits(const Spec& spec) {
  const std::size_t combinations = count(spec);
  if (combinations > max_variants) {
    return Diagnostic{spec.common.where,
                      fmt::format("the lists multiply out to more than {} combinations", max_variants),
                      "shorten a list, or use several specs"};
  }
  if (combinations * spec.excludes.size() <= most_comparisons) return std::nullopt;
  return Diagnostic{
      spec.excludes.front().where,
      fmt::format("exclude has {} rows for {} combinations", spec.excludes.size(), combinations),
      fmt::format("at most {} for so many; lists of values make one row of several", most_comparisons / combinations)};
}

/// Combination number `index`, with the values of `base` beside the axes; the last axis varies fastest.
Variant combination(Variant variant, const std::vector<Axis>& axes, std::size_t index) {
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const std::vector<int>& values = axis->choice->values;
    variant.*axis->field->member = values[index % values.size()];
    index /= values.size();
  }
  return variant;
}

/// A row of `exclude`, made ready once: it is asked about every combination.
class Exclusion {
 public:
  explicit Exclusion(const Settings& row) {
    for (const auto& [key, choice] : row.keys) {
      tests_.push_back({find_field(key)->member, choice.values});
      std::ranges::sort(tests_.back().values);
    }
  }

  [[nodiscard]] bool matches(const Variant& variant) const {
    return std::ranges::all_of(
        tests_, [&](const Test& test) { return std::ranges::binary_search(test.values, variant.*test.member); });
  }

 private:
  struct Test {
    int Variant::*member;
    std::vector<int> values;  ///< ascending
  };
  std::vector<Test> tests_;
};

/// With what its expressions say of limits and caps in the fields for them, as problems have it
/// (runtime/call/limits.hpp).
Variant with_limits(Variant variant) {
  const Family& family = family_of(variant);
  if (variant.mask != 0 && family.operation == Operation::mask_blocks) {
    const int rest = expression::limits_of_number(variant.mask).rest;
    if (rest != 0) variant.mask = rest;
  } else if (variant.mask != 0 && family.takes_limits()) {
    const auto [left, right, rest] = expression::limits_of_number(variant.mask);
    variant.mask = rest;
    if (right == 0 && variant.window == 0) variant.causal = 1;
    if (variant.window == 0 && (left >= 0 || (right > 0 && variant.causal == 0))) {
      variant.window = 1;
      variant.causal = 0;  // which is among a window's bounds
    }
  }
  if (variant.score != 0 && variant.softcap == 0 && family.takes_limits() &&
      expression::softcap_of_number(variant.score) > 0) {
    variant.softcap = 1;
    variant.score = 0;
  }
  return variant;
}

std::vector<Exclusion> exclusions_of(const Spec& spec) { return {spec.excludes.begin(), spec.excludes.end()}; }

class Expander {
 public:
  explicit Expander(const Spec& spec)
      : spec_(spec), exclusions_(exclusions_of(spec)), exclude_hits_(spec.excludes.size(), 0) {}

  Result<Expansion> run() && {
    if (!within_limit()) return std::move(result_);
    if (spec_.rows.empty()) expand_row(nullptr);
    for (const Settings& row : spec_.rows) expand_row(&row);
    for (std::size_t i = 0; i < exclude_hits_.size(); ++i) {
      if (exclude_hits_[i] == 0) {
        problem(
            {spec_.excludes[i].where, "this row of exclude matches no combination", "remove it, or correct a value"});
      }
    }
    if (result_.value.variants.empty() && result_.ok()) {
      problem({spec_.common.where, "exclude leaves no combination", "exclude fewer"});
    }
    return std::move(result_);
  }

 private:
  /// The spec may name the same rule and place in hundreds of combinations; one report is enough.
  void problem(const Diagnostic& diagnostic) {
    if (is_full(result_.problems)) return;
    if (reported_.insert(diagnostic.text()).second) add_problem(result_.problems, diagnostic);
  }

  bool within_limit() {
    const std::optional<Diagnostic> limit = beyond_limits(spec_);
    if (limit) problem(*limit);
    return !limit;
  }

  void expand_row(const Settings* row) {
    const std::vector<Axis> axes = axes_of(spec_, row);
    const std::size_t combinations = count(axes);
    Variant base = families()[static_cast<std::size_t>(spec_.family)].defaults;
    base.arch = spec_.arch;
    std::vector<RefusedVariant> refused;
    bool passed = false;
    for (std::size_t index = 0; index < combinations; ++index) {
      const Variant named = combination(base, axes, index);
      if (is_excluded(named)) continue;
      const Variant variant = with_limits(named);
      const std::vector<Refusal> refusals = check(variant);
      if (!refusals.empty()) {
        refused.push_back({variant, diagnostics(refusals, axes, row)});
        continue;
      }
      passed = true;
      if (seen_.insert(variant).second) result_.value.variants.push_back(variant);
    }
    // What a row asks for alone it must get; of what lists multiply out to, some may be impossible.
    for (RefusedVariant& entry : refused) {
      if (passed) {
        result_.value.refused.push_back(std::move(entry));
      } else {
        for (const Diagnostic& reason : entry.reasons) problem(reason);
      }
    }
  }

  bool is_excluded(const Variant& variant) {
    bool excluded = false;
    for (std::size_t i = 0; i < exclusions_.size(); ++i) {
      if (!exclusions_[i].matches(variant)) continue;
      ++exclude_hits_[i];
      excluded = true;
    }
    return excluded;
  }

  [[nodiscard]] std::vector<Diagnostic> diagnostics(const std::vector<Refusal>& refusals, const std::vector<Axis>& axes,
                                                    const Settings* row) const {
    std::vector<Diagnostic> reasons;
    for (const Refusal& refusal : refusals) {
      const auto axis = std::ranges::find_if(axes, [&](const Axis& a) { return a.field->key == refusal.field; });
      const Location& elsewhere = row != nullptr ? row->where : spec_.common.where;
      reasons.push_back({axis != axes.end() ? axis->choice->where : elsewhere, refusal.message, ""});
    }
    return reasons;
  }

  const Spec& spec_;
  std::vector<Exclusion> exclusions_;
  Result<Expansion> result_;
  std::vector<std::size_t> exclude_hits_;
  std::set<Variant> seen_;
  std::set<std::string> reported_;
};

}  // namespace

Result<Expansion> expand(const Spec& spec) { return Expander(spec).run(); }

Result<std::vector<Variant>> combinations(const Spec& spec, const Variant& base) {
  Result<std::vector<Variant>> result;
  if (std::optional<Diagnostic> limit = beyond_limits(spec)) {
    result.problems.push_back(std::move(*limit));
    return result;
  }
  std::set<Variant> seen;
  const std::vector<Exclusion> exclusions = exclusions_of(spec);
  const auto add_row = [&](const Settings* row) {
    const std::vector<Axis> axes = axes_of(spec, row);
    const std::size_t combinations = count(axes);
    for (std::size_t index = 0; index < combinations; ++index) {
      const Variant variant = combination(base, axes, index);
      const bool excluded = std::ranges::any_of(exclusions, [&](const Exclusion& one) { return one.matches(variant); });
      if (!excluded && seen.insert(variant).second) result.value.push_back(variant);
    }
  };
  if (spec.rows.empty()) add_row(nullptr);
  for (const Settings& row : spec.rows) add_row(&row);
  return result;
}

}  // namespace attune
