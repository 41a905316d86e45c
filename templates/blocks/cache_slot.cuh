// Where in a cache a new token belongs, and which position it has.
#pragma once

#include "ptx/memory_words.cuh"
#include "store_params.h"
#include "types.h"

// A token of the cache.
struct CacheSlot {
  int page;  // negative: there is no such page, and nothing is written
  int token;
};

// Tokens of a sequence before the new ones.
__device__ __forceinline__ i64 keys_before(const AttuneStoreParams& params, int batch) {
  return params.seqlens_k == nullptr ? 0 : load_global_int(params.seqlens_k + batch);
}

// Tables are the caller's and may say anything: what they name is looked for in 64 bits and within the cache alone.
__device__ __forceinline__ CacheSlot slot_of(const AttuneStoreParams& params, int batch, int token) {
  i64 page = -1;
  i64 inside = 0;
  if (params.slots != nullptr) {
    const i64 slot = load_global_long(params.slots + static_cast<i64>(batch) * params.tokens + token);
    if (slot >= 0) {
      page = slot / params.page_size;
      inside = slot - page * params.page_size;
    }
  } else {
    const i64 key = keys_before(params, batch) + token;
    const i64 entry = key / params.page_size;
    if (key >= 0 && entry < params.table_width) {
      inside = key - entry * params.page_size;
      page = params.block_table == nullptr
                 ? batch
                 : load_global_int(params.block_table + static_cast<i64>(batch) * params.table_width + entry);
    }
  }
  return {page < params.pages ? static_cast<int>(page) : -1, static_cast<int>(inside)};
}

// The row of the rotations that turns a new token.
__device__ __forceinline__ i64 position_of(const AttuneStoreParams& params, int batch, int token) {
  if (params.positions == nullptr) return keys_before(params, batch) + token;
  return load_global_int(params.positions + static_cast<i64>(batch) * params.tokens + token);
}
