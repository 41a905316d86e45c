#include "runtime/emulator/block.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "runtime/reference.hpp"

namespace attune::emulator {

Block::Block(const Launch& launch, RunThread* run_thread, GlobalMemory& global)
    : launch_(launch),
      run_thread_(run_thread),
      global_(global),
      agents_of_threads_(static_cast<std::uint32_t>(launch.threads)),
      shared_(static_cast<std::size_t>(launch.shared_bytes)),
      copies_(static_cast<std::size_t>(launch.threads)),
      banks_(static_cast<std::size_t>(launch.threads) / warp_size),
      threads_(static_cast<std::size_t>(launch.threads)),
      warps_(static_cast<std::size_t>(launch.threads) / warp_size) {
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].index = i;
    threads_[i].fiber = std::make_unique<Fiber>([this, i] { return live(threads_[i]); });
  }
}

Block::~Block() {
  stopping_ = true;
  for (Thread& thread : threads_) home_.switch_to(*thread.fiber);
}

/// The life of a fiber: one thread of each block, one after the other.
Fiber* Block::live(Thread& thread) {
  while (!stopping_) {
    try {
      thread.state = Thread::State::ready;
      if (cancelled_) throw Cancelled{};
      run_thread_(*this, launch_.params);
    } catch (const Cancelled&) {  // its block has failed already
    } catch (const std::exception& error) {
      fault_ = error.what();
    }
    Warp& warp = warps_[thread.index / warp_size];
    warp.ready &= ~(1U << thread.index % warp_size);
    warp.live &= ~(1U << thread.index % warp_size);
    thread.state = Thread::State::idle;
    Thread* next = nullptr;
    try {
      if (fault_.empty()) next = next_thread();
    } catch (const Fault& fault) {
      fault_ = fault.what();
    }
    current_ = next;
    thread.fiber->switch_to(next != nullptr ? *next->fiber : home_);
  }
  return &home_;
}

void Block::begin(unsigned long long number) {
  number_ = number;
  const Grid& grid = launch_.grid;
  block_ = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
            static_cast<unsigned>(number / grid.x / grid.y)};
  Random seeds(launch_.seed ^ number * 0x9e3779b97f4a7c15U);
  random_ = Random(seeds());
  copies_.reset(seeds());
  shared_.reset();
  cancelled_ = false;
  fault_.clear();
  // Before its first barrier a thread knows of its own accesses alone.
  for (Thread& thread : threads_) {
    thread.clock = Clock(2 * std::size_t{agents_of_threads_});
    thread.clock.set(thread.index, 1);
    thread.copy_groups = 0;
  }
  for (unsigned w = 0; w < warps_.size(); ++w) warps_[w] = {w * warp_size, ~0U, ~0U, false};
}

std::string Block::run(unsigned long long number) {
  begin(number);
  current_ = &threads_[warps_[random_.below(warps_.size())].first];
  home_.switch_to(*current_->fiber);
  if (!fault_.empty()) cancel();
  return fault_;
}

/// Takes the threads of a failed block off their stacks.
void Block::cancel() {
  cancelled_ = true;
  for (Thread& thread : threads_) {
    if (thread.state == Thread::State::idle) continue;
    current_ = &thread;
    home_.switch_to(*thread.fiber);
  }
}

void Block::fail(const Thread& thread, int line, const std::string& what) const {
  throw Fault(fmt::format("line {}, block ({}, {}, {}), thread {} (warp {}, lane {}): {}", line, block_.x, block_.y,
                          block_.z, thread.index, thread.index / warp_size, thread.index % warp_size, what));
}

std::string Block::earlier_text(const Epoch& epoch) const {
  if (!epoch.exists()) return {};
  if (epoch.agent < agents_of_threads_) {
    return fmt::format(" by thread {} in line {}: no barrier orders the two", epoch.agent, epoch.line);
  }
  return fmt::format(
      " by the asynchronous copy that thread {} issued in line {}: no wait, or no barrier behind it, "
      "orders the two",
      epoch.agent - agents_of_threads_, epoch.line);
}

// --- who runs next ---------------------------------------------------------------------------------------------------

/// The current thread waits until its warp, or its block, has done this together.
void Block::wait_at(Collective collective, int line) {
  Thread& self = *current_;
  self.state = Thread::State::waiting;
  self.collective = collective;
  self.line = line;
  warps_[self.index / warp_size].ready &= ~(1U << self.index % warp_size);
  // Whoever switches here has made this thread ready, or cancels it.
  Thread* next = next_thread();
  if (next != &self) {
    current_ = next;
    self.fiber->switch_to(*next->fiber);
    if (cancelled_) throw Cancelled{};
  }
}

