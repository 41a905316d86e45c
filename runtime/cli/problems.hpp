// The problems a person can name on the command line.
#pragma once

#include <string>
#include <vector>

#include "runtime/cli/app.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune::cli {

/// Where a kernel with a soft cap is tried, if nobody says.
inline constexpr float usual_softcap = 30;

/// Options for the sizes of a problem of prefill and, where asked for, for what a variant otherwise chooses.
struct ProblemOptions {
  Problem named = Problem::usual();  ///< as given, nothing completed

  /// The sizes that do not depend on a variant.
  void add_sizes(CLI::App& app);

  /// How far windows reach and where scores are capped, which no variant says.
  void add_limits(CLI::App& app);

  /// The choices that a variant otherwise makes, limits among them.
  void add_choices(CLI::App& app);

  /// Whether any of the sizes, of the limits or of the choices was given on the command line.
  [[nodiscard]] static bool given(const CLI::App& app);
  [[nodiscard]] static bool limits_given(const CLI::App& app);
  [[nodiscard]] static bool choices_given(const CLI::App& app);

  [[nodiscard]] Problem problem() const;

  /// The same sizes and limits for a variant's own dtype, head dimensions and mask. A limit that the variant has and
  /// nobody named is a usual one.
  [[nodiscard]] Problem problem_for(const Variant& variant) const;
};

/// --decode, and what only a problem of decoding has.
struct DecodeOptions {
  bool decode = false;
  bool lengths_on_device = false;
  DecodeProblem named;  ///< as given, nothing completed

  DecodeOptions();

  void add(CLI::App& app);

  /// With the sizes of the other options, of which --seqlen-q has another default here.
  [[nodiscard]] DecodeProblem problem(const ProblemOptions& sizes, const CLI::App& app) const;

  /// Without --decode: prefill, whose keys are in pages where --page-size is given.
  [[nodiscard]] Problem prefill(const ProblemOptions& sizes) const;
};

/// Throws Failure with these, if there are any.
void throw_problems(const std::vector<std::string>& problems);

/// The same with all that no kernel could serve about a problem.
template <class P>
void require_sound(const P& problem) {
  throw_problems(problems_of(problem));
}

}  // namespace attune::cli
