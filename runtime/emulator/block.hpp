// One thread block (CTA), or a cluster of several: its threads as fibers, its warps, its barriers, its clocks.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/emulator/announcements.hpp"
#include "runtime/emulator/banks.hpp"
#include "runtime/emulator/box_stores.hpp"
#include "runtime/emulator/bulk_copies.hpp"
#include "runtime/emulator/clock.hpp"
#include "runtime/emulator/copies.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/emulator/fiber.hpp"
#include "runtime/emulator/fragments.hpp"
#include "runtime/emulator/global_memory.hpp"
#include "runtime/emulator/kernel/machine.hpp"
#include "runtime/emulator/mbarrier.hpp"
#include "runtime/emulator/named_barriers.hpp"
#include "runtime/emulator/register_pool.hpp"
#include "runtime/emulator/shared_memory.hpp"
#include "runtime/emulator/warpgroup.hpp"

namespace attune::emulator {

/// Runs one kernel thread to its end (attune_run_thread of kernel/bodies.hpp).
using RunThread = void(Machine& machine, const void* params);

/// The stacks, clocks and memory of a block; runs one block after another of the same launch. Blocks of a cluster are
/// run together, as if they were one with a memory for each: what is said of a block here is said of its cluster, but
/// for the memory, the block barrier, and the numbers of threads that the kernel and messages see.
class Block final : public Machine {
 public:
  /// `global` and `announcements` are shared by the blocks of the launch.
  Block(const Launch& launch, RunThread* run_thread, GlobalMemory& global, Announcements& announcements);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs the cluster of this number, x fastest. Returns what is wrong, with line and thread; "" when nothing is.
  std::string run(unsigned long long number);

  [[nodiscard]] const Banks& banks() const { return banks_; }

  // What the kernel calls.
  unsigned thread_index() const override { return current_->in_block; }
  Index block_index() const override { return index_of(current_->rank); }
  Index grid_size() const override { return {launch_.grid.x, launch_.grid.y, launch_.grid.z}; }
  unsigned cluster_block() const override { return current_->rank; }
  unsigned cluster_blocks() const override { return launch_.grid.cluster; }
  void load_shared(unsigned address, void* to, unsigned bytes, int line) override;
  void store_shared(unsigned address, const void* from, unsigned bytes, int line) override;
  void load_global(const void* pointer, void* to, unsigned bytes, int line) override;
  void store_global(void* pointer, const void* from, unsigned bytes, int line) override;
  void add_global(float* pointer, float value, int line) override;
  int count_global(int* counter, int line) override;
  void announce_word(void* place, unsigned long long word, int line) override;
  void await_word(const void* place, unsigned long long word, int line) override;
  void cp_async(unsigned address, const void* pointer, unsigned bytes, int line) override;
  void cp_async_commit() override;
  void cp_async_wait(unsigned pending) override;
  void block_barrier(int line) override;
  void cluster_barrier(int line) override;
  void load_cluster(unsigned address, unsigned block, void* to, unsigned bytes, int line) override;
  void warp_barrier(int line) override;
  unsigned shuffle_xor(unsigned value, unsigned mask, int line) override;
  unsigned shuffle_from(unsigned value, unsigned source, int line) override;
  bool any_lane(bool predicate, int line) override;
  void ldmatrix(unsigned (&words)[4], unsigned address, bool transposed, int line) override;
  void stmatrix(const unsigned (&words)[4], unsigned address, int line) override;
  void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int dtype, int line) override;
  void mbarrier_init(unsigned address, unsigned arrivals, int line) override;
  void mbarrier_fence(int line) override;
  void mbarrier_arrive(unsigned address, unsigned expected_bytes, int line) override;
  void mbarrier_wait(unsigned address, unsigned parity, int line) override;
  bool mbarrier_test(unsigned address, unsigned parity, int line) override;
  void load_box(unsigned address, const void* map, unsigned barrier, const Corner& at, int line) override;
  void load_bytes(unsigned address, const void* pointer, unsigned bytes, unsigned barrier, int line) override;
  void store_box(const void* map, unsigned address, const Corner& at, int line) override;
  void add_bytes(float* pointer, unsigned address, unsigned bytes, int line) override;
  void commit_boxes() override;
  void wait_boxes_read() override;
  void wait_boxes() override;
  void fence_for_copies() override;
  void named_barrier(unsigned id, unsigned threads, bool wait, int line) override;
  bool named_barrier_any(unsigned id, unsigned threads, bool predicate, int line) override;
  void take_registers(unsigned registers, int line) override;
  void give_registers(unsigned registers, int line) override;
  void wgmma(const Wgmma& operands, int line) override;
  void wgmma_fence(int line) override;
  void wgmma_commit(int line) override;
  void wgmma_wait(unsigned pending, int line) override;
  void settle_registers(float* registers, unsigned count, int line) override;
  unsigned short to_storage(int dtype, float value) const override;
  float from_storage(int dtype, unsigned short bits) const override;

