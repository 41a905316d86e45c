// What follows an emulated kernel: the bodies of the functions that declarations.hpp announced, and the entry that runs
// one thread.
#pragma once

// One block runs on one thread of the operating system, all its fibers included.
inline attune::emulator::Machine*& current_machine() {
  thread_local attune::emulator::Machine* machine = nullptr;
  return machine;
}
inline attune::emulator::Machine& machine() { return *current_machine(); }

inline unsigned thread_index() { return machine().thread_index(); }
inline unsigned lane_index() { return machine().thread_index() % warp_size; }
inline unsigned lane_anew() { return lane_index(); }
inline uint3 block_index() {
  const auto index = machine().block_index();
  return {index.x, index.y, index.z};
}
inline uint3 grid_size() {
  const auto size = machine().grid_size();
  return {size.x, size.y, size.z};
}

inline unsigned block_number() { return machine().block_index().x; }
inline unsigned block_count() { return machine().grid_size().x; }

inline unsigned shared_memory() { return attune::emulator::shared_base; }
inline Chunk load_shared(unsigned address, int line) {
  Chunk chunk;
  machine().load_shared(address, &chunk, sizeof(chunk), line);
  return chunk;
}
inline void store_shared(unsigned address, const Chunk& chunk, int line) {
  machine().store_shared(address, &chunk, sizeof(chunk), line);
}
inline void store_shared(unsigned address, unsigned word, int line) {
  machine().store_shared(address, &word, sizeof(word), line);
}
inline Chunk load_global(const void* pointer, int line) {
  Chunk chunk;
  machine().load_global(pointer, &chunk, sizeof(chunk), line);
  return chunk;
}
inline void store_global(void* pointer, const Chunk& chunk, int line) {
  machine().store_global(pointer, &chunk, sizeof(chunk), line);
}
inline void store_global(float* pointer, float value, int line) {
  machine().store_global(pointer, &value, sizeof(value), line);
}

template <class T>
T load_global_as(const void* pointer, int line) {
  T value;
  machine().load_global(pointer, &value, sizeof(value), line);
  return value;
}
template <class T>
T load_shared_as(unsigned address, int line) {
  T value;
  machine().load_shared(address, &value, sizeof(value), line);
  return value;
}
inline unsigned load_global_element(const void* pointer, int line) {
  return load_global_as<unsigned short>(pointer, line);
}
inline void store_global_element(void* pointer, unsigned element, int line) {
  const auto stored = static_cast<unsigned short>(element);
  machine().store_global(pointer, &stored, sizeof(stored), line);
}
inline int load_global_int(const int* pointer, int line) { return load_global_as<int>(pointer, line); }
inline long long load_global_long(const long long* pointer, int line) {
  return load_global_as<long long>(pointer, line);
}
inline float load_global_float(const float* pointer, int line) { return load_global_as<float>(pointer, line); }
inline unsigned load_global_word(const void* pointer, int line) { return load_global_as<unsigned>(pointer, line); }
inline const void* kept(const void* pointer) { return pointer; }
inline void prefetch_global(const void* /*pointer*/) {}  // changes nothing that a kernel can see
inline void store_global(void* pointer, unsigned first, unsigned second, int line) {
  const unsigned words[2] = {first, second};
  machine().store_global(pointer, words, sizeof(words), line);
}
inline unsigned load_shared_word(unsigned address, int line) { return load_shared_as<unsigned>(address, line); }
inline float load_shared_float(unsigned address, int line) { return load_shared_as<float>(address, line); }
inline void store_shared(unsigned address, float value, int line) {
  machine().store_shared(address, &value, sizeof(value), line);
}
inline void store_shared(unsigned address, float first, float second, int line) {
  const float values[2] = {first, second};
  machine().store_shared(address, values, sizeof(values), line);
}
inline void add_global(float* pointer, float value, int line) { machine().add_global(pointer, value, line); }
inline int count_global(int* counter, int line) { return machine().count_global(counter, line); }
inline Float4 load_shared_floats(unsigned address, int line) { return load_shared_as<Float4>(address, line); }
inline Float4 load_global_floats(const float* pointer, int line) { return load_global_as<Float4>(pointer, line); }
inline void store_global(float* pointer, const Float4& f, int line) {
  machine().store_global(pointer, &f, sizeof(f), line);
}
inline void store_shared(unsigned address, const Float4& f, int line) {
  machine().store_shared(address, &f, sizeof(f), line);
}

