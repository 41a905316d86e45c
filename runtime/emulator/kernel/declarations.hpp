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
struct uint3 {
  unsigned x, y, z;
};

enum class Dtype;
struct AttuneTensorMap;

// ptx/thread.cuh
inline void block_barrier(int line = __builtin_LINE());
inline void warp_barrier(int line = __builtin_LINE());
inline float shuffle_xor(float value, int mask, int line = __builtin_LINE());
inline bool any_lane(bool predicate, int line = __builtin_LINE());
inline bool elect_lane(int line = __builtin_LINE());

// ptx/lanes.cuh
inline int shuffle_from(int value, unsigned source, int line = __builtin_LINE());
inline float shuffle_from(float value, unsigned source, int line = __builtin_LINE());
template <unsigned lanes>
int shuffle_among(int value, unsigned source, int line = __builtin_LINE());
inline int sum_of_lanes(int value, int line = __builtin_LINE());
inline int least_of_lanes(int value, int line = __builtin_LINE());
inline int greatest_of_lanes(int value, int line = __builtin_LINE());
inline int uniform(int value, int line = __builtin_LINE());
inline unsigned thread_index();
inline unsigned lane_index();
inline unsigned lane_anew();
inline unsigned warp_index(int line = __builtin_LINE());
inline unsigned block_number();
inline unsigned block_count();

// ptx/grid.cuh
inline uint3 block_index();
inline uint3 grid_size();

// ptx/memory.cuh
inline unsigned shared_memory();
inline void store_global(float* pointer, float value, int line = __builtin_LINE());

// ptx/memory_chunks.cuh
constexpr int chunk = 8;
constexpr int chunk_bytes = 16;
struct alignas(chunk_bytes) Chunk {
  unsigned word[4];
};
inline Chunk load_shared(unsigned address, int line = __builtin_LINE());
inline void store_shared(unsigned address, const Chunk& chunk, int line = __builtin_LINE());
inline void store_shared(unsigned address, unsigned word, int line = __builtin_LINE());
inline Chunk load_global(const void* pointer, int line = __builtin_LINE());
inline void store_global(void* pointer, const Chunk& chunk, int line = __builtin_LINE());

// ptx/kept_pointer.cuh
inline const void* kept(const void* pointer);

// ptx/memory_elements.cuh
inline unsigned load_global_element(const void* pointer, int line = __builtin_LINE());
inline void store_global_element(void* pointer, unsigned element, int line = __builtin_LINE());

// ptx/memory_words.cuh
inline int load_global_int(const int* pointer, int line = __builtin_LINE());
inline long long load_global_long(const long long* pointer, int line = __builtin_LINE());
inline float load_global_float(const float* pointer, int line = __builtin_LINE());
inline unsigned load_global_word(const void* pointer, int line = __builtin_LINE());
inline void prefetch_global(const void* pointer);
inline void store_global(void* pointer, unsigned first, unsigned second, int line = __builtin_LINE());
inline unsigned load_shared_word(unsigned address, int line = __builtin_LINE());
inline float load_shared_float(unsigned address, int line = __builtin_LINE());
inline void store_shared(unsigned address, float value, int line = __builtin_LINE());
inline void store_shared(unsigned address, float first, float second, int line = __builtin_LINE());

// ptx/reduce.cuh
inline void add_global(float* pointer, float value, int line = __builtin_LINE());

// ptx/counter.cuh
inline int count_global(int* counter, int line = __builtin_LINE());

// ptx/floats.cuh
struct alignas(16) Float4 {
  float value[4];
};
inline Float4 load_shared_floats(unsigned address, int line = __builtin_LINE());
inline Float4 load_global_floats(const float* pointer, int line = __builtin_LINE());
inline void store_global(float* pointer, const Float4& f, int line = __builtin_LINE());
inline void store_shared(unsigned address, const Float4& f, int line = __builtin_LINE());

// ptx/cluster.cuh
inline unsigned cluster_block();
inline unsigned cluster_blocks();
inline void cluster_barrier(int line = __builtin_LINE());
inline void cluster_end(int line = __builtin_LINE());
inline Float4 load_cluster_floats(unsigned address, unsigned block, int line = __builtin_LINE());
inline float load_cluster_float(unsigned address, unsigned block, int line = __builtin_LINE());

// ptx/handover.cuh
inline void announce_word(unsigned long long* place, unsigned long long word, int line = __builtin_LINE());
inline void await_word(const unsigned long long* place, unsigned long long word, int line = __builtin_LINE());
inline void store_floats(float* pointer, const float (&f)[4], int line = __builtin_LINE());
inline void load_floats(float (&f)[4], const float* pointer, int line = __builtin_LINE());

// ptx/kernel_order.cuh
inline void let_next_kernel_begin();
inline void wait_for_kernel_before();

