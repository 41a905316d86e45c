// Dropout of weights: which are kept. A weight's byte of random bits follows from its batch, head, row and key alone,
// so that it is the same in the forward and the backward pass, whatever their tiles are.
//
// Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11) in 7 rounds makes 16 bytes of a
// counter. One counter serves the 4 x 4 weights of rows r, r + 8, r + 16, r + 24 and keys c, c + 8, c + 16, c + 24
// where r and c are below 8 in their 32: word 2 * (row / 16 % 2) + key / 16 % 2, byte 2 * (row / 8 % 2) + key / 8 % 2.
// As accumulators of mma and wgmma give a lane rows 8 apart and columns 8 apart, it has a word of each pair of 16 x 16
// tiles for itself, be the rows queries or keys: of what it computes a warp uses all bytes where its tile is 32 x 32 or
// more, and half where it has 16 rows.
#pragma once

#include "dropout.h"
#include "ptx/math.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Without dropout in its parameters a kernel has none.
template <class Params>
__device__ __forceinline__ AttuneDropout dropout_of(const Params& /*params*/) {
  return {nullptr, 0, 0, 256, 1.0f};
}
template <class Params>
__device__ __forceinline__ AttuneDropout dropout_of(const WithDropout<Params>& params) {
  return params.dropout;
}

// The bytes of one head of one sequence, the `head`-th of all.
struct Dropout {
  u32 key[2];      // the seed
  u32 counter[2];  // head and offset
  u32 high;        // the offset's upper half, which shares its word of the counter with rows: 12 bits are its own
  u32 surplus;     // added to each of four bytes it overflows those that drop their weights
  float scale;

  __device__ __forceinline__ Dropout(const AttuneDropout& params, int head)
      : counter{static_cast<u32>(head), 0}, surplus((256 - params.kept) * 0x01010101u), scale(params.scale) {
    const bool stored = params.state != nullptr;
    const i64 seed = stored ? load_global_long(params.state) : params.seed;
    const i64 offset = stored ? load_global_long(params.state + 1) : params.offset;
    key[0] = static_cast<u32>(seed);
    key[1] = static_cast<u32>(static_cast<u64>(seed) >> 32);
    counter[1] = static_cast<u32>(offset);
    high = static_cast<u32>(static_cast<u64>(offset) >> 32) << 20;
  }

  // Those of a head so many behind it.
  __device__ __forceinline__ Dropout of_head(int head) const {
    Dropout result = *this;
    result.counter[0] += static_cast<u32>(head);
    return result;
  }

  // The uppermost bit of each of four bytes: whether it drops its weight.
  __device__ __forceinline__ u32 drops(u32 bytes) const {
    const u32 carries = (bytes & 0x7f7f7f7fu) + (surplus & 0x7f7f7f7fu);  // into the uppermost bit; what leaves it:
    return ((bytes & surplus) | ((bytes | surplus) & carries)) & 0x80808080u;
  }

  // The 16 bytes of a row and a key below 8 in their 32, and of those that share their counter.
  __device__ __forceinline__ void bytes(u32 row, u32 key_row, u32 (&words)[4]) const {
    words[0] = (row / 32 * 8 + row % 8) + high;
    words[1] = key_row / 32 * 8 + key_row % 8;
    words[2] = counter[0];
    words[3] = counter[1];
    u32 k0 = key[0], k1 = key[1];
#pragma unroll
    for (int round = 0; round < 7; ++round) {
      const u32 low0 = words[0] * 0xd2511f53u, high0 = multiply_high(words[0], 0xd2511f53u);
      const u32 low1 = words[2] * 0xcd9e8d57u, high1 = multiply_high(words[2], 0xcd9e8d57u);
      words[0] = high1 ^ words[1] ^ k0;
      words[1] = low1;
      words[2] = high0 ^ words[3] ^ k1;
      words[3] = low0;
      k0 += 0x9e3779b9u;
      k1 += 0xbb67ae85u;
    }
  }
};

// Which weights are kept of a warp's accumulators: those of `row_tiles` tiles of 16 rows and of pieces of 16 columns,
// which begin at multiples of 16. Rows are queries and columns keys, or where `transposed` the other way round.
template <bool transposed, int row_tiles, int columns>
struct KeptWeights {
  // A bit of each weight that is not kept. A lane has two words of bytes of each 16 x 16 weights, for even columns and
  // for odd ones; eight words share one of these, each a bit lower than the one before.
  u32 dropped[(row_tiles * columns + 7) / 8];

