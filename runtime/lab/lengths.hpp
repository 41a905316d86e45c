// How long the sequences of a batch are that somebody makes up.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/lab/reference.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

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

/// What the kernels of a ragged or paged problem are told of its sequences; empty where all have one length.
Sequences sequences_of(const Problem& problem);

}  // namespace attune
