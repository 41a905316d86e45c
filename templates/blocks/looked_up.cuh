// The smallest and the largest of what may be looked up, found by all lanes of a warp.
#pragma once

#include "blocks/ranges.cuh"
#include "blocks/score_place.cuh"
#include "expression_params.h"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Indices that are looked at; of more nothing is known.
constexpr i64 most_elements = 4096;
// Loads of a lane that are under way together: as many as a block of 128 keys has elements for.
constexpr int loads = 4;

// Ranges of a dimension's indices that exist, or of those nearest to them.
__device__ __forceinline__ Range nearest_indices(const AttuneArray& array, int dimension, const Range& index) {
  return {static_cast<int>(nearest_index(array, dimension, index.low)),
          static_cast<int>(nearest_index(array, dimension, index.high))};
}

// Of an integer array with so many dimensions.
template <int dimensions>
__device__ __forceinline__ Range looked_up(const AttuneArray& array, const Range (&index)[dimensions]) {
  Range at[dimensions];
  i64 rows = 1;  // of the last dimension
#pragma unroll
  for (int d = 0; d < dimensions; ++d) {
    at[d] = nearest_indices(array, d, index[d]);
    if (d + 1 < dimensions) rows *= at[d].high - at[d].low + 1;
  }
  const Range& last = at[dimensions - 1];
  if (rows * (last.high - last.low + 1) > most_elements) return {-2147483647 - 1, 2147483647};
  int least = 2147483647;
  int greatest = -2147483647 - 1;
  for (int row = 0; row < rows; ++row) {
    i64 place = 0;
    int left = row;  // of its number, as what dimensions have not been taken from
#pragma unroll
    for (int d = 0; d + 1 < dimensions; ++d) {
      int inner = 1;
#pragma unroll
      for (int e = d + 1; e + 1 < dimensions; ++e) inner *= at[e].high - at[e].low + 1;
      place = place * array.extents[d] + at[d].low + left / inner;
      left %= inner;
    }
    const int* const elements = static_cast<const int*>(array.data) + place * array.extents[dimensions - 1];
#pragma unroll 1
    for (int i = last.low; i <= last.high; i += loads * warp_size) {
      int value[loads];
#pragma unroll
      for (int load = 0; load < loads; ++load) {
        const int own = i + load * warp_size + static_cast<int>(lane_index());
        value[load] = load_global_int(elements + minimum_of(own, last.high));  // the last one again and again
      }
#pragma unroll
      for (int load = 0; load < loads; ++load) {
        least = minimum_of(least, value[load]);
        greatest = maximum_of(greatest, value[load]);
      }
    }
  }
  return {least_of_lanes(least), greatest_of_lanes(greatest)};
}
