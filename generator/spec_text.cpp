#include "generator/spec_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace attune {
namespace {

/// The values of one key, ascending.
using Values = std::set<int>;

/// Values for every key of the family, which multiply out.
using Row = std::map<std::string_view, Values>;

std::vector<const Field*> keys_of(const Family& family) {
  std::vector<const Field*> result;
  for (const Field& field : fields()) {
    if (family.has_key(field.key)) result.push_back(&field);
  }
  return result;
}

/// Makes one row of rows that differ in nothing but this key. They have no variant in common, so the values are
/// disjoint, or rows would be equal.
std::vector<Row> joined(const std::vector<Row>& rows, std::string_view key) {
  std::map<Row, Values> by_rest;
  std::vector<Row> order;
  for (const Row& row : rows) {
    Row rest = row;
    rest.erase(key);
    const auto [at, is_new] = by_rest.try_emplace(rest);
    at->second.insert(row.at(key).begin(), row.at(key).end());
    if (is_new) order.push_back(std::move(rest));
  }
  for (Row& row : order) row.emplace(key, by_rest.at(row));
  return order;
}

/// Few rows that multiply out to these variants. Words are joined before numbers: a tile is best read in one row.
std::vector<Row> rows_of(const std::vector<Variant>& variants, const std::vector<const Field*>& keys) {
  std::vector<Row> rows;
  for (const Variant& variant : variants) {
    Row& row = rows.emplace_back();
    for (const Field* field : keys) row[field->key] = {variant.*field->member};
  }
  for (const bool words : {true, false}) {
    for (const Field* field : keys) {
      if ((field->kind != FieldKind::integer) == words) rows = joined(rows, field->key);
    }
  }
  return rows;
}

std::string values_text(const Field& field, const Values& values) {
  std::vector<std::string> words;
  for (const int value : values) {
    const bool quoted = field.kind == FieldKind::expression && value != 0;
    words.push_back(quoted ? fmt::format("\"{}\"", value_text(field, value)) : value_text(field, value));
  }
  return words.size() == 1 ? words.front() : fmt::format("[{}]", fmt::join(words, ", "));
}

std::vector<std::string_view> names_of(ArchSet arch) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < all_archs().size(); ++i) {
    if ((arch >> i & 1U) != 0) names.push_back(all_archs()[i].name);
  }
  return names;
}

std::string arch_text(ArchSet arch) {
  const std::vector<std::string_view> names = names_of(arch);
  if (names.empty()) return "any";
  return names.size() == 1 ? std::string(names.front()) : fmt::format("[{}]", fmt::join(names, ", "));
}

/// Of variants of one family for one set of GPUs.
std::string text_of(const std::vector<Variant>& variants, std::span<const std::string> comment) {
  const Family& family = family_of(variants.front());
  const std::vector<const Field*> keys = keys_of(family);
  const std::vector<Row> rows = rows_of(variants, keys);
  std::string text;
  for (std::string line : comment) {
    std::ranges::replace_if(
        line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    text += line.empty() ? "#\n" : "# " + line + "\n";
  }
  if (!comment.empty()) text += '\n';
  text += fmt::format("template: {}\narch: {}\n", family.name, arch_text(variants.front().arch));
  std::vector<const Field*> differing;
  for (const Field* field : keys) {
    const Values& values = rows.front().at(field->key);
    const auto same = [&](const Row& row) { return row.at(field->key) == values; };
    if (!std::ranges::all_of(rows, same)) {
      differing.push_back(field);
    } else if (field->always_named || values != Values{family.defaults.*field->member}) {
      text += fmt::format("{}: {}\n", field->key, values_text(*field, values));
    }
  }
  if (differing.empty()) return text;
  text += "\nvariants:\n";
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Field* field : differing) {
      cells.push_back(fmt::format("{}: {}", field->key, values_text(*field, row.at(field->key))));
    }
    text += fmt::format("  - {{{}}}\n", fmt::join(cells, ", "));
  }
  return text;
}

}  // namespace

std::vector<SpecText> spec_texts(std::span<const Variant> variants, std::span<const std::string> comment) {
  std::map<std::pair<int, ArchSet>, std::set<Variant>> groups;
  for (const Variant& variant : variants) groups[{variant.family, variant.arch}].insert(variant);
  const auto groups_of = [&](int family) {
    return std::ranges::count_if(groups, [&](const auto& group) { return group.first.first == family; });
  };
  std::vector<SpecText> result;
  for (const auto& [group, members] : groups) {
    const auto [family, arch] = group;
    std::string name(families()[static_cast<std::size_t>(family)].name);
    if (groups_of(family) > 1) name += arch == 0 ? "_any" : fmt::format("_{}", fmt::join(names_of(arch), "_"));
    result.push_back({.name = std::move(name),
                      .family = family,
                      .arch = arch,
                      .text = text_of({members.begin(), members.end()}, comment),
                      .variants = members.size()});
  }
  return result;
}

}  // namespace attune
