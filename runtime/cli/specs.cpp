#include "runtime/cli/specs.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "generator/cost.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cli/failure.hpp"

namespace attune::cli {
namespace {

/// Past this many, reasons for refusals are no longer listed, and their combinations only counted.
constexpr std::size_t listed_refusals = 20;

/// Combinations that are refused for the same reasons.
struct RefusedAlike {
  std::string first;  ///< name of a variant
  std::size_t variants = 0;
  std::string reasons;  ///< a line each
};

/// In the order of their first ones.
std::vector<RefusedAlike> grouped(const std::vector<RefusedVariant>& refused) {
  std::vector<RefusedAlike> groups;
  std::map<std::string, std::size_t> index;
  for (const RefusedVariant& one : refused) {
    std::string reasons;
    for (const Diagnostic& reason : one.reasons) reasons += fmt::format("    {}\n", reason.text());
    const auto [at, is_new] = index.try_emplace(reasons, groups.size());
    if (is_new) groups.push_back({.first = one.variant.name(), .reasons = std::move(reasons)});
    ++groups[at->second].variants;
  }
  return groups;
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

Collection load_specs(const std::vector<std::string>& files, const std::vector<std::string>& tuned) {
  using Paths = std::vector<std::filesystem::path>;
  Result<Collection> collected = collect(Paths(files.begin(), files.end()), Paths(tuned.begin(), tuned.end()));
  throw_any(std::move(collected.problems));
  return std::move(collected.value);
}

Collection load_specs_of(const std::vector<Operation>& operations, const std::vector<std::string>& files) {
  Collection collection = load_specs(files);
  const auto is_other = [&](const Wanted& one) {
    return std::ranges::find(operations, family_of(one.variant).operation) == operations.end();
  };
  const auto other = std::ranges::find_if(collection.wanted, is_other);
  if (other == collection.wanted.end()) return collection;
  const char* const taken = operations.size() > 2   ? "prefill, decode and the backward pass"
                            : operations.size() > 1 ? "prefill and decode"
                                                    : "prefill";
  throw Failure(Exit::bad_usage, {{.where = {.file = other->spec},
                                   .what = fmt::format("template {} is none of {}, and this command launches no others",
                                                       family_of(other->variant).name, taken),
                                   .fix = "`attune compile` takes it"}});
}

std::vector<Source> emit_sources(const Collection& collection) {
  Result<std::vector<Source>> sources = emit_all(collection.wanted, embedded_templates());
  throw_any(std::move(sources.problems));
  return std::move(sources.value);
}

std::string cost_report(const Collection& collection) {
  const Cost cost = estimate(variants_of(collection));
  std::string text = fmt::format(
      "{}, {} refused; about {} to compile on one core and {} of machine code for each "
      "architecture\n",
      counted(static_cast<long long>(collection.wanted.size()), "variant"), collection.refused.size(),
      seconds_text(cost.seconds), bytes_text(static_cast<double>(cost.bytes)));
  const std::vector<RefusedAlike> groups = grouped(collection.refused);
  for (const RefusedAlike& group : std::span(groups).first(std::min(groups.size(), listed_refusals))) {
    const std::string others = counted(static_cast<long long>(group.variants) - 1, "other");
    text += fmt::format("  refused {}{}:\n{}", group.first, group.variants > 1 ? " and " + others : "", group.reasons);
  }
  if (groups.size() > listed_refusals) {
    std::size_t more = 0;
    for (const RefusedAlike& group : std::span(groups).subspan(listed_refusals)) more += group.variants;
    text += fmt::format("  ... and {} more\n", more);
  }
  return text;
}

}  // namespace attune::cli
