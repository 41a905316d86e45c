// Where blocks of K and V come from: the rows of two matrices.
#pragma once

#include "blocks/copy.cuh"
#include "types.h"

template <class KVTile, int threads, bool async, bool cut>
struct MatrixSource {
  using TileType = KVTile;
  using Copy = TileCopy<KVTile, threads, async, cut>;

  Copy K;  // at the next block to request
  Copy V;

  __device__ __forceinline__ MatrixSource(const Matrix& K_rows, const Matrix& V_rows, int first_row)
      : K(K_rows, first_row), V(V_rows, first_row) {}

  // Copies the operand's next block, and goes on to the one above it; `whole` promises that all its rows exist.
  template <Operand operand, bool whole>
  __device__ __forceinline__ void copy(const KVTile& tile) {
    Copy& matrix = operand == Operand::K ? K : V;
    matrix.template copy<whole>(tile);
    matrix.move(-1);
  }
};
