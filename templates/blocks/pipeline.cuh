// Bringing blocks of K and V into shared memory ahead of their use.
#pragma once

#include "blocks/copy.cuh"
#include "blocks/tile.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// K and V each have `stages` buffers. Blocks are used from `blocks - 1` down to 0.
//   eager, one stage:     K(j - 1) is requested after the last use of K(j), V(j - 1) after that of V(j).
//   eager, more stages:   both are requested stages - 1 blocks ahead; one barrier a block.
//   lazy:                 each is requested when it is needed, and waited for.
// Only block `blocks - 1` can reach beyond the matrix; begin() requests it, so that the loop has no rows to check.
// Every thread makes the same number of copy groups, so that waiting by count works.
template <class Source, int stages, bool async, bool eager>
struct KVPipeline {
  static constexpr bool ahead = eager && stages > 1;
  static_assert(stages == 1 || eager);
  static_assert(!eager || async);

  using KVTile = typename Source::TileType;

  u32 base;
  int blocks;
  Source source;  // of block `blocks - 1` first

  __device__ __forceinline__ KVPipeline(u32 base, const Source& source, int blocks)
      : base(base), blocks(blocks), source(source) {}

  __device__ __forceinline__ KVTile k_tile(int j) const { return {base + buffer(j) * KVTile::bytes}; }
  __device__ __forceinline__ KVTile v_tile(int j) const { return {base + (stages + buffer(j)) * KVTile::bytes}; }

  // After Q was requested: the first requests for K and V.
  __device__ __forceinline__ void begin() {
    close_group();
    if constexpr (ahead) {
#pragma unroll
      for (int s = 1; s < stages; ++s) {
        request<Operand::K, false>(k_tile(blocks - s), blocks - s);
        request<Operand::V, false>(v_tile(blocks - s), blocks - s);
        close_group();
      }
    } else if constexpr (eager) {
      request<Operand::K, false>(k_tile(blocks - 1), blocks - 1);
      close_group();
      request<Operand::V, false>(v_tile(blocks - 1), blocks - 1);
      close_group();
    }
  }

  // Until Q is in shared memory and seen by all threads.
  __device__ __forceinline__ void wait_for_Q() {
    wait<ahead ? stages - 1 : eager ? 2 : 0>();
    block_barrier();
  }

  // Until K(j) (and so Q) is there and seen by all threads.
  __device__ __forceinline__ KVTile wait_for_K(int j) {
    if constexpr (ahead) {
      wait<stages - 2>();
      block_barrier();  // also: every thread is done with block j + 1, whose buffers come next
      const int next = j - (stages - 1);
      request<Operand::K, true>(k_tile(next), next);
      request<Operand::V, true>(v_tile(next), next);
      close_group();
    } else if constexpr (eager) {
      wait<1>();
      block_barrier();
    } else {
      request<Operand::K, false>(k_tile(j), j);  // every thread is done with K(j + 1) since the wait for V(j + 1)
      close_group();
      wait<0>();
      block_barrier();
    }
    return k_tile(j);
  }

  // After the last use of K(j) and before the first of V(j): until V(j) is there and seen by all threads.
  __device__ __forceinline__ KVTile wait_for_V(int j) {
    if constexpr (eager && !ahead) {
      wait<0>();
      block_barrier();  // also: every thread is done with K(j)
      request<Operand::K, true>(k_tile(j - 1), j - 1);
      close_group();
    } else if constexpr (!eager) {
      request<Operand::V, false>(v_tile(j), j);
      close_group();
      wait<0>();
      block_barrier();
    }
    return v_tile(j);
  }

  // After the last use of V(j).
  __device__ __forceinline__ void done_with_V(int j) {
    if constexpr (eager && !ahead) {
      block_barrier();
      request<Operand::V, true>(v_tile(j - 1), j - 1);
      close_group();
    }
  }

  // Before shared memory gets another use: no thread has a copy under way, which Q's is if there was no block.
  __device__ __forceinline__ void end() {
    wait<0>();
    block_barrier();
  }

 private:
  __device__ __forceinline__ static u32 buffer(int j) { return stages == 1 ? 0u : static_cast<u32>(j) % stages; }

  template <Operand operand, bool whole>
  __device__ __forceinline__ void request(const KVTile& tile, int j) {
    if (j < 0) return;
    source.template copy<operand, whole>(tile);
  }
  __device__ __forceinline__ static void close_group() {
    if constexpr (async) cp_async_commit();
  }
  template <int pending>
  __device__ __forceinline__ static void wait() {
    if constexpr (async) cp_async_wait<pending>();
  }
};
