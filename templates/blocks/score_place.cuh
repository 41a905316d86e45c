// Where scores stand, as expressions name it: q, p, k, h, hk and b.
#pragma once

#include "blocks/ranges.cuh"
#include "expression_params.h"
#include "types.h"

struct ScorePlace {
  int q;   // the query's row in its sequence
  int p;   // its position among the keys
  int k;   // the key's position
  int h;   // the head of Q
  int hk;  // and of K and V
  int b;   // the sequence
};

// All places of some queries, keys and heads.
struct ScoreBox {
  Range q;
  Range p;
  Range k;
  Range h;
  Range hk;
  Range b;
};

// The rows of a tile, of which each query has as many as heads share it: row q * ratio + i is query q of head first +
// i.
struct ScoreRows {
  int batch;
  int head;  // the first
  int kv_head;
  int ratio;      // rows of a query
  int diagonal;   // seqlen_k - seqlen_q
  int first_key;  // where the sequence begins among those that are counted

  __device__ __forceinline__ int query(int row) const {
    return static_cast<int>(static_cast<u32>(row) / static_cast<u32>(ratio));
  }

  __device__ __forceinline__ ScorePlace place(int row, int key) const {
    const int q = query(row);
    return {q, q + diagonal - first_key, key - first_key, head + row - q * ratio, kv_head, batch};
  }

  // The queries of some rows. Who asks about block after block asks this once: it takes two divisions.
  __device__ __forceinline__ Range queries(int row, int rows) const { return {query(row), query(row + rows - 1)}; }

  __device__ __forceinline__ ScoreBox box(int row, int rows, int key, int keys) const {
    return box(queries(row, rows), key, keys);
  }
  __device__ __forceinline__ ScoreBox box(const Range& q, int key, int keys) const {
    return {q,
            {q.low + diagonal - first_key, q.high + diagonal - first_key},
            {key - first_key, key + keys - 1 - first_key},
            {head, head + ratio - 1},
            only(kv_head),
            only(batch)};
  }

  // Makes of a key's position one that expressions may be asked about.
  __device__ __forceinline__ static int position(int k) { return k; }
};

// The same where tiles may begin before the sequence's first key. Expressions have no positions below 0: keys before
// the first, which nobody sees, count as that one.
struct PaddedScoreRows : ScoreRows {
  __device__ __forceinline__ explicit PaddedScoreRows(const ScoreRows& rows) : ScoreRows(rows) {}

  __device__ __forceinline__ static int position(int k) { return maximum_of(k, 0); }

  __device__ __forceinline__ ScoreBox box(int row, int rows, int key, int keys) const {
    return box(queries(row, rows), key, keys);
  }
  __device__ __forceinline__ ScoreBox box(const Range& q, int key, int keys) const {
    ScoreBox box = ScoreRows::box(q, key, keys);
    box.k = {position(box.k.low), position(box.k.high)};
    return box;
  }
};

// An index of an array's dimension, or the nearest one inside.
__device__ __forceinline__ u32 nearest_index(const AttuneArray& array, int dimension, int index) {
  return static_cast<u32>(maximum_of(minimum_of(index, array.extents[dimension] - 1), 0));
}
