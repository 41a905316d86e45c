// Merges two attention results over different keys: with e^LSE = e^LSE_1 + e^LSE_2 the weights of O_1 and O_2 are
// e^(LSE_1 - LSE) and e^(LSE_2 - LSE). For shared prefixes, cascades and keys that several GPUs hold.
//
// Memory limits it: 16 bytes a thread of each tensor.
#include "store_params.h"
#include "types.h"

namespace variant {
constexpr Dtype dtype = Dtype::bf16;
constexpr int warps = 4;
}  // namespace variant

#include "blocks/chunks.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/reciprocal.cuh"
#include "ptx/thread.cuh"
#include "ptx/unpack.cuh"

constexpr int threads = variant::warps * warp_size;

__device__ __forceinline__ u32 mixed(u32 first, u32 second, float weight_1, float weight_2) {
  const float low = weight_1 * unpack_low<variant::dtype>(first) + weight_2 * unpack_low<variant::dtype>(second);
  const float high = weight_1 * unpack_high<variant::dtype>(first) + weight_2 * unpack_high<variant::dtype>(second);
  return pack<variant::dtype>(low, high);
}

// FlashAttention-2 says +inf of a row without keys, where others say -inf; of a row with keys neither is an LSE.
__device__ __forceinline__ float load_lse(const float* lse) {
  const float found = load_global_float(lse);
  return found == -minus_infinity() ? minus_infinity() : found;
}

extern "C" __global__ void __launch_bounds__(threads) merge_states(const __grid_constant__ AttuneMergeParams params) {
  constexpr float log2_e = 1.44269504088896f;
  constexpr float ln_2 = 0.693147180559945f;
  const ChunkIndex own(params.batch, params.seqlen, params.heads, params.head_dim, threads);
  if (!own.exists) return;
  const i64 row = (static_cast<i64>(own.batch) * params.heads + own.head) * params.seqlen + own.row;
  const float lse_1 = load_lse(params.lse1 + row);
  const float lse_2 = load_lse(params.lse2 + row);
  // Subtracted before they are scaled, as the difference of two that are near is exact.
  const float top = larger(lse_1, lse_2);
  const float shift = top == minus_infinity() ? 0.0f : top;
  const float share_1 = exp2_approx((lse_1 - shift) * log2_e);
  const float share_2 = exp2_approx((lse_2 - shift) * log2_e);
  const float sum = share_1 + share_2;
  const float inverse = sum == 0.0f ? 0.0f : reciprocal_approx(sum);
  // A result over no keys says nothing, whatever its O is.
  const Chunk o_1 = share_1 == 0.0f ? Chunk{} : load_global(own.in(params.o1));
  const Chunk o_2 = share_2 == 0.0f ? Chunk{} : load_global(own.in(params.o2));
  Chunk o;
#pragma unroll
  for (int i = 0; i < 4; ++i) o.word[i] = mixed(o_1.word[i], o_2.word[i], share_1 * inverse, share_2 * inverse);
  store_global(own.in(params.o), o);
  if (own.column == 0 && params.lse != nullptr) {
    store_global(params.lse + row, shift + log2_approx(sum) * ln_2);  // log2 0 = -inf
  }
}