 private:
  /// What a warp's lanes do together. The warp executes it once all its lanes have come. A thread waits for an mbarrier
  /// or a word by itself.
  enum class Collective {
    block_barrier,
    cluster_barrier,
    warp_barrier,
    shuffle_xor,
    shuffle_from,
    any_lane,
    ldmatrix,
    ldmatrix_transposed,
    stmatrix,
    mma_fp16,
    mma_bf16,
    // Not in clusters of more than one block, from here on.
    mbarrier_wait,
    await_word,
    named_barrier_wait,
    named_barrier_announce,
    named_barrier_any,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    // By whole warpgroups.
    wgmma,
    take_registers,
    give_registers
  };
  static const char* name_of(Collective collective);
  static bool is_barrier(Collective collective);

  struct Thread {
    enum class State { idle, ready, waiting };  ///< idle: not started, or over

    std::unique_ptr<Fiber> fiber;
    unsigned index = 0;     ///< in the cluster
    unsigned rank = 0;      ///< its block's, in the cluster
    unsigned in_block = 0;  ///< its index there
    State state = State::idle;
    Clock clock;
    std::uint32_t copy_agent = 0;               ///< 0: it has issued no copy
    std::uint32_t copy_groups = 0;              ///< committed
    std::uint32_t box_agent = 0;                ///< 0: it has stored no box
    std::uint32_t box_groups = 0;               ///< committed
    std::map<unsigned long long, Clock> heard;  ///< of other blocks, by number
    std::vector<Epoch> cluster_reads;           ///< the last of each block's memory, by rank
    // Where it waits, and what it brought along and gets.
    Collective collective = Collective::block_barrier;
    int line = 0;
    unsigned* words = nullptr;
    const unsigned* source = nullptr;  ///< of stmatrix
    unsigned operand = 0;              ///< a value, a mask's partner, an address or a number
    unsigned threads = 0;              ///< of a named barrier
    const void* place = nullptr;       ///< of a word ...
    unsigned long long word = 0;       ///< ... and what it should be
    MmaOperands mma{};
    Wgmma wgmma{};
  };

  /// Where a complete warp waits for others.
  enum class Parked { no, block_barrier, cluster_barrier, named_barrier, warpgroup };

  struct Warp {
    unsigned first = 0;  ///< its first thread
    std::uint32_t ready = 0;
    std::uint32_t live = 0;
    std::uint32_t apart = 0;  ///< lanes that wait by themselves
    Parked parked = Parked::no;
    std::uint32_t product_agent = 0;  ///< of what its wgmma read; 0: none yet
  };

  /// Who makes accesses in an order of its own, besides the threads.
  struct Agent {
    enum class Kind { thread, copies, products, boxes, box_stores };
    Kind kind = Kind::thread;
    unsigned owner = 0;  ///< the thread of copies or stores, the warp of products, the mbarrier's address of boxes
  };