/// A ready thread: of the current warp while there is one, so that lanes go from collective to collective together;
/// null when the block is done.
Block::Thread* Block::next_thread() {
  Warp* warp = &warps_[current_->index / warp_size];
  if (warp->ready == 0) settle(*warp);
  if (warp->ready == 0) {
    const auto start = random_.below(warps_.size());
    const auto find = [&] {
      for (std::size_t i = 0; i < warps_.size(); ++i) {
        Warp& candidate = warps_[(start + i) % warps_.size()];
        if (candidate.ready != 0) return &candidate;
      }
      return static_cast<Warp*>(nullptr);
    };
    warp = find();
    if (warp == nullptr && release_block_barrier()) warp = find();
    if (warp == nullptr) return nullptr;
  }
  const unsigned lane = current_->index % warp_size;
  const std::uint32_t rotated = std::rotr(warp->ready, static_cast<int>(lane));
  return &threads_[warp->first + (lane + static_cast<unsigned>(std::countr_zero(rotated))) % warp_size];
}

/// No lane of the warp can go on by itself: it does what all its lanes have come to.
void Block::settle(Warp& warp) {
  if (launch_.count_banks) banks_.close(warp.first / warp_size);
  if (warp.live == 0 || warp.at_block_barrier) return;
  require_same_collective(warp);
  copies_.tick(shared_);
  const Collective collective = threads_[warp.first + static_cast<unsigned>(std::countr_zero(warp.live))].collective;
  if (collective == Collective::block_barrier) {
    warp.at_block_barrier = true;
  } else {
    perform(warp, collective);
    wake(warp);
  }
}

/// Every lane must have come to the same instruction: these are ".aligned", and lanes that have ended are only allowed
/// to be missing at barriers.
void Block::require_same_collective(const Warp& warp) const {
  const Thread& first = threads_[warp.first + static_cast<unsigned>(std::countr_zero(warp.live))];
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const Thread& thread = threads_[warp.first + lane];
    const char* self = name_of(first.collective);
    if ((warp.live >> lane & 1) == 0) {
      if (first.collective == Collective::block_barrier || first.collective == Collective::warp_barrier) continue;
      fail(first, first.line, fmt::format("{} waits for thread {}, which has ended", self, thread.index));
    }
    if (thread.line == first.line && thread.collective == first.collective) continue;
    fail(first, first.line,
         fmt::format("{} waits for thread {} of the same warp, which waits at {} in line {}", self, thread.index,
                     name_of(thread.collective), thread.line));
  }
}

void Block::wake(Warp& warp) {
  warp.ready = warp.live;
  warp.at_block_barrier = false;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((warp.live >> lane & 1) != 0) threads_[warp.first + lane].state = Thread::State::ready;
  }
}

/// Whether any thread waited there. Threads that have ended are not waited for.
bool Block::release_block_barrier() {
  std::vector<Thread*> group;
  for (const Warp& warp : warps_) {
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      if ((warp.live >> lane & 1) != 0) group.push_back(&threads_[warp.first + lane]);
    }
  }
  if (group.empty()) return false;
  synchronise(group);
  for (Warp& warp : warps_) wake(warp);
  return true;
}

/// What any of them did before, all know from now on.
void Block::synchronise(const std::vector<Thread*>& group) {
  Clock joint = group.front()->clock;
  for (const Thread* thread : group) joint.join(thread->clock);
  for (Thread* thread : group) {
    thread->clock = joint;
    thread->clock.set(thread->index, joint.at(thread->index) + 1);
  }
}

// --- memory ----------------------------------------------------------------------------------------------------------

void Block::note_load(Thread& thread, unsigned address, unsigned bytes, int line) {
  if (const auto problem = shared_.note_load(address, bytes, thread.clock, epoch_of(thread, line))) {
    fail(thread, line, problem->text + earlier_text(problem->earlier));
  }
  if (launch_.count_banks) banks_.note(thread.index / warp_size, thread.index % warp_size, line, address, bytes);
}

void Block::load_shared(unsigned address, void* to, unsigned bytes, int line) {
  note_load(*current_, address, bytes, line);
  std::memcpy(to, shared_.at(address), bytes);
}

void Block::store_shared(unsigned address, const void* from, unsigned bytes, int line) {
  const Thread& self = *current_;
  if (const auto problem = shared_.note_store(address, bytes, self.clock, epoch_of(self, line))) {
    fail(self, line, problem->text + earlier_text(problem->earlier));
  }
  if (launch_.count_banks) banks_.note(self.index / warp_size, self.index % warp_size, line, address, bytes);
  std::memcpy(shared_.at(address), from, bytes);
}

void Block::load_global(const void* pointer, void* to, unsigned bytes, int line) {
  const Thread& self = *current_;
  if (const auto problem = global_.check_load(pointer, bytes, {number_, &self.clock, epoch_of(self, line)})) {
    fail(self, line, *problem);
  }
  std::memcpy(to, pointer, bytes);
}

void Block::store_global(void* pointer, const void* from, unsigned bytes, int line) {
  const Thread& self = *current_;
  if (const auto problem = global_.check_store(pointer, bytes, {number_, &self.clock, epoch_of(self, line)})) {
    fail(self, line, *problem);
  }
  std::memcpy(pointer, from, bytes);
}

