// Writes new keys and values into a cache, contiguous or of pages, and rotates the keys on their way (rotary position
// embedding, arXiv 2104.09864).
//
// Memory limits it: 16 bytes a thread of K and of V, neighbours beside each other, each element read and written once
// (a key's halves that are rotated against each other are read twice, the second time from L1).
#include "rotary.h"
#include "store_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int warps = 4;
constexpr Rotary rotary = Rotary::none;
constexpr bool cut_rows = false;
}  // namespace variant

#include "blocks/cache_slot.cuh"
#include "blocks/chunks.cuh"
#include "blocks/rotary.cuh"
#include "blocks/store_columns.cuh"
#include "ptx/kernel_order.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;

extern "C" __global__ void __launch_bounds__(threads) store_kv(const __grid_constant__ AttuneStoreParams params) {
  let_next_kernel_begin();
  const ChunkIndex own(params.batch, params.tokens, params.heads_kv, params.head_dim, threads);
  if (!own.exists) return;
  const CacheSlot slot = slot_of(params, own.batch, own.row);
  if (slot.page < 0) return;
  const char* const k_from = own.in(params.k_new);
  Chunk k = load_global(k_from);
  const Chunk v = load_global(own.in(params.v_new));
  if constexpr (variant::rotary != Rotary::none) {
    rotate<variant::dtype>(k, k_from, own.column, {params.cos, params.sin, params.rotary_dim, params.rotations},
                           position_of(params, own.batch, own.row));
  }
  const ChunkIndex to = own.at(slot.page, slot.token);
  if constexpr (variant::cut_rows) {
    const int columns = params.key_columns - own.column;
    store_columns(to.in(params.k), k, columns);
    store_columns(to.in(params.v), v, columns);
  } else {
    store_global(to.in(params.k), k);
    store_global(to.in(params.v), v);
  }
}