  __device__ __forceinline__ KeptWeights(const Dropout& dropout, int first_row, int first_column) : dropped{} {
    // Pairs of tiles, where they begin at multiples of 32, have both words of their counters.
    constexpr int down = row_tiles % 2 == 0 ? 2 : 1;
    constexpr int across = columns % 4 == 0 ? 2 : 1;
    const u32 row = static_cast<u32>(first_row), column = static_cast<u32>(first_column);
#pragma unroll
    for (u32 i = 0; i < row_tiles; i += down) {
#pragma unroll
      for (u32 n = 0; n < columns / 2; n += across) {
#pragma unroll
        for (u32 odd = 0; odd < 2; ++odd) {
          const u32 tile_row = row + i * 16, tile_column = column + n * 16;
          const u32 own_row = tile_row + lane_index() / 4;
          const u32 own_column = tile_column + lane_index() % 4 * 2 + odd;
          u32 words[4];
          dropout.bytes(transposed ? own_column : own_row, transposed ? own_row : own_column, words);
#pragma unroll
          for (u32 a = 0; a < down; ++a) {
#pragma unroll
            for (u32 b = 0; b < across; ++b) {
              const bool low_half = down == 2 ? a == 0 : tile_row / 16 % 2 == 0;
              const bool left_half = across == 2 ? b == 0 : tile_column / 16 % 2 == 0;
              const bool first_query = transposed ? left_half : low_half;
              const bool first_key = transposed ? low_half : left_half;
              const u32 upper = first_key ? words[0] : words[1];
              const u32 lower = first_key ? words[2] : words[3];
              const u32 word = place(i + a, n + b, odd);
              dropped[word / 8] |= dropout.drops(first_query ? upper : lower) >> word % 8;
            }
          }
        }
      }
    }
  }

  // Whether accumulator [i][n][e] is.
  __device__ __forceinline__ bool has(int i, int n, int e) const {
    const int byte = transposed ? 2 * (n % 2) + e / 2 : 2 * (e / 2) + n % 2;
    const u32 word = place(static_cast<u32>(i), static_cast<u32>(n) / 2, static_cast<u32>(e) % 2);
    return (dropped[word / 8] & 0x80u << 8 * byte >> word % 8) == 0;
  }

 private:
  __device__ __forceinline__ static u32 place(u32 row_tile, u32 column_tile, u32 odd) {
    return (row_tile * (columns / 2) + column_tile) * 2 + odd;
  }
};

// Weights that are not kept become 0.
template <bool transposed, int row_tiles, int columns>
__device__ __forceinline__ void keep_weights(float (&P)[row_tiles][columns][4],
                                             const KeptWeights<transposed, row_tiles, columns>& kept) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (!kept.has(i, n, e)) P[i][n][e] = 0.0f;
      }
    }
  }
}

// The same of the weights of 16 rows and of what has been packed of them.
template <Dtype dtype, int columns>
__device__ __forceinline__ void keep_weights(float (&weights)[columns][4], u32 (&P)[columns / 2][4],
                                             const KeptWeights<false, 1, columns>& kept) {
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!kept.has(0, n, e)) weights[n][e] = 0.0f;
    }
    P[n / 2][n % 2 * 2] = pack<dtype>(weights[n][0], weights[n][1]);
    P[n / 2][n % 2 * 2 + 1] = pack<dtype>(weights[n][2], weights[n][3]);
  }
}

// The gradients of weights: `scale` times those of the weights that dropout left, if it did.
template <bool transposed, int row_tiles, int columns>
__device__ __forceinline__ void keep_gradients(float (&dP)[row_tiles][columns][4],
                                               const KeptWeights<transposed, row_tiles, columns>& kept, float scale) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) dP[i][n][e] = kept.has(i, n, e) ? dP[i][n][e] * scale : 0.0f;
    }
  }
}

// What sums of kept weights are multiplied by in the end.
template <int count, int own>
__device__ __forceinline__ void grow(float (&x)[count][own], float scale) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int j = 0; j < own; ++j) x[i][j] *= scale;
  }
}
template <int row_tiles, int columns>
__device__ __forceinline__ void grow(float (&x)[row_tiles][columns][4], float scale) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) grow(x[i], scale);
}
