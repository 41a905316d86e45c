// Ahead of an emulated kernel: CUDA's keywords without their meaning, and the functions of templates/ptx/ as the
// emitted source will call them. Each notes the line it is called from. Their bodies follow the kernel (bodies.hpp),
// where the types that the emitted source defines are complete.
#pragma once

#include "machine.hpp"

#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

enum class Dtype;
struct Chunk;

struct GridIndex {
  unsigned x, y, z;
};

// ptx/thread.cuh
inline unsigned thread_index();
inline unsigned lane_index();
inline unsigned warp_index();
inline GridIndex block_index();
inline GridIndex grid_size();

// ptx/memory.cuh
inline unsigned shared_memory();
inline Chunk load_shared(unsigned address, int line = __builtin_LINE());
inline void store_shared(unsigned address, const Chunk& chunk, int line = __builtin_LINE());
inline void store_shared(unsigned address, unsigned word, int line = __builtin_LINE());
inline Chunk load_global(const void* pointer, int line = __builtin_LINE());
inline void store_global(void* pointer, const Chunk& chunk, int line = __builtin_LINE());
inline void store_global(float* pointer, float value, int line = __builtin_LINE());

// ptx/cp_async.cuh
inline void cp_async(unsigned shared_address, const void* pointer, bool valid, int line = __builtin_LINE());
inline void cp_async_commit();
template <int pending>
void cp_async_wait();

// ptx/barrier.cuh
inline void block_barrier(int line = __builtin_LINE());
inline void warp_barrier(int line = __builtin_LINE());

// ptx/shuffle.cuh
inline float shuffle_xor(float value, int mask, int line = __builtin_LINE());
inline bool any_lane(bool predicate, int line = __builtin_LINE());

// ptx/ldmatrix.cuh
template <bool transposed>
void ldmatrix(unsigned (&words)[4], unsigned address, int line = __builtin_LINE());

// ptx/mma.cuh
template <Dtype dtype>
void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int line = __builtin_LINE());

// ptx/math.cuh
inline float minus_infinity();
inline float exp2_approx(float x);
inline float log2_approx(float x);
inline float larger(float x, float y);
template <Dtype dtype>
unsigned pack(float low, float high);