// ptx/cp_async.cuh
inline void cp_async(unsigned shared_address, const void* pointer, unsigned bytes, bool valid,
                     int line = __builtin_LINE());
inline void cp_async(unsigned shared_address, const void* pointer, bool valid, int line = __builtin_LINE());
inline unsigned long long cache_policy(bool once);
inline void cp_async(unsigned shared_address, const void* pointer, unsigned bytes, bool valid,
                     unsigned long long policy, int line = __builtin_LINE());
inline void cp_async_commit();
template <int pending>
void cp_async_wait();

// ptx/ldmatrix.cuh
inline void ldmatrix(unsigned (&words)[4], unsigned address, int line = __builtin_LINE());

// ptx/ldmatrix_transposed.cuh
inline void ldmatrix_transposed(unsigned (&words)[4], unsigned address, int line = __builtin_LINE());

// ptx/mma.cuh
template <Dtype dtype>
void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int line = __builtin_LINE());

// ptx/mbarrier.cuh
constexpr unsigned mbarrier_bytes = 8;
inline void mbarrier_init(unsigned address, unsigned arrivals, int line = __builtin_LINE());
inline void mbarrier_fence(int line = __builtin_LINE());
inline void mbarrier_arrive(unsigned address, int line = __builtin_LINE());
inline void mbarrier_arrive_expect(unsigned address, unsigned bytes, int line = __builtin_LINE());
inline void mbarrier_wait(unsigned address, unsigned parity, int line = __builtin_LINE());
inline bool mbarrier_test(unsigned address, unsigned parity, int line = __builtin_LINE());

// ptx/bulk_copy.cuh
inline void load_bytes(unsigned address, const void* pointer, unsigned bytes, unsigned barrier,
                       int line = __builtin_LINE());
inline void add_bytes(float* pointer, unsigned address, unsigned bytes, int line = __builtin_LINE());
inline void wait_boxes();

// ptx/tensor_copy.cuh
inline void load_box(unsigned address, const AttuneTensorMap& map, unsigned barrier, int x, int y, int z, int w,
                     int line = __builtin_LINE());
inline void load_box_5d(unsigned address, const AttuneTensorMap& map, unsigned barrier, int x, int y, int z, int w,
                        int v, int line = __builtin_LINE());
inline void prefetch_map(const AttuneTensorMap& map);
inline void store_box(const AttuneTensorMap& map, unsigned address, int x, int y, int z, int w,
                      int line = __builtin_LINE());
inline void store_box_5d(const AttuneTensorMap& map, unsigned address, int x, int y, int z, int w, int v,
                         int line = __builtin_LINE());
inline void commit_boxes();
inline void wait_boxes_read();
inline void fence_for_copies();

// ptx/warpgroup.cuh
inline void named_barrier_wait(unsigned id, unsigned threads, int line = __builtin_LINE());
inline bool named_barrier_any(unsigned id, unsigned threads, bool predicate, int line = __builtin_LINE());
inline void named_barrier_announce(unsigned id, unsigned threads, int line = __builtin_LINE());
template <unsigned registers>
void take_registers(int line = __builtin_LINE());
template <unsigned registers>
void give_registers(int line = __builtin_LINE());

// ptx/wgmma.cuh
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps, int tiles>
void wgmma(float (&D)[tiles][4], unsigned long long A, unsigned long long B, bool accumulate,
           int line = __builtin_LINE());
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps, int tiles>
void wgmma_transposed(float (&D)[tiles][4], unsigned long long A, unsigned long long B, bool accumulate,
                      int line = __builtin_LINE());
template <Dtype dtype, bool B_transposed, auto B_step, int tiles, int steps>
void wgmma(float (&D)[tiles][4], const unsigned (&A)[steps][4], unsigned long long B, bool accumulate,
           int line = __builtin_LINE());
inline unsigned long long matrix_descriptor(unsigned address, unsigned leading_bytes);
inline void wgmma_fence(int line = __builtin_LINE());
inline void wgmma_commit(int line = __builtin_LINE());
template <int pending>
void wgmma_wait(int line = __builtin_LINE());
template <int tiles>
void settle(float (&D)[tiles][4], int line = __builtin_LINE());
inline void store_matrices(unsigned address, const unsigned (&word)[4], int line = __builtin_LINE());

// ptx/math.cuh
inline float minus_infinity();
inline float exp2_approx(float x);
inline float log2_approx(float x);
inline float reciprocal_approx(float x);
inline unsigned multiply_high(unsigned x, unsigned y);
inline float larger(float x, float y);
inline float larger_or_nan(float x, float y);
inline int highest_bit(unsigned x);
template <Dtype dtype>
unsigned pack(float low, float high);

// ptx/rounded.cuh
template <Dtype dtype>
float rounded(float x);

// ptx/unpack.cuh
template <Dtype dtype>
float unpack_low(unsigned word);
template <Dtype dtype>
float unpack_high(unsigned word);
