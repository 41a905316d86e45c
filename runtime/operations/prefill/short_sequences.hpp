// The sequences of few queries of a ragged batch, whose longest have many: one query fills no tile of prefill's, and
// nothing divides its keys among thread blocks. Decode does both, for those sequences alone.
#pragma once

#include <algorithm>
#include <optional>

#include "attune/attune.h"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// What the host knows of a ragged batch's lengths.
struct RaggedSizes {
  int batch = 0;
  int longest = 0;         ///< queries that a sequence may have
  int total = 0;           ///< queries
  bool more_keys = false;  ///< than queries, as where they are in a cache
  int gqa_ratio = 1;
};

/// Up to how many queries make a sequence decode's, as many as its smallest tile has rows for; 0: none is, as far as
/// the host can know. It is worth a launch or two, some microseconds, where the totals leave some sequences no more
/// queries than that, or may, if all others are as long as the longest. Sequences without more keys than queries take
/// little time anywhere, so that there have to be many.
constexpr int short_queries(const RaggedSizes& of) {
  constexpr int rows = 16;              // of decode's smallest tile
  constexpr long long tile_rows = 64;   // of prefill, which a short sequence takes for a query
  constexpr long long many = 64;        // sequences
  constexpr long long least_gain = 20;  // a twentieth of prefill's rows
  if (of.batch < 2 || of.total < 1 || of.longest <= most_decode_queries || of.gqa_ratio > most_shared_heads) return 0;
  const int queries = std::max(1, rows / of.gqa_ratio);
  const long long total = of.total;
  const long long longest = std::min(of.longest, of.total);
  const long long others = of.batch - 1;
  const long long surely =
      of.longest > of.total ? of.batch - total / (queries + 1) : others - (total - longest) / (queries + 1);
  if (!of.more_keys) return surely >= many ? queries : 0;
  const long long long_ones = longest > 1 ? (total - of.batch + longest - 2) / (longest - 1) : of.batch;
  const long long maybe = std::clamp(of.batch - long_ones, 0LL, others);
  const bool is_uneven = of.batch * longest * 2 >= total * 5;  // half as long on average may be any lengths
  return surely > 0 || (is_uneven && maybe * tile_rows * least_gain >= total) ? queries : 0;
}

/// The same of a problem; 0 where decode has no kernels for what it asks.
int short_queries(const Problem& problem);

/// Their attention as a problem of decode, which leaves the others out; nothing where short_queries() says 0.
std::optional<DecodeProblem> short_sequences(const Problem& problem);

/// The arguments of that part of a checked call, with the call's workspace.
attune_decode_args short_args(const attune_prefill_args& args, const Problem& problem, const DecodeProblem& part);

}  // namespace attune