inline unsigned cluster_block() { return machine().cluster_block(); }
inline unsigned cluster_blocks() { return machine().cluster_blocks(); }
inline void cluster_barrier(int line) { machine().cluster_barrier(line); }
inline void cluster_end(int line) { machine().cluster_barrier(line); }
template <class T>
T load_cluster_as(unsigned address, unsigned block, int line) {
  T value;
  machine().load_cluster(address, block, &value, sizeof(value), line);
  return value;
}
inline Float4 load_cluster_floats(unsigned address, unsigned block, int line) {
  return load_cluster_as<Float4>(address, block, line);
}
inline float load_cluster_float(unsigned address, unsigned block, int line) {
  return load_cluster_as<float>(address, block, line);
}

inline void announce_word(unsigned long long* place, unsigned long long word, int line) {
  machine().announce_word(place, word, line);
}
inline void await_word(const unsigned long long* place, unsigned long long word, int line) {
  machine().await_word(place, word, line);
}
inline void store_floats(float* pointer, const float (&f)[4], int line) {
  machine().store_global(pointer, f, sizeof(f), line);
}
inline void load_floats(float (&f)[4], const float* pointer, int line) {
  machine().load_global(pointer, f, sizeof(f), line);
}

// A launch on the emulator has ended before the next begins.
inline void let_next_kernel_begin() {}
inline void wait_for_kernel_before() {}

inline void cp_async(unsigned shared_address, const void* pointer, unsigned bytes, bool valid, int line) {
  machine().cp_async(shared_address, pointer, valid ? bytes : 0, line);
}
inline void cp_async(unsigned shared_address, const void* pointer, bool valid, int line) {
  cp_async(shared_address, pointer, static_cast<unsigned>(sizeof(Chunk)), valid, line);
}
// Caches are not emulated.
inline unsigned long long cache_policy(bool) { return 0; }
inline void cp_async(unsigned shared_address, const void* pointer, unsigned bytes, bool valid, unsigned long long,
                     int line) {
  cp_async(shared_address, pointer, bytes, valid, line);
}
inline void cp_async_commit() { machine().cp_async_commit(); }
template <int pending>
void cp_async_wait() {
  machine().cp_async_wait(pending);
}

inline void block_barrier(int line) { machine().block_barrier(line); }
inline void warp_barrier(int line) { machine().warp_barrier(line); }
inline float shuffle_xor(float value, int mask, int line) {
  const unsigned bits = __builtin_bit_cast(unsigned, value);
  return __builtin_bit_cast(float, machine().shuffle_xor(bits, static_cast<unsigned>(mask), line));
}
inline bool any_lane(bool predicate, int line) { return machine().any_lane(predicate, line); }
// All lanes come, as to a vote. PTX does not say which one it is: hardware takes the first, here it is the last.
inline bool elect_lane(int line) { return any_lane(true, line) && lane_index() == warp_size - 1; }
inline int shuffle_from(int value, unsigned source, int line) {
  return static_cast<int>(machine().shuffle_from(static_cast<unsigned>(value), source, line));
}
inline float shuffle_from(float value, unsigned source, int line) {
  return __builtin_bit_cast(float, machine().shuffle_from(__builtin_bit_cast(unsigned, value), source, line));
}
template <unsigned lanes>
int shuffle_among(int value, unsigned source, int line) {
  return shuffle_from(value, lane_index() / lanes * lanes + source % lanes, line);
}
// A broadcast on a GPU too: lanes that have parted must not ask.
inline int sum_of_lanes(int value, int line) {
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    value += shuffle_from(value, lane_index() ^ distance, line);
  }
  return value;
}
inline int least_of_lanes(int value, int line) {
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    const int other = shuffle_from(value, lane_index() ^ distance, line);
    value = other < value ? other : value;
  }
  return value;
}
inline int greatest_of_lanes(int value, int line) { return ~least_of_lanes(~value, line); }

