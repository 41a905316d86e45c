// Rotates queries and keys in place by the angles of their positions (rotary position embedding, arXiv 2104.09864), as
// store_kv rotates keys on their way into a cache.
//
// Memory limits it: a thread has 32 bytes of a row, so that both partners of every pair are its own, and each element
// that is rotated is read and written once (a half's partner twice, the second time from L1).
#include "rotary.h"
#include "rotary_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int warps = 4;
constexpr Rotary rotary = Rotary::halves;
}  // namespace variant

#include "blocks/chunks.cuh"
#include "blocks/rotary.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;

// The row of the rotations that turns a row of Q and K.
__device__ __forceinline__ i64 position_of(const AttuneRotaryParams& params, int batch, int row) {
  if (params.positions != nullptr) {
    return load_global_int(params.positions + static_cast<i64>(batch) * params.seqlen + row);
  }
  return (params.offsets == nullptr ? 0 : static_cast<i64>(load_global_int(params.offsets + batch))) + row;
}

extern "C" __global__ void __launch_bounds__(threads)
    rotary_embedding(const __grid_constant__ AttuneRotaryParams params) {
  // Numbered over half of the columns, as each thread has a chunk and the one that it is paired with or beside.
  const int half = params.rotary_dim / 2;
  ChunkIndex own(params.batch, params.seqlen, params.heads_q + params.heads_kv, half, threads);
  if (!own.exists) return;
  const i64 position = position_of(params, own.batch, own.row);
  const bool is_key = own.head >= params.heads_q;
  if (is_key) own.head -= params.heads_q;
  if constexpr (variant::rotary == Rotary::interleaved) own.column *= 2;
  const int second = own.column + (variant::rotary == Rotary::interleaved ? chunk : half);
  char* const at = own.in(is_key ? params.k : params.q);
  char* const at_second = at + (second - own.column) * element_bytes;
  const Rotation rotation{params.cos, params.sin, params.rotary_dim, params.rotations};
  Chunk low = load_global(at);
  Chunk high = load_global(at_second);
  rotate<variant::dtype>(low, at, own.column, rotation, position);
  rotate<variant::dtype>(high, at_second, second, rotation, position);
  store_global(at, low);
  store_global(at_second, high);
}
