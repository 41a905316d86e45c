// What lies in a cache's pages, where the table of a sequence is, and which entry a key's page has.
#pragma once

#include "blocks/divisor.cuh"
#include "paged_params.h"
#include "types.h"

enum class Cached { K, V };

__device__ __forceinline__ const int* table_of(const AttunePages& pages, int sequence) {
  return pages.block_table + static_cast<u64>(static_cast<u32>(sequence)) * static_cast<u32>(pages.table_width);
}

__device__ __forceinline__ u32 entry_of(const AttunePages& pages, int key) {
  return quotient_of(static_cast<u32>(key), pages.page_multiplier, pages.page_shift);
}
