#include "runtime/cli/specs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/cost.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/text.hpp"

namespace attune::cli {
namespace {

/// Past this many, refused combinations are counted and no longer listed one by one.
constexpr std::size_t listed_refusals = 20;

void print_problems(const std::vector<Diagnostic>& problems) {
  for (const Diagnostic& problem : problems) fmt::print(stderr, "{}\n", problem.text());
}

}  // namespace

std::vector<Variant> variants_of(const Collection& collection) {
  std::vector<Variant> result;
  for (const Wanted& one : collection.wanted) result.push_back(one.variant);
  return result;
}

void add_spec_argument(CLI::App& app, std::vector<std::string>& specs, bool required) {
  app.add_option("SPEC", specs, "Spec files (YAML)")->required(required)->option_text(required ? "REQUIRED" : " ");
}

std::optional<Collection> load_specs(const std::vector<std::string>& files, const std::vector<std::string>& tuned) {
  using Paths = std::vector<std::filesystem::path>;
  Result<Collection> collected = collect(Paths(files.begin(), files.end()), Paths(tuned.begin(), tuned.end()));
  print_problems(collected.problems);
  if (!collected.ok()) return std::nullopt;
  return std::move(collected.value);
}

std::optional<Collection> load_specs_of(const std::vector<Operation>& operations,
                                        const std::vector<std::string>& files) {
  std::optional<Collection> collection = load_specs(files);
  if (!collection) return std::nullopt;
  const auto is_other = [&](const Wanted& one) {
    return std::ranges::find(operations, family_of(one.variant).operation) == operations.end();
  };
  const auto other = std::ranges::find_if(collection->wanted, is_other);
  if (other == collection->wanted.end()) return collection;
  fmt::print(stderr, "{}: template {} is none of {}, and this command launches no others; `attune compile` takes it\n",
             other->spec, family_of(other->variant).name, operations.size() > 1 ? "prefill and decode" : "prefill");
  return std::nullopt;
}

std::optional<std::vector<Source>> emit_sources(const Collection& collection) {
  Result<std::vector<Source>> sources = emit_all(collection.wanted, embedded_templates());
  print_problems(sources.problems);
  if (!sources.ok()) return std::nullopt;
  return std::move(sources.value);
}

std::string cost_report(const Collection& collection) {
  const Cost cost = estimate(variants_of(collection));
  std::string text = fmt::format(
      "{}, {} refused; about {} to compile on one core and {} of machine code for each "
      "architecture\n",
      counted(static_cast<long long>(collection.wanted.size()), "variant"), collection.refused.size(),
      seconds_text(cost.seconds), bytes_text(static_cast<double>(cost.bytes)));
  for (std::size_t i = 0; i < std::min(collection.refused.size(), listed_refusals); ++i) {
    const RefusedVariant& refused = collection.refused[i];
    text += fmt::format("  refused {}:\n", refused.variant.name());
    for (const Diagnostic& reason : refused.reasons) text += fmt::format("    {}\n", reason.text());
  }
  if (collection.refused.size() > listed_refusals) {
    text += fmt::format("  ... and {} more\n", collection.refused.size() - listed_refusals);
  }
  return text;
}

}  // namespace attune::cli
