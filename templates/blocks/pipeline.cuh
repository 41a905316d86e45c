// Bringing blocks of K and V into shared memory ahead of their use.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/tile.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cp_async.cuh"
#include "types.h"

// K and V each have `stages` buffers. Blocks are used from `blocks - 1` down to 0.
//   eager, one stage:     V(j) is requested before Q K(j), K(j - 1) before the softmax of block j.
//   eager, more stages:   both are requested stages - 1 blocks ahead; one barrier a block.
//   lazy:                 each is requested when it is needed, and waited for.
// Every thread makes the same number of copy groups, so that waiting by count works.
template <class KVTile, int threads, int stages, bool async, bool eager>
struct KVPipeline {
  static constexpr bool ahead = eager && stages > 1;
  static_assert(stages == 1 || eager);
  static_assert(!eager || async);

  u32 base;
  Matrix K;
  Matrix V;
  int blocks;

  __device__ __forceinline__ KVTile k_tile(int j) const { return {base + buffer(j) * KVTile::bytes}; }
  __device__ __forceinline__ KVTile v_tile(int j) const { return {base + (stages + buffer(j)) * KVTile::bytes}; }

  // After Q was requested: the first requests for K and V.
  __device__ __forceinline__ void begin() {
    close_group();
    if constexpr (ahead) {
#pragma unroll
      for (int s = 1; s < stages; ++s) {
        request_K(blocks - s);
        request_V(blocks - s);
        close_group();
      }
    } else if constexpr (eager) {
      request_K(blocks - 1);
      close_group();
    }
  }

  // Until Q is in shared memory and seen by all threads.
  __device__ __forceinline__ void wait_for_Q() {
    wait<ahead ? stages - 1 : eager ? 1 : 0>();
    block_barrier();
  }

  // Until K(j) (and so Q) is there and seen by all threads.
  __device__ __forceinline__ KVTile wait_for_K(int j) {
    if constexpr (ahead) {
      wait<stages - 2>();
      block_barrier();  // also: every thread is done with block j + 1, whose buffers come next
      request_K(j - (stages - 1));
      request_V(j - (stages - 1));
      close_group();
    } else if constexpr (eager) {
      wait<0>();
      block_barrier();  // also: every thread is done with V(j + 1)
      request_V(j);
      close_group();
    } else {
      block_barrier();  // every thread is done with block j + 1
      request_K(j);
      close_group();
      wait<0>();
      block_barrier();
    }
    return k_tile(j);
  }

  // Until V(j) is there and seen by all threads.
  __device__ __forceinline__ KVTile wait_for_V(int j) {
    if constexpr (eager && !ahead) {
      wait<0>();
      block_barrier();  // also: every thread is done with K(j)
      request_K(j - 1);
      close_group();
    } else if constexpr (!eager) {
      request_V(j);
      close_group();
      wait<0>();
      block_barrier();
    }
    return v_tile(j);
  }

  // Nothing may still be landing when shared memory gets another use.
  __device__ __forceinline__ void end() {
    wait<0>();
  }

 private:
  __device__ __forceinline__ static u32 buffer(int j) { return stages == 1 ? 0u : static_cast<u32>(j % stages); }

  __device__ __forceinline__ void request_K(int j) {
    if (j >= 0) copy_tile<threads, async>(k_tile(j), K, j * KVTile::rows);
  }
  __device__ __forceinline__ void request_V(int j) {
    if (j >= 0) copy_tile<threads, async>(v_tile(j), V, j * KVTile::rows);
  }
  __device__ __forceinline__ static void close_group() {
    if constexpr (async) cp_async_commit();
  }
  template <int pending>
  __device__ __forceinline__ static void wait() {
    if constexpr (async) cp_async_wait<pending>();
  }
};
