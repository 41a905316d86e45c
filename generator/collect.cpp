#include "generator/collect.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "generator/check.hpp"
#include "generator/tuned_file.hpp"

namespace attune {
namespace {

template <class T>
void take_problems(std::vector<Diagnostic>& problems, Result<T>& from) {
  std::ranges::move(from.problems, std::back_inserter(problems));
}

/// Adds variants to a list in which each occurs once.
class Merge {
 public:
  explicit Merge(std::vector<Wanted>& wanted) : wanted_(&wanted) {}

  void add(const Variant& variant, const std::string& spec, bool tables_only = false) {
    Variant identity = variant;
    identity.arch = 0;
    const auto [known, is_new] = index_.emplace(identity, wanted_->size());
    if (is_new) {
      wanted_->push_back({variant, spec, tables_only});
      return;
    }
    Wanted& same = (*wanted_)[known->second];
    same.tables_only = same.tables_only && tables_only;
    // An empty set stands for every GPU, so it stays empty.
    ArchSet& arch = same.variant.arch;
    arch = arch == 0 || variant.arch == 0 ? 0 : arch | variant.arch;
  }

 private:
  std::vector<Wanted>* wanted_;
  std::map<Variant, std::size_t> index_;
};

/// What a reader is to see of a family: its default type and head_dim, with the causal mask or a rotation where it
/// has one.
Variant shown_variant(const Family& family) {
  Variant variant = family.defaults;
  if (family.has_key("causal")) variant.causal = 1;
  if (family.operation == Operation::store) variant.rotary = static_cast<int>(Rotary::halves);
  return variant;
}

/// Whether two variants of a family are for the same problems, whatever their tiles.
bool same_contract(const Variant& one, const Variant& other) {
  return std::ranges::all_of(fields(), [&](const Field& field) {
    return field.relation == Relation::free || one.*field.member == other.*field.member;
  });
}

}  // namespace

Result<Collection> collect(std::span<const std::filesystem::path> specs, std::span<const std::filesystem::path> tuned) {
  Result<Collection> result;
  Merge merge(result.value.wanted);
  for (const std::filesystem::path& path : specs) {
    Result<Spec> spec = read_spec(path);
    take_problems(result.problems, spec);
    if (!spec.ok()) continue;
    Result<Expansion> expansion = expand(spec.value);
    take_problems(result.problems, expansion);
    for (const Variant& variant : expansion.value.variants) merge.add(variant, spec.value.name);
    std::ranges::move(expansion.value.refused, std::back_inserter(result.value.refused));
  }
  for (const std::filesystem::path& path : tuned) {
    Result<std::string> text = read_tuned_text(path);
    take_problems(result.problems, text);
    if (!text.ok()) continue;
    Result<TunedFile> table = parse_tuned_file(text.value, path.string());
    take_problems(result.problems, table);
    if (!table.ok()) continue;
    result.value.tables.push_back({path.filename().string(), std::move(text.value)});
    for (const Variant& variant : tuned_variants(table.value)) {
      merge.add(variant, "tuned/" + path.stem().string(), true);
    }
  }
  return result;
}

std::vector<std::string> narrow(std::vector<Wanted>& wanted, ArchSet archs) {
  std::vector<std::string> dropped;
  if (archs == 0) return dropped;
  std::erase_if(wanted, [&](Wanted& one) {
    ArchSet meant = 0;
    for (const Arch& arch : target_archs(one.variant)) meant |= set_of(arch);
    one.variant.arch = meant & archs;
    if (one.variant.arch == 0) dropped.push_back(one.variant.name());
    return one.variant.arch == 0;
  });
  return dropped;
}

Result<std::vector<Source>> emit_all(std::span<const Wanted> wanted, const TemplateFiles& templates) {
  Result<std::vector<Source>> result;
  for (const Wanted& entry : wanted) {
    Result<Source> source = emit(entry.variant, templates, entry.spec);
    take_problems(result.problems, source);
    // A template's problems are the same for every variant of it.
    if (!source.ok()) break;
    result.value.push_back(std::move(source.value));
  }
  return result;
}

Result<std::vector<Wanted>> golden_variants(std::span<const std::filesystem::path> specs) {
  Result<Collection> read_whole = collect(specs.first(1));
  Result<Collection> shipped = collect(specs.subspan(1));
  Result<std::vector<Wanted>> result;
  take_problems(result.problems, read_whole);
  take_problems(result.problems, shipped);
  result.value = std::move(read_whole.value.wanted);
  for (std::size_t i = 0; i < families().size(); ++i) {
    const auto is_own = [&](const Wanted& one) { return one.variant.family == static_cast<int>(i); };
    if (std::ranges::any_of(result.value, is_own)) continue;
    const Variant plain = shown_variant(families()[i]);
    const auto is_shown = [&](const Wanted& one) { return is_own(one) && same_contract(one.variant, plain); };
    const auto found = std::ranges::find_if(shipped.value.wanted, is_shown);
    result.value.push_back(found != shipped.value.wanted.end()
                               ? *found
                               : Wanted{.variant = plain, .spec = std::string{families()[i].name}});
  }
  return result;
}

}  // namespace attune
