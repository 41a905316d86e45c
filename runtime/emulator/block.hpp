// One thread block (CTA): its threads as fibers, its warps, its barriers, its clocks.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/emulator/banks.hpp"
#include "runtime/emulator/clock.hpp"
#include "runtime/emulator/copies.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/emulator/fiber.hpp"
#include "runtime/emulator/fragments.hpp"
#include "runtime/emulator/global_memory.hpp"
#include "runtime/emulator/kernel/machine.hpp"
#include "runtime/emulator/shared_memory.hpp"
#include "runtime/random.hpp"

namespace attune::emulator {

/// Runs one kernel thread to its end (attune_run_thread of kernel/bodies.hpp).
using RunThread = void(Machine& machine, const void* params);

/// The stacks, clocks and memory of a block; runs one block after another of the same launch.
class Block final : public Machine {
 public:
  /// `global` is shared by the blocks of the launch.
  Block(const Launch& launch, RunThread* run_thread, GlobalMemory& global);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs the block of this number, x fastest. Returns what is wrong, with line and thread; "" when nothing is.
  std::string run(unsigned long long number);

  [[nodiscard]] const Banks& banks() const { return banks_; }

  // What the kernel calls.
  unsigned thread_index() const override { return current_->index; }
  Index block_index() const override { return block_; }
  Index grid_size() const override { return {launch_.grid.x, launch_.grid.y, launch_.grid.z}; }
  void load_shared(unsigned address, void* to, unsigned bytes, int line) override;
  void store_shared(unsigned address, const void* from, unsigned bytes, int line) override;
  void load_global(const void* pointer, void* to, unsigned bytes, int line) override;
  void store_global(void* pointer, const void* from, unsigned bytes, int line) override;
  void cp_async(unsigned address, const void* pointer, unsigned bytes, int line) override;
  void cp_async_commit() override;
  void cp_async_wait(unsigned pending) override;
  void block_barrier(int line) override;
  void warp_barrier(int line) override;
  unsigned shuffle_xor(unsigned value, unsigned mask, int line) override;
  bool any_lane(bool predicate, int line) override;
  void ldmatrix(unsigned (&words)[4], unsigned address, bool transposed, int line) override;
  void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int dtype, int line) override;
  unsigned short to_storage(int dtype, float value) const override;

 private:
  /// What a warp's lanes do together. The warp executes it once all its lanes have come.
  enum class Collective {
    block_barrier,
    warp_barrier,
    shuffle_xor,
    any_lane,
    ldmatrix,
    ldmatrix_transposed,
    mma_fp16,
    mma_bf16
  };
  static const char* name_of(Collective collective);

  struct Thread {
    enum class State { idle, ready, waiting };  ///< idle: not started, or over

    std::unique_ptr<Fiber> fiber;
    unsigned index = 0;
    State state = State::idle;
    Clock clock;
    std::uint32_t copy_groups = 0;  ///< committed
    // Where it waits, and what it brought along and gets.
    Collective collective = Collective::block_barrier;
    int line = 0;
    unsigned* words = nullptr;
    unsigned operand = 0;  ///< a value, a mask's partner or an address
    MmaOperands mma{};
  };

  struct Warp {
    unsigned first = 0;  ///< its first thread
    std::uint32_t ready = 0;
    std::uint32_t live = 0;
    bool at_block_barrier = false;
  };

  /// What is wrong, said where it was found.
  class Fault : public std::exception {
   public:
    explicit Fault(std::string text) : text_(std::move(text)) {}
    [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

   private:
    std::string text_;
  };
  /// Leaves a thread of a block that has failed.
  struct Cancelled {};

  [[noreturn]] void fail(const Thread& thread, int line, const std::string& what) const;
  [[nodiscard]] std::string earlier_text(const Epoch& epoch) const;
  [[nodiscard]] std::uint32_t copy_agent(const Thread& thread) const { return agents_of_threads_ + thread.index; }
  [[nodiscard]] Epoch epoch_of(const Thread& thread, int line) const {
    return {thread.index, thread.clock.at(thread.index), line};
  }
  void note_load(Thread& thread, unsigned address, unsigned bytes, int line);

  // Fibers.
  Fiber* live(Thread& thread);
  void begin(unsigned long long number);
  void cancel();

  // Who runs next.
  void wait_at(Collective collective, int line);
  Thread* next_thread();
  void settle(Warp& warp);
  bool release_block_barrier();
  void wake(Warp& warp);
  void require_same_collective(const Warp& warp) const;

  // What a complete warp does.
  void perform(Warp& warp, Collective collective);
  void synchronise(const std::vector<Thread*>& group);

  const Launch& launch_;
  RunThread* run_thread_;
  GlobalMemory& global_;
  std::uint32_t agents_of_threads_;
  SharedMemory shared_;
  Copies copies_;
  Banks banks_;
  Random random_{0};

  Index block_{};
  unsigned long long number_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Fiber home_;
  Thread* current_ = nullptr;
  bool cancelled_ = false;
  bool stopping_ = false;
  std::string fault_;
};

}  // namespace attune::emulator