inline unsigned warp_index(int line) { return machine().shuffle_from(machine().thread_index() / warp_size, 0, line); }
inline int uniform(int value, int line) { return shuffle_from(value, 0, line); }

inline void ldmatrix(unsigned (&words)[4], unsigned address, int line) {
  machine().ldmatrix(words, address, false, line);
}
inline void ldmatrix_transposed(unsigned (&words)[4], unsigned address, int line) {
  machine().ldmatrix(words, address, true, line);
}
inline void store_matrices(unsigned address, const unsigned (&word)[4], int line) {
  machine().stmatrix(word, address, line);
}
template <Dtype dtype>
void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int line) {
  machine().mma(d, a, b0, b1, static_cast<int>(dtype), line);
}

inline void mbarrier_init(unsigned address, unsigned arrivals, int line) {
  machine().mbarrier_init(address, arrivals, line);
}
inline void mbarrier_fence(int line) { machine().mbarrier_fence(line); }
inline void mbarrier_arrive(unsigned address, int line) { machine().mbarrier_arrive(address, 0, line); }
inline void mbarrier_arrive_expect(unsigned address, unsigned bytes, int line) {
  machine().mbarrier_arrive(address, bytes, line);
}
inline void mbarrier_wait(unsigned address, unsigned parity, int line) {
  machine().mbarrier_wait(address, parity, line);
}
inline bool mbarrier_test(unsigned address, unsigned parity, int line) {
  return machine().mbarrier_test(address, parity, line);
}

inline void load_box(unsigned address, const AttuneTensorMap& map, unsigned barrier, int x, int y, int z, int w,
                     int line) {
  machine().load_box(address, &map, barrier, {.rank = 4, .x = {x, y, z, w, 0}}, line);
}
inline void load_box_5d(unsigned address, const AttuneTensorMap& map, unsigned barrier, int x, int y, int z, int w,
                        int v, int line) {
  machine().load_box(address, &map, barrier, {.rank = 5, .x = {x, y, z, w, v}}, line);
}
inline void load_bytes(unsigned address, const void* pointer, unsigned bytes, unsigned barrier, int line) {
  machine().load_bytes(address, pointer, bytes, barrier, line);
}
inline void add_bytes(float* pointer, unsigned address, unsigned bytes, int line) {
  machine().add_bytes(pointer, address, bytes, line);
}
inline void wait_boxes() { machine().wait_boxes(); }
inline void prefetch_map(const AttuneTensorMap&) {}
inline void store_box(const AttuneTensorMap& map, unsigned address, int x, int y, int z, int w, int line) {
  machine().store_box(&map, address, {.rank = 4, .x = {x, y, z, w, 0}}, line);
}
inline void store_box_5d(const AttuneTensorMap& map, unsigned address, int x, int y, int z, int w, int v, int line) {
  machine().store_box(&map, address, {.rank = 5, .x = {x, y, z, w, v}}, line);
}
inline void commit_boxes() { machine().commit_boxes(); }
inline void wait_boxes_read() { machine().wait_boxes_read(); }
inline void fence_for_copies() { machine().fence_for_copies(); }

inline void named_barrier_wait(unsigned id, unsigned threads, int line) {
  machine().named_barrier(id, threads, true, line);
}
inline bool named_barrier_any(unsigned id, unsigned threads, bool predicate, int line) {
  return machine().named_barrier_any(id, threads, predicate, line);
}
inline void named_barrier_announce(unsigned id, unsigned threads, int line) {
  machine().named_barrier(id, threads, false, line);
}

template <unsigned registers>
void take_registers(int line) {
  machine().take_registers(registers, line);
}
template <unsigned registers>
void give_registers(int line) {
  machine().give_registers(registers, line);
}

template <Dtype dtype, bool A_transposed, bool B_transposed, auto B_step, auto A_step, int first_step, int steps,
          int tiles>
