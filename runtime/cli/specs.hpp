// From spec files on the command line to variants and sources, with every problem printed.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/collect.hpp"
#include "generator/expand.hpp"

namespace attune::cli {

/// What the spec files on the command line ask for.
struct Request {
  std::vector<Wanted> wanted;  ///< each variant once, in the order of the files
  std::vector<RefusedVariant> refused;

  [[nodiscard]] std::vector<Variant> variants() const;
};

/// Adds the positional SPEC... argument.
void add_spec_argument(CLI::App& app, std::vector<std::string>& specs, bool required = true);

/// Reads and expands every file. Prints all problems of all files to stderr as file:line:column and returns
/// nothing if there are any.
std::optional<Request> load_specs(const std::vector<std::string>& files);

/// Emits the sources from the templates in the library. Prints problems like load_specs().
std::optional<std::vector<Source>> emit_sources(const Request& request);

/// What the spec will cost, said before anything is written or compiled: the number of variants, the refused ones
/// with their reasons, and the estimate of time and code size.
std::string cost_report(const Request& request);

}  // namespace attune::cli
