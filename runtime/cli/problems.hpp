// The problems a person can name on the command line, and the random inputs that stand in for theirs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/lab/reference.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune::cli {

/// Options for the sizes of a problem of prefill and, where asked for, for what a variant otherwise chooses.
struct ProblemOptions {
  Problem named = Problem::usual();  ///< as given, nothing completed

  /// The sizes that do not depend on a variant.
  void add_sizes(CLI::App& app);

  /// The choices that a variant otherwise makes.
  void add_choices(CLI::App& app);

  /// Whether any of the sizes, or any of the choices, was given on the command line.
  [[nodiscard]] static bool given(const CLI::App& app);
  [[nodiscard]] static bool choices_given(const CLI::App& app);

  [[nodiscard]] Problem problem() const;

  /// The same sizes for a variant's own dtype, head dimensions and mask.
  [[nodiscard]] Problem problem_for(const Variant& variant) const;
};

/// Throws Failure with all that no kernel could serve about this problem.
void require_sound(const Problem& problem);
void require_sound(const DecodeProblem& problem);

/// Elements of Q, K, V and O.
std::size_t query_elements(const Problem& problem);
std::size_t key_elements(const Problem& problem);
std::size_t value_elements(const Problem& problem);
std::size_t output_elements(const Problem& problem);

/// Where the sequences of a ragged batch begin and end: the longest has `most` rows or all, together they have at most
/// `total`, and they fall off as 1 / i as steeply as that takes.
std::vector<std::int32_t> cumulative_lengths(int batch, int most, int total);

/// Rows of the usual ragged batch: its lengths fall off as steeply as 1 / i.
int usual_total(int batch, int longest);

/// Makes a ragged batch of a problem: of its sequences the first keeps its lengths, the others are shorter.
void make_ragged(Problem& problem);

/// Puts the keys and values of a problem in pages of 16: of its sequences the first has as many keys as before, the
/// others have fewer.
void make_paged(Problem& problem);

/// Rows of Q, which are the elements of LSE.
std::size_t query_rows(const Problem& problem);

/// Normally distributed storage values, the same for the same seed on every machine.
std::vector<std::uint16_t> random_values(Dtype dtype, std::size_t count, std::uint64_t seed);

/// Cosines and sines of random angles.
struct Angles {
  std::vector<std::uint16_t> cos;
  std::vector<std::uint16_t> sin;
};
Angles random_angles(Dtype dtype, std::size_t count, std::uint64_t seed);

/// Q, K and V of a problem in host memory, batch x seqlen x heads x head_dim; of a ragged one total x heads x head_dim,
/// in pages pages x page_size x heads x head_dim; and where its sequences are: their lengths fall off, the longest
/// has seqlen_q queries and seqlen_k keys, and together a ragged batch has as many as it says, or hardly fewer.
struct HostInputs {
  std::vector<std::uint16_t> q;
  std::vector<std::uint16_t> k;
  std::vector<std::uint16_t> v;
  Sequences sequences;

  HostInputs(const Problem& problem, std::uint64_t seed);
};

/// A contiguous batch x seqlen x heads x head_dim tensor over these values.
HostTensor contiguous(const std::vector<std::uint16_t>& values, int seqlen, int heads, int head_dim);

/// 1 / sqrt(head_dim)
double usual_scale(const Problem& problem);

/// The reference and the naive result for these inputs.
struct Expected {
  ReferenceOutput reference;
  ReferenceOutput naive;
};
Expected expected_output(const Problem& problem, const HostInputs& inputs);

/// A few small problems that visit a variant's corners: exact and smaller head_dim, one row, odd and prime lengths,
/// longer K than Q and the reverse, no keys where the family takes that, and groups of query heads as the variant
/// allows.
std::vector<Problem> small_problems(const Variant& variant);

}  // namespace attune::cli
