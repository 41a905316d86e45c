// From spec files on the command line to variants and sources, with every problem told.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "generator/collect.hpp"
#include "runtime/cli/app.hpp"

namespace attune::cli {

/// The variants alone.
std::vector<Variant> variants_of(const Collection& collection);

/// Adds the positional SPEC... argument.
void add_spec_argument(CLI::App& app, std::vector<std::string>& specs, bool required = true);

/// Reads and expands every spec, and tables of tuned problems. Throws Failure with all problems of all files.
Collection load_specs(const std::vector<std::string>& files, const std::vector<std::string>& tuned = {});

/// The same for a command that launches kernels of these operations alone: a variant of another one is a problem too.
Collection load_specs_of(const std::vector<Operation>& operations, const std::vector<std::string>& files);

/// Emits the sources from the templates in the library. Throws Failure.
std::vector<Source> emit_sources(const Collection& collection);

/// What the spec will cost, said before anything is written or compiled: the number of variants, the refused ones
/// with their reasons, and the estimate of time and code size.
std::string cost_report(const Collection& collection);

}  // namespace attune::cli
