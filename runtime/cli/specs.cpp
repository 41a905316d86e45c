#include "runtime/cli/specs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "generator/cost.hpp"
#include "generator/spec.hpp"
#include "runtime/cli/text.hpp"
#include "runtime/registry.hpp"

namespace attune::cli {
namespace {

/// Past this many, refused combinations are counted and no longer listed one by one.
constexpr std::size_t listed_refusals = 20;

void print_problems(const std::vector<Diagnostic>& problems) {
  for (const Diagnostic& problem : problems) fmt::print(stderr, "{}\n", problem.text());
}

}  // namespace

std::vector<Variant> Request::variants() const {
  std::vector<Variant> result;
  for (const Wanted& one : wanted) result.push_back(one.variant);
  return result;
}

void add_spec_argument(CLI::App& app, std::vector<std::string>& specs, bool required) {
  app.add_option("SPEC", specs, "Spec files (YAML)")->required(required)->option_text(required ? "REQUIRED" : " ");
}

std::optional<Request> load_specs(const std::vector<std::string>& files) {
  const std::vector<std::filesystem::path> paths(files.begin(), files.end());
  Result<std::vector<Wanted>> wanted = collect(paths);
  print_problems(wanted.problems);
  if (!wanted.ok()) return std::nullopt;
  Request request{.wanted = std::move(wanted.value), .refused = {}};
  for (const std::filesystem::path& path : paths) {
    std::ranges::move(expand(read_spec(path).value).value.refused, std::back_inserter(request.refused));
  }
  return request;
}

std::optional<std::vector<Source>> emit_sources(const Request& request) {
  Result<std::vector<Source>> sources = emit_all(request.wanted, embedded_templates());
  print_problems(sources.problems);
  if (!sources.ok()) return std::nullopt;
  return std::move(sources.value);
}

std::string cost_report(const Request& request) {
  const Cost cost = estimate(request.variants());
  std::string text = fmt::format(
      "{}, {} refused; about {} to compile on one core and {} of machine code for each "
      "architecture\n",
      counted(static_cast<long long>(request.wanted.size()), "variant"), request.refused.size(),
      seconds_text(cost.seconds), bytes_text(static_cast<double>(cost.bytes)));
  for (std::size_t i = 0; i < std::min(request.refused.size(), listed_refusals); ++i) {
    const RefusedVariant& refused = request.refused[i];
    text += fmt::format("  refused {}:\n", refused.variant.name());
    for (const Diagnostic& reason : refused.reasons) text += fmt::format("    {}\n", reason.text());
  }
  if (request.refused.size() > listed_refusals) {
    text += fmt::format("  ... and {} more\n", request.refused.size() - listed_refusals);
  }
  return text;
}

}  // namespace attune::cli
