#include "generator/expand.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "generator/check.hpp"

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

Diagnostic too_many(const Spec& spec) {
  return {spec.common.where, fmt::format("the lists multiply out to more than {} combinations", max_variants),
          "shorten a list, or use several specs"};
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

bool matches(const Settings& exclude, const Variant& variant) {
  return std::ranges::all_of(exclude.keys, [&](const auto& entry) {
    const int value = variant.*find_field(entry.first)->member;
    return std::ranges::find(entry.second.values, value) != entry.second.values.end();
  });
}

class Expander {
 public:
  explicit Expander(const Spec& spec) : spec_(spec), exclude_hits_(spec.excludes.size(), 0) {}

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
    if (reported_.insert(diagnostic.text()).second) result_.problems.push_back(diagnostic);
  }

  bool within_limit() {
    if (count(spec_) <= max_variants) return true;
    problem(too_many(spec_));
    return false;
  }

  void expand_row(const Settings* row) {
    const std::vector<Axis> axes = axes_of(spec_, row);
    const std::size_t combinations = count(axes);
    Variant base = families()[static_cast<std::size_t>(spec_.family)].defaults;
    base.arch = spec_.arch;
    std::vector<RefusedVariant> refused;
    bool passed = false;
    for (std::size_t index = 0; index < combinations; ++index) {
      const Variant variant = combination(base, axes, index);
      if (is_excluded(variant)) continue;
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
    for (std::size_t i = 0; i < spec_.excludes.size(); ++i) {
      if (!matches(spec_.excludes[i], variant)) continue;
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
  Result<Expansion> result_;
  std::vector<std::size_t> exclude_hits_;
  std::set<Variant> seen_;
  std::set<std::string> reported_;
};

}  // namespace

Result<Expansion> expand(const Spec& spec) { return Expander(spec).run(); }

Result<std::vector<Variant>> combinations(const Spec& spec, const Variant& base) {
  Result<std::vector<Variant>> result;
  if (count(spec) > max_variants) {
    result.problems.push_back(too_many(spec));
    return result;
  }
  std::set<Variant> seen;
  const auto add_row = [&](const Settings* row) {
    const std::vector<Axis> axes = axes_of(spec, row);
    for (std::size_t index = 0; index < count(axes); ++index) {
      const Variant variant = combination(base, axes, index);
      const bool excluded =
          std::ranges::any_of(spec.excludes, [&](const Settings& exclude) { return matches(exclude, variant); });
      if (!excluded && seen.insert(variant).second) result.value.push_back(variant);
    }
  };
  if (spec.rows.empty()) add_row(nullptr);
  for (const Settings& row : spec.rows) add_row(&row);
  return result;
}

}  // namespace attune
