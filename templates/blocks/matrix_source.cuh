// Where blocks of K and V come from: the rows of two matrices.
#pragma once

#include "blocks/copy.cuh"
#include "params.h"
#include "types.h"

template <class KVTile, int threads, bool async, bool cut>
struct MatrixSource {
  using TileType = KVTile;
  using Copy = TileCopy<KVTile, threads, async, cut>;

  Copy K;  // at the next block to request
  Copy V;

  // Beginning with the block at `first_key`.
  __device__ __forceinline__ MatrixSource(const Matrix& K_rows, const Matrix& V_rows, int first_key)
      : K(K_rows, first_key), V(V_rows, first_key) {}

  // The same of a sequence's head.
  template <class Sequence>
  __device__ __forceinline__ MatrixSource(const AttunePrefillParams& params, const Sequence& sequence, int head,
                                          int /*keys*/, int first_key)
      : MatrixSource(sequence.key_rows(params, params.k, head), sequence.key_rows(params, params.v, head), first_key) {}

  // Copies the operand's next block, and goes on to the one above it; `whole` promises that all its rows exist.
  template <Operand operand, bool whole>
  __device__ __forceinline__ void copy(const KVTile& tile) {
    Copy& matrix = operand == Operand::K ? K : V;
    matrix.template copy<whole>(tile);
    matrix.move(-1);
  }
};
