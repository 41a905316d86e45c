// A part of a matrix.
#pragma once

#include "blocks/copy.cuh"

// The rows of a matrix from `row` on.
__device__ __forceinline__ Matrix rows_from(const Matrix& matrix, int row) {
  return {matrix.at(row, 0), matrix.stride_bytes, matrix.rows - row, matrix.columns};
}
