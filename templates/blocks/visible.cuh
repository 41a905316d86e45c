// Which keys a query of a sequence sees: all, a window around its own position, or those up to it.
#pragma once

#include "blocks/mask.cuh"
#include "types.h"

// Query i stands at i + seqlen_k - seqlen_q (aligned bottom right) and sees the keys from first(i) on, below limit(i).
struct Visible {
  int seqlen_q;
  int seqlen_k;
  int begin;  // keys before it do not exist
  int left;   // keys before its own; -1: all
  int right;  // keys behind it; -1: all

  __device__ __forceinline__ int position(int query) const { return query + seqlen_k - seqlen_q; }

  __device__ __forceinline__ int first(int query) const {
    if (left < 0) return begin;
    const int key = position(query) - left;
    return key > begin ? key : begin;
  }

  __device__ __forceinline__ int limit(int query) const {
    if (right < 0) return seqlen_k;
    const int key = position(query) + right + 1;
    return key < seqlen_k ? key : seqlen_k;
  }

  // The blocks of `size` keys that some query sees: from first_block on, below end_block.
  __device__ __forceinline__ int first_block(int size) const { return first(0) / size; }
  __device__ __forceinline__ int end_block(int size) const {
    const int keys = limit(seqlen_q - 1);
    return keys > 0 ? (keys + size - 1) / size : 0;
  }
};

// The same as a mask (blocks/mask.cuh) of rows, of which each query has `rows_per_query`.
struct VisibleToRows {
  const Visible& keys;
  int rows_per_query;

  __device__ __forceinline__ KeysBetween seen(int row) const {
    const int query = row / rows_per_query;
    return {keys.first(query), keys.limit(query)};
  }
  // Without a division: whether all of the sequence's queries do.
  __device__ __forceinline__ bool sees_all(int /*first_row*/, int /*rows*/, int first_key, int count) const {
    return first_key >= keys.first(keys.seqlen_q - 1) && first_key + count <= keys.limit(0);
  }
};