void wgmma_of_shared(float (&D)[tiles][4], unsigned long long A, unsigned long long B, bool accumulate, int line) {
  for (int k = first_step; k < first_step + steps; ++k) {
    const bool add = accumulate || k > first_step;
    machine().wgmma({static_cast<int>(dtype), tiles * 8, D[0], nullptr, A + A_step(k), B + B_step(k), A_transposed,
                     B_transposed, add},
                    line);
  }
}
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps, int tiles>
void wgmma(float (&D)[tiles][4], unsigned long long A, unsigned long long B, bool accumulate, int line) {
  wgmma_of_shared<dtype, false, B_transposed, B_step, A_step, first_step, steps>(D, A, B, accumulate, line);
}
template <Dtype dtype, bool B_transposed, auto B_step, auto A_step, int first_step, int steps, int tiles>
void wgmma_transposed(float (&D)[tiles][4], unsigned long long A, unsigned long long B, bool accumulate, int line) {
  wgmma_of_shared<dtype, true, B_transposed, B_step, A_step, first_step, steps>(D, A, B, accumulate, line);
}
template <Dtype dtype, bool B_transposed, auto B_step, int tiles, int steps>
void wgmma(float (&D)[tiles][4], const unsigned (&A)[steps][4], unsigned long long B, bool accumulate, int line) {
  for (int k = 0; k < steps; ++k) {
    const bool add = accumulate || k > 0;
    machine().wgmma({static_cast<int>(dtype), tiles * 8, D[0], A[k], 0, B + B_step(k), false, B_transposed, add}, line);
  }
}
inline unsigned long long matrix_descriptor(unsigned address, unsigned leading_bytes) {
  constexpr unsigned long long stride_1024_bytes = 64;
  constexpr unsigned long long swizzle_128_bytes = 1;
  return (address & 0x3ffff) / 16 | static_cast<unsigned long long>(leading_bytes / 16 & 0x3fff) << 16 |
         stride_1024_bytes << 32 | swizzle_128_bytes << 62;
}
inline void wgmma_fence(int line) { machine().wgmma_fence(line); }
inline void wgmma_commit(int line) { machine().wgmma_commit(line); }
template <int pending>
void wgmma_wait(int line) {
  machine().wgmma_wait(pending, line);
}
template <int tiles>
void settle(float (&D)[tiles][4], int line) {
  machine().settle_registers(D[0], tiles * 4, line);
}

// The approximate instructions flush subnormal numbers to zero (.ftz).
inline float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126F ? __builtin_copysignf(0, x) : x; }

inline float minus_infinity() { return -__builtin_inff(); }
inline float exp2_approx(float x) { return flushed(__builtin_exp2f(flushed(x))); }
inline unsigned multiply_high(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}

inline float reciprocal_approx(float x) { return flushed(1 / flushed(x)); }
inline float log2_approx(float x) { return __builtin_log2f(flushed(x)); }
inline int highest_bit(unsigned x) { return 31 - __builtin_clz(x); }
inline float larger(float x, float y) { return __builtin_fmaxf(x, y); }
inline float larger_or_nan(float x, float y) { return x != x || y != y ? __builtin_nanf("") : __builtin_fmaxf(x, y); }
template <Dtype dtype>
unsigned pack(float low, float high) {
  const unsigned lower = machine().to_storage(static_cast<int>(dtype), low);
  return lower | static_cast<unsigned>(machine().to_storage(static_cast<int>(dtype), high)) << 16;
}

template <Dtype dtype>
float unpack_low(unsigned word) {
  return machine().from_storage(static_cast<int>(dtype), static_cast<unsigned short>(word));
}
template <Dtype dtype>
float unpack_high(unsigned word) {
  return unpack_low<dtype>(word >> 16);
}
template <Dtype dtype>
float rounded(float x) {
  return unpack_low<dtype>(pack<dtype>(x, 0.0f));
}

template <class Params>
void run_thread(void (*kernel)(Params), const void* params) {
  kernel(*static_cast<const Params*>(params));
}

// ATTUNE_KERNEL is the kernel's name.
extern "C" __attribute__((visibility("default"))) void attune_run_thread(attune::emulator::Machine& machine,
                                                                         const void* params) {
  current_machine() = &machine;
  run_thread(&ATTUNE_KERNEL, params);
}