  /// A warpgroup and what all its threads know.
  struct Group {
    Warpgroup products;
    Clock common;
    std::uint64_t changes = 0;  ///< of the threads' clocks, when `common` was made
    bool wants_registers = false;
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
  void require(const Thread& thread, int line, const std::optional<std::string>& problem) const;
  void require(const Thread& thread, int line, const std::optional<SharedMemory::Problem>& problem) const;
  [[nodiscard]] std::string earlier_text(const SharedMemory::Problem& problem) const;
  [[nodiscard]] Epoch epoch_of(const Thread& thread, int line) const {
    return {thread.index, thread.clock.at(thread.index), line};
  }
  std::uint32_t add_agent(Agent::Kind kind, unsigned owner);
  [[nodiscard]] Access access_of(const Thread& thread, const Epoch& epoch) const {
    return {number_, &thread.clock, epoch, &thread.heard, launch_.grid.cluster == 1 ? "this block" : "this cluster"};
  }
  SharedMemory& memory_of(const Thread& thread) { return shared_[thread.rank]; }
  /// Of bulk copies and products, which are not for clusters of several blocks.
  SharedMemory& only_memory() { return shared_.front(); }
  void note_load(Thread& thread, unsigned address, unsigned bytes, int line);
  void note_store(Thread& thread, unsigned address, unsigned bytes, int line);

  // Fibers.
  Fiber* live(Thread& thread);
  void begin(unsigned long long number);
  void cancel();

  // Who runs next.
  void wait_at(Collective collective, int line);
  void leave();
  Thread* next_thread();
  void settle(Warp& warp);
  void tick();
  bool release_barriers();
  bool release(std::span<Warp> warps, Parked place);
  bool hear_words();
  void wake(Warp& warp);
  void go_on(Thread& thread);
  void require_same_collective(const Warp& warp) const;
  [[nodiscard]] bool finished() const;
  [[noreturn]] void report_deadlock();
  [[nodiscard]] std::string waiting_text(const Thread& thread);

  // Clusters.
  [[nodiscard]] Index index_of(unsigned rank) const { return {first_.x, first_.y + rank, first_.z}; }
  [[nodiscard]] std::string block_text(unsigned rank) const;
  [[nodiscard]] std::string number_of(const Thread& thread) const;
  void require_no_cluster(const char* what, int line) const;
  void require_reads_before_ends() const;

  // What a complete warp does.
  void perform(Warp& warp, Collective collective);
  void synchronise(const std::vector<Thread*>& group);
  std::vector<Thread*> live_lanes(const Warp& warp);
  static void advance(Thread& thread);

  // Asynchronous instructions.
  Mbarrier& mbarrier_at(unsigned address, int line);
  void end_phase_if_complete(Mbarrier& barrier, const Thread& thread, int line);
  static void learn(Thread& thread, const Mbarrier& barrier);
  Box box_at(const void* map, unsigned address, const Corner& at, int line);
  void require_bulk_pieces(const void* pointer, unsigned address, unsigned bytes, int line);
  Mbarrier& copy_barrier(unsigned address, int line);
  void issue(const BulkCopy& copy, Mbarrier& barrier, const Epoch& epoch);
  void land(const BulkCopy& copy);
  void require_nothing_left() const;
  void come_to_named_barrier(Warp& warp, Collective collective);
  void come_to_warpgroup(Warp& warp);
  void perform(unsigned group, Collective collective);
  void multiply(unsigned group);
  void note_operand(const std::vector<unsigned>& addresses, unsigned group, unsigned first_warp, unsigned last_warp,
                    int line);
  void change_registers(unsigned group);
  void perform_wgmma_wait(const Warp& warp);
  Warpgroup& products_of(const Warp& warp) { return groups_[warp.first / warpgroup_threads].products; }
  static unsigned warp_in_group(const Warp& warp) { return warp.first / warp_size % warpgroup_warps; }
  void require(unsigned group, int line, const std::optional<Warpgroup::Problem>& problem) const;
  const Clock& common_knowledge(unsigned group);

  const Launch& launch_;
  RunThread* run_thread_;
  GlobalMemory& global_;
  Announcements& announcements_;
  std::vector<SharedMemory> shared_;  ///< of each block
  Copies copies_;
  BulkCopies bulk_copies_;
  BoxStores box_stores_;
  Mbarriers mbarriers_;
  NamedBarriers named_barriers_;
  RegisterPool registers_;
  Banks banks_;
  Random random_{0};

  Index first_{};  ///< the cluster's first block
  unsigned long long number_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Group> groups_;
  std::vector<Agent> agents_;
  Fiber home_;
  Thread* current_ = nullptr;
  bool cancelled_ = false;
  bool stopping_ = false;
  std::string fault_;
};

}  // namespace attune::emulator
