// What an emulated kernel asks of the machine that runs it. This file is compiled twice: with Attune, whose Block
// implements it, and with each emulated kernel, whose instructions (bodies.hpp) call it. `line` is always the line of
// the emitted source that called the instruction.
#pragma once

namespace attune::emulator {

/// Where a block's shared memory starts. Aligned as templates/ptx/memory.cuh promises and no better, so that a kernel
/// that relies on more is found out.
constexpr unsigned shared_base = 512;

/// One thread's operands of a wgmma, D += A B or D = A B.
struct Wgmma {
  int dtype;                ///< Dtype
  unsigned columns;         ///< of B and D
  float* D;                 ///< columns / 2 registers
  const unsigned* A_words;  ///< four registers; null: A is in shared memory
  unsigned long long A;     ///< descriptor
  unsigned long long B;     ///< descriptor
  bool A_transposed;        ///< of A in shared memory: its rows are consecutive ("MN-major")
  bool B_transposed;        ///< its columns are consecutive ("MN-major"), not its rows
  bool accumulate;
};

/// The coordinates of a box's first element, innermost dimension first; `rank` of them.
struct Corner {
  unsigned rank;
  int x[5];
};

class Machine {
 public:
  struct Index {
    unsigned x, y, z;
  };

  virtual unsigned thread_index() const = 0;
  virtual Index block_index() const = 0;
  virtual Index grid_size() const = 0;
  /// The block's number in its cluster, and the cluster's blocks.
  virtual unsigned cluster_block() const = 0;
  virtual unsigned cluster_blocks() const = 0;

  virtual void load_shared(unsigned address, void* to, unsigned bytes, int line) = 0;
  virtual void store_shared(unsigned address, const void* from, unsigned bytes, int line) = 0;
  virtual void load_global(const void* pointer, void* to, unsigned bytes, int line) = 0;
  virtual void store_global(void* pointer, const void* from, unsigned bytes, int line) = 0;
  virtual void add_global(float* pointer, float value, int line) = 0;
  virtual int count_global(int* counter, int line) = 0;

  /// Words of 8 bytes in global memory.
  virtual void announce_word(void* place, unsigned long long word, int line) = 0;
  virtual void await_word(const void* place, unsigned long long word, int line) = 0;

  /// Writes 16 bytes: as many as are copied, at most 16, then zeros. Of none the pointer is not looked at.
  virtual void cp_async(unsigned address, const void* pointer, unsigned bytes, int line) = 0;
  virtual void cp_async_commit() = 0;
  virtual void cp_async_wait(unsigned pending) = 0;

  virtual void block_barrier(int line) = 0;
  virtual void cluster_barrier(int line) = 0;
  /// From the shared memory of the cluster's block of that number.
  virtual void load_cluster(unsigned address, unsigned block, void* to, unsigned bytes, int line) = 0;
  virtual void warp_barrier(int line) = 0;
  virtual unsigned shuffle_xor(unsigned value, unsigned mask, int line) = 0;
  virtual unsigned shuffle_from(unsigned value, unsigned source, int line) = 0;
  virtual bool any_lane(bool predicate, int line) = 0;
  virtual void ldmatrix(unsigned (&words)[4], unsigned address, bool transposed, int line) = 0;
  virtual void stmatrix(const unsigned (&words)[4], unsigned address, int line) = 0;
  virtual void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int dtype, int line) = 0;

  virtual void mbarrier_init(unsigned address, unsigned arrivals, int line) = 0;
  virtual void mbarrier_fence(int line) = 0;
  virtual void mbarrier_arrive(unsigned address, unsigned expected_bytes, int line) = 0;
  virtual void mbarrier_wait(unsigned address, unsigned parity, int line) = 0;
  /// Whether the phase is over; who is told so has waited for it.
  virtual bool mbarrier_test(unsigned address, unsigned parity, int line) = 0;
  /// `map` points to the bytes of an AttuneTensorMap.
  virtual void load_box(unsigned address, const void* map, unsigned barrier, const Corner& at, int line) = 0;
  virtual void load_bytes(unsigned address, const void* pointer, unsigned bytes, unsigned barrier, int line) = 0;
  virtual void add_bytes(float* pointer, unsigned address, unsigned bytes, int line) = 0;
  virtual void store_box(const void* map, unsigned address, const Corner& at, int line) = 0;
  virtual void commit_boxes() = 0;
  virtual void wait_boxes_read() = 0;
  virtual void wait_boxes() = 0;
  virtual void fence_for_copies() = 0;
  /// A thread that does not wait only announces itself.
  virtual void named_barrier(unsigned id, unsigned threads, bool wait, int line) = 0;
  /// Waits, too; whether any of those who came has said so.
  virtual bool named_barrier_any(unsigned id, unsigned threads, bool predicate, int line) = 0;
  virtual void take_registers(unsigned registers, int line) = 0;
  virtual void give_registers(unsigned registers, int line) = 0;

  virtual void wgmma(const Wgmma& operands, int line) = 0;
  virtual void wgmma_fence(int line) = 0;
  virtual void wgmma_commit(int line) = 0;
  virtual void wgmma_wait(unsigned pending, int line) = 0;
  /// The registers of a D get what products made of them.
  virtual void settle_registers(float* registers, unsigned count, int line) = 0;

  /// A float rounded to nearest even in a storage type (Dtype).
  virtual unsigned short to_storage(int dtype, float value) const = 0;
  virtual float from_storage(int dtype, unsigned short bits) const = 0;

 protected:
  ~Machine() = default;
};

}  // namespace attune::emulator
