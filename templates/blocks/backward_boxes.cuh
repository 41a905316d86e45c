// Where the rows of one sequence lie in the tensors that maps describe, for the backward pass.
#pragma once

#include "blocks/backward_rows.cuh"
#include "blocks/box.cuh"
#include "sequence_end.h"
#include "types.h"

// Of a ragged batch's map every sequence ends at ATTUNE_SEQUENCE_END (blocks/ragged_rows.cuh).
template <bool ragged>
__device__ __forceinline__ auto box_of(const BackwardSequence<ragged>& sequence, const SequenceRows& rows, int head,
                                       int row) {
  if constexpr (ragged) {
    return SequenceBox{ATTUNE_SEQUENCE_END - rows.count + row, head, rows.first + rows.count};
  } else {
    return Box{row, head, sequence.batch};
  }
}

// From a row of a head of Q, dO or dQ on, ...
template <class Sequence>
__device__ __forceinline__ auto query_box(const Sequence& sequence, int head, int row) {
  return box_of(sequence, sequence.queries, head, row);
}

// ... or of K, V, dK or dV.
template <class Sequence>
__device__ __forceinline__ auto key_box(const Sequence& sequence, int head, int row) {
  return box_of(sequence, sequence.keys, head, row);
}
