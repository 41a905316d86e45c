// Small problems of decoding whose answers the reference knows: the cache in host memory, and what a kernel leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "attune/attune.h"
#include "runtime/cli/problems.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune::cli {

/// A problem and the keys of each of its sequences, new ones among them.
struct DecodeTrial {
  DecodeProblem problem;
  std::vector<std::int32_t> lengths;
};

/// A few that visit a variant's corners: no keys, one, odd lengths and full ones; few and many rows, exact and smaller
/// head_dim, windows, and keys in one part, in several, and left to the library. Where the variant rotates queries the
/// last key of each sequence is new; where it is for ragged batches, sequences have fewer queries one after the other,
/// and, where it reads no pages, keys in a cache as well as packed ones.
std::vector<DecodeTrial> small_trials(const Variant& variant);

/// Each sequence with as many keys as it may have; packed ones as many as there are, their lengths falling off.
DecodeTrial full_trial(const DecodeProblem& problem);

/// Tokens that K has room for.
std::size_t tokens_of(const DecodeProblem& problem);

/// Gives a problem the rotation that a variant is made for, and a new key in each sequence with it.
void set_rotation(DecodeProblem& problem, const Variant& variant);

/// Q and a cache whose pages no two sequences share, or packed keys, NaN where no key is; new keys are there already.
struct CacheInputs {
  std::vector<std::uint16_t>
      q;  ///< batch x seqlen_q x heads_q x head_dim; of a ragged one total_q x heads_q x head_dim
  std::vector<std::uint16_t> k;  ///< pages x page_size x heads_kv x head_dim, or total_k x heads_kv x head_dim
  std::vector<std::uint16_t> v;
  std::vector<std::int32_t> lengths;       ///< without new keys
  std::vector<std::int32_t> table;         ///< batch x table_width; entries behind a sequence's keys name no page
  Angles angles;                           ///< of the rotation
  std::vector<std::int32_t> cu_seqlens_q;  ///< of a ragged problem: lengths fall off, the longest is seqlen_q

  std::vector<std::int32_t> cu_seqlens_k;  ///< of packed keys; the last sequence has the rows that are left, unused

  CacheInputs(const DecodeTrial& trial, std::uint64_t seed);

 private:
  void place_pages(const DecodeTrial& trial, std::uint64_t seed);
};

/// The same as a problem of prefill, which has as many outputs.
Problem outputs_of(const DecodeProblem& problem);

/// Where the memory of a trial is.
struct CacheOperands {
  void* q;
  void* k;
  void* v;
  const void* lengths;
  const void* table;
  const void* cu_seqlens_q;
  const void* cu_seqlens_k;
  const void* cos;
  const void* sin;
  void* o;
  void* lse;
  void* workspace;
  std::size_t workspace_bytes;
};

attune_decode_args decode_args(const DecodeProblem& problem, const CacheOperands& operands);

/// The reference and the naive result of a trial.
Expected expected_output(const DecodeTrial& trial, const CacheInputs& inputs);

}  // namespace attune::cli