void Block::cp_async(unsigned address, const void* pointer, unsigned bytes, int line) {
  const Thread& self = *current_;
  const Epoch epoch{copy_agent(self), self.copy_groups + 1, line};
  if (const auto problem = shared_.note_store(address, bytes, self.clock, epoch)) {
    fail(self, line, problem->text + earlier_text(problem->earlier));
  }
  if (pointer != nullptr) {
    if (const auto problem = global_.check_load(pointer, bytes, {number_, &self.clock, epoch})) {
      fail(self, line, *problem);
    }
  }
  if (launch_.count_banks) banks_.note(self.index / warp_size, self.index % warp_size, line, address, bytes);
  copies_.issue(self.index, epoch.time, address, pointer, bytes);
}

void Block::cp_async_commit() { ++current_->copy_groups; }

void Block::cp_async_wait(unsigned pending) {
  Thread& self = *current_;
  if (self.copy_groups <= pending) return;
  const std::uint32_t landed = self.copy_groups - pending;
  copies_.finish(self.index, landed, shared_);
  self.clock.set(copy_agent(self), landed);
}

// --- collectives -----------------------------------------------------------------------------------------------------

const char* Block::name_of(Collective collective) {
  switch (collective) {
    case Collective::block_barrier:
      return "block_barrier";
    case Collective::warp_barrier:
      return "warp_barrier";
    case Collective::shuffle_xor:
      return "shuffle_xor";
    case Collective::any_lane:
      return "any_lane";
    case Collective::ldmatrix:
    case Collective::ldmatrix_transposed:
      return "ldmatrix";
    case Collective::mma_fp16:
    case Collective::mma_bf16:
      return "mma";
  }
  return "?";
}

void Block::block_barrier(int line) { wait_at(Collective::block_barrier, line); }

void Block::warp_barrier(int line) { wait_at(Collective::warp_barrier, line); }

unsigned Block::shuffle_xor(unsigned value, unsigned mask, int line) {
  unsigned words[2] = {value, 0};
  current_->words = words;
  current_->operand = mask;
  wait_at(Collective::shuffle_xor, line);
  return words[1];
}

bool Block::any_lane(bool predicate, int line) {
  unsigned answer = predicate ? 1 : 0;
  current_->words = &answer;
  wait_at(Collective::any_lane, line);
  return answer != 0;
}

void Block::ldmatrix(unsigned (&words)[4], unsigned address, bool transposed, int line) {
  current_->words = words;
  current_->operand = address;
  wait_at(transposed ? Collective::ldmatrix_transposed : Collective::ldmatrix, line);
}

void Block::mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int dtype, int line) {
  current_->mma = {&d, &a, {b0, b1}};
  wait_at(static_cast<Dtype>(dtype) == Dtype::fp16 ? Collective::mma_fp16 : Collective::mma_bf16, line);
}

unsigned short Block::to_storage(int dtype, float value) const {
  return attune::to_storage(static_cast<Dtype>(dtype), value);
}

void Block::perform(Warp& warp, Collective collective) {
  Thread* const lanes = &threads_[warp.first];
  switch (collective) {
    case Collective::block_barrier:
      break;  // settle() keeps the warp there
    case Collective::warp_barrier: {
      std::vector<Thread*> group;
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        if ((warp.live >> lane & 1) != 0) group.push_back(&lanes[lane]);
      }
      synchronise(group);
      break;
    }
    case Collective::shuffle_xor:
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        lanes[lane].words[1] = lanes[(lane ^ lanes[lane].operand) % warp_size].words[0];
      }
      break;
    case Collective::any_lane: {
      unsigned any = 0;
      for (unsigned lane = 0; lane < warp_size; ++lane) any |= lanes[lane].words[0];
      for (unsigned lane = 0; lane < warp_size; ++lane) lanes[lane].words[0] = any;
      break;
    }
    case Collective::ldmatrix:
    case Collective::ldmatrix_transposed: {
      constexpr unsigned row_bytes = 16;
      Lanes<const std::byte*> rows{};
      Lanes<std::uint32_t*> words{};
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        note_load(lanes[lane], lanes[lane].operand, row_bytes, lanes[lane].line);
        rows[lane] = shared_.at(lanes[lane].operand);
        words[lane] = lanes[lane].words;
      }
      if (launch_.count_banks) banks_.close(warp.first / warp_size);
      emulator::ldmatrix(rows, collective == Collective::ldmatrix_transposed, words);
      break;
    }
    case Collective::mma_fp16:
    case Collective::mma_bf16: {
      Lanes<const MmaOperands*> operands{};
      for (unsigned lane = 0; lane < warp_size; ++lane) operands[lane] = &lanes[lane].mma;
      emulator::mma(collective == Collective::mma_fp16 ? Dtype::fp16 : Dtype::bf16, operands);
      break;
    }
  }
}

}  // namespace attune::emulator
