// Which keys a query sees. Query i stands at i + seqlen_k - seqlen_q (aligned bottom right) and sees the keys from
// first(i) on, below limit(i); none where that is not beyond the first. Each mask answers for rows of a tile.
#pragma once

#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Keys that a row sees, and whether one of them is `key` keys from where it is counted.
struct KeysBelow {
  int limit;

  __device__ __forceinline__ KeysBelow from(int key) const { return {limit - key}; }
  __device__ __forceinline__ bool has(int key) const { return key < limit; }
};
struct KeysBetween {
  int first;
  int limit;

  __device__ __forceinline__ KeysBetween from(int key) const { return {first - key, limit - key}; }
  __device__ __forceinline__ bool has(int key) const { return key >= first && key < limit; }
};

// All keys.
struct FullMask {
  int seqlen_k;

  template <class Params>
  __device__ __forceinline__ static FullMask of(const Params& /*params*/, int /*seqlen_q*/, int seqlen_k) {
    return {seqlen_k};
  }

  __device__ __forceinline__ int limit(int /*row*/) const { return seqlen_k; }
  __device__ __forceinline__ KeysBelow seen(int row) const { return {limit(row)}; }
  // Whether each of `rows` rows sees each of `keys` keys.
  __device__ __forceinline__ bool sees_all(int first_row, int /*rows*/, int first_key, int keys) const {
    return limit(first_row) >= first_key + keys;
  }
};

// Those up to the query's own position.
struct CausalMask {
  int seqlen_k;
  int diagonal;  // seqlen_k - seqlen_q

  template <class Params>
  __device__ __forceinline__ static CausalMask of(const Params& /*params*/, int seqlen_q, int seqlen_k) {
    return {seqlen_k, seqlen_k - seqlen_q};
  }

  __device__ __forceinline__ int limit(int row) const {
    const int own = row + diagonal + 1;
    return own < seqlen_k ? own : seqlen_k;
  }
  __device__ __forceinline__ KeysBelow seen(int row) const { return {limit(row)}; }
  __device__ __forceinline__ bool sees_all(int first_row, int /*rows*/, int first_key, int keys) const {
    return limit(first_row) >= first_key + keys;
  }
};

// Those around it.
struct Window {
  int seqlen_k;
  int diagonal;  // seqlen_k - seqlen_q
  int left;      // keys that a query sees before its own position, ...
  int right;     // ... and after it

  template <class Params>
  __device__ __forceinline__ static Window of(const Params& params, int seqlen_q, int seqlen_k) {
    return {seqlen_k, seqlen_k - seqlen_q, params.window_left, params.window_right};
  }

  __device__ __forceinline__ int first(int row) const {
    const int key = row + diagonal - left;
    return key > 0 ? key : 0;
  }
  __device__ __forceinline__ int limit(int row) const {
    const int key = row + diagonal + right + 1;
    return key < seqlen_k ? key : seqlen_k;
  }
  __device__ __forceinline__ KeysBetween seen(int row) const { return {first(row), limit(row)}; }
  __device__ __forceinline__ bool sees_all(int first_row, int rows, int first_key, int keys) const {
    return first_key >= first(first_row + rows - 1) && limit(first_row) >= first_key + keys;
  }
};

// A mask for tiles in which row q * ratio + h is query q of the h-th of `ratio` heads, a power of two.
template <class QueryMask, int ratio>
struct PackedMask : QueryMask {
  template <class Params>
  __device__ __forceinline__ static PackedMask of(const Params& params, int seqlen_q, int seqlen_k) {
    return {QueryMask::of(params, seqlen_q, seqlen_k)};
  }

  __device__ __forceinline__ static int query(int row) { return static_cast<int>(static_cast<u32>(row) / ratio); }
  __device__ __forceinline__ static int head(int row) { return static_cast<int>(static_cast<u32>(row) % ratio); }
  __device__ __forceinline__ int limit(int row) const { return QueryMask::limit(query(row)); }
  __device__ __forceinline__ auto seen(int row) const { return QueryMask::seen(query(row)); }
  __device__ __forceinline__ bool sees_all(int first_row, int /*rows*/, int first_key, int keys) const {
    return limit(first_row) >= first_key + keys;
  }
};

// How many blocks of `size` keys, from key 0 on, hold a key below `limit`.
__device__ __forceinline__ int blocks_reaching(int limit, int size) {
  return limit > 0 ? (limit + size - 1) / size : 0;
}

// Of blocks of `size` keys the first that the rows from `row` on see. It reaches no further than the limit of a row
// that exists: either its own position is beyond both, or key 0 is where both begin.
template <class KeyMask>
__device__ __forceinline__ int first_block_seen(const KeyMask& mask, int row, int size) {
  return mask.first(row) / size;
}
