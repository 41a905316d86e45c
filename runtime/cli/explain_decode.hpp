// attune explain --decode: which kernels attend to a cache, and into how many parts its keys fall.
#pragma once

#include <CLI/CLI.hpp>

#include "runtime/call/device.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune::cli {

/// --decode, and what only a problem of decoding has.
struct DecodeOptions {
  bool decode = false;
  bool lengths_on_device = false;
  DecodeProblem named;  ///< as given, nothing completed

  DecodeOptions();

  void add(CLI::App& app);

  /// With the sizes of the other options, of which --seqlen-q has another default here.
  [[nodiscard]] DecodeProblem problem(const ProblemOptions& sizes, const CLI::App& app) const;
};

/// Prints what serves the problem and why so; bad usage where it is unsound.
Exit explain_decode(const DecodeProblem& problem, const Device& device, bool json);

}  // namespace attune::cli
