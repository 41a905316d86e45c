#include "generator/collect.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "generator/expand.hpp"

namespace attune {
namespace {

template <class T>
void take_problems(std::vector<Diagnostic>& problems, Result<T>& from) {
  std::ranges::move(from.problems, std::back_inserter(problems));
}

/// Adds variants to a list in which each occurs once.
class Collection {
 public:
  void add(const Variant& variant, const std::string& spec) {
    Variant identity = variant;
    identity.arch = 0;
    const auto [known, is_new] = index_.emplace(identity, wanted_.size());
    if (is_new) {
      wanted_.push_back({variant, spec});
      return;
    }
    // An empty set stands for every GPU, so it stays empty.
    ArchSet& arch = wanted_[known->second].variant.arch;
    arch = arch == 0 || variant.arch == 0 ? 0 : arch | variant.arch;
  }

  [[nodiscard]] std::vector<Wanted> take() && { return std::move(wanted_); }

 private:
  std::vector<Wanted> wanted_;
  std::map<Variant, std::size_t> index_;
};

void collect_spec(const std::filesystem::path& path, Collection& collection, std::vector<Diagnostic>& problems) {
  Result<Spec> spec = read_spec(path);
  take_problems(problems, spec);
  if (!spec.ok()) return;
  Result<Expansion> expansion = expand(spec.value);
  take_problems(problems, expansion);
  for (const Variant& variant : expansion.value.variants) collection.add(variant, spec.value.name);
}

}  // namespace

Result<std::vector<Wanted>> collect(std::span<const std::filesystem::path> specs) {
  Result<std::vector<Wanted>> result;
  Collection collection;
  for (const std::filesystem::path& path : specs) collect_spec(path, collection, result.problems);
  result.value = std::move(collection).take();
  return result;
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

Result<std::vector<Wanted>> golden_variants(const std::filesystem::path& spec) {
  Result<std::vector<Wanted>> result;
  Collection collection;
  for (std::size_t family = 0; family < families().size(); ++family) {
    Variant variant;
    variant.family = static_cast<int>(family);
    collection.add(variant, std::string{families()[family].name});
  }
  collect_spec(spec, collection, result.problems);
  result.value = std::move(collection).take();
  return result;
}

}  // namespace attune
