// What outlives the instruction that starts it, or waits for others than the own warp: mbarriers, named barriers,
// products of a warpgroup, registers.
#include <fmt/format.h>

#include "runtime/emulator/block.hpp"
#include "runtime/emulator/matrix_descriptor.hpp"
#include "runtime/emulator/tensor_map.hpp"

namespace attune::emulator {

// --- mbarriers -------------------------------------------------------------------------------------------------------

void Block::mbarrier_init(unsigned address, unsigned arrivals, int line) {
  constexpr unsigned object_bytes = 8;
  require_no_cluster("mbarrier_init", line);
  Thread& self = *current_;
  const Epoch epoch = epoch_of(self, line);
  require(self, line, mbarriers_.init(address, arrivals, epoch, add_agent(Agent::Kind::boxes, address)));
  require(self, line, only_memory().note_store(address, object_bytes, self.clock, epoch));
}

void Block::mbarrier_fence(int line) { mbarriers_.fence(epoch_of(*current_, line)); }

/// The barrier at the address, which the current thread may use.
Mbarrier& Block::mbarrier_at(unsigned address, int line) {
  require(*current_, line, mbarriers_.misuse(address, current_->clock));
  return mbarriers_.at(address);
}

void Block::mbarrier_arrive(unsigned address, unsigned expected_bytes, int line) {
  Thread& self = *current_;
  Mbarrier& barrier = mbarrier_at(address, line);
  require(self, line, barrier.arrive(expected_bytes, self.clock));
  advance(self);
  end_phase_if_complete(barrier, self, line);
}

bool Block::mbarrier_test(unsigned address, unsigned parity, int line) {
  Thread& self = *current_;
  Mbarrier& barrier = mbarrier_at(address, line);
  if (parity > 1) fail(self, line, fmt::format("a phase's parity is 0 or 1, not {}", parity));
  if (!barrier.is_over(parity)) return false;
  learn(self, barrier);
  barrier.seen = barrier.phase;
  return true;
}

void Block::mbarrier_wait(unsigned address, unsigned parity, int line) {
  if (mbarrier_test(address, parity, line)) return;
  Thread& self = *current_;
  Mbarrier& barrier = mbarrier_at(address, line);
  barrier.waiting.push_back(self.index);
  self.operand = address;
  warps_[self.index / warp_size].apart |= 1U << self.index % warp_size;
  wait_at(Collective::mbarrier_wait, line);
  std::erase(barrier.unseen, self.index);
}

/// The thread has seen the end of the last phase.
void Block::learn(Thread& thread, const Mbarrier& barrier) {
  if (barrier.phase == 0) return;
  thread.clock.join(barrier.over);
  thread.clock.set(barrier.agent, barrier.phase);
}

void Block::end_phase_if_complete(Mbarrier& barrier, const Thread& thread, int line) {
  if (!barrier.complete()) return;
  require(thread, line, barrier.advance());
  for (const unsigned index : barrier.waiting) {
    Thread& waiter = threads_[index];
    learn(waiter, barrier);
    go_on(waiter);
    barrier.seen = barrier.phase;
  }
  barrier.unseen.swap(barrier.waiting);
  barrier.waiting.clear();
}

// --- named barriers --------------------------------------------------------------------------------------------------

void Block::named_barrier(unsigned id, unsigned threads, bool wait, int line) {
  current_->operand = id;
  current_->threads = threads;
  wait_at(wait ? Collective::named_barrier_wait : Collective::named_barrier_announce, line);
}

bool Block::named_barrier_any(unsigned id, unsigned threads, bool predicate, int line) {
  unsigned answer = predicate ? 1 : 0;
  current_->operand = id;
  current_->threads = threads;
  current_->words = &answer;
  wait_at(Collective::named_barrier_any, line);
  return answer != 0;
}

void Block::come_to_named_barrier(Warp& warp, Collective collective) {
  const bool votes = collective == Collective::named_barrier_any;
  const std::vector<Thread*> lanes = live_lanes(warp);
  const Thread& first = *lanes.front();
  for (const Thread* thread : lanes) {
    if (thread->operand == first.operand && thread->threads == first.threads) continue;
    fail(*thread, thread->line,
         fmt::format("comes to barrier {} of {} threads, and lane {} of its warp to {} of {}", thread->operand,
                     thread->threads, first.index % warp_size, first.operand, first.threads));
  }
  require(first, first.line,
          named_barriers_.arrive(first.operand, warp.first / warp_size, first.threads,
                                 static_cast<unsigned>(threads_.size()), votes, first.line));
  NamedBarriers::Barrier& barrier = named_barriers_.at(first.operand);
  for (Thread* thread : lanes) {
    barrier.joint.join(thread->clock);
    if (votes) barrier.any |= thread->words[0] != 0;
    advance(*thread);
  }
  if (collective != Collective::named_barrier_announce) {
    warp.parked = Parked::named_barrier;
    barrier.waiting.push_back(warp.first / warp_size);
  } else {
    wake(warp);
  }
  if (!barrier.complete()) return;
  for (const unsigned index : barrier.waiting) {
    for (Thread* thread : live_lanes(warps_[index])) {
      thread->clock.join(barrier.joint);
      if (votes) thread->words[0] = barrier.any ? 1 : 0;
      advance(*thread);
    }
    wake(warps_[index]);
  }
  named_barriers_.finish(first.operand);
}

// --- warpgroups ------------------------------------------------------------------------------------------------------

void Block::wgmma(const Wgmma& operands, int line) {
  current_->wgmma = operands;
  wait_at(Collective::wgmma, line);
}

void Block::wgmma_fence(int line) { wait_at(Collective::wgmma_fence, line); }

void Block::wgmma_commit(int line) { wait_at(Collective::wgmma_commit, line); }

void Block::wgmma_wait(unsigned pending, int line) {
  current_->operand = pending;
  wait_at(Collective::wgmma_wait, line);
}

void Block::take_registers(unsigned registers, int line) {
  current_->operand = registers;
  wait_at(Collective::take_registers, line);
}

void Block::give_registers(unsigned registers, int line) {
  current_->operand = registers;
  wait_at(Collective::give_registers, line);
}

void Block::settle_registers(float* registers, unsigned count, int line) {
  const unsigned group = current_->index / warpgroup_threads;
  require(group, line, groups_[group].products.settle(current_->index % warpgroup_threads, registers, count));
}

void Block::require(unsigned group, int line, const std::optional<Warpgroup::Problem>& problem) const {
  if (problem) fail(threads_[group * warpgroup_threads + problem->thread], line, problem->text);
}

/// The warp waits there until the other three of its warpgroup have come.
void Block::come_to_warpgroup(Warp& warp) {
  const Thread& self = threads_[warp.first];
  const unsigned group = warp.first / warpgroup_threads;
  if ((group + 1) * std::size_t{warpgroup_threads} > threads_.size()) {
    fail(self, self.line, fmt::format("{} is for whole warpgroups of four warps", name_of(self.collective)));
  }
  warp.parked = Parked::warpgroup;
  for (unsigned w = 0; w < warpgroup_warps; ++w) {
    if (warps_[group * warpgroup_warps + w].parked != Parked::warpgroup) return;
  }
  for (unsigned t = 0; t < warpgroup_threads; ++t) {
    const Thread& other = threads_[group * warpgroup_threads + t];
    if (other.line == self.line && other.collective == self.collective) continue;
    fail(self, self.line,
         fmt::format("{} waits for thread {} of the same warpgroup, which waits at {} in line {}",
                     name_of(self.collective), other.index, name_of(other.collective), other.line));
  }
  if (self.collective == Collective::wgmma) {
    multiply(group);
    for (unsigned w = 0; w < warpgroup_warps; ++w) wake(warps_[group * warpgroup_warps + w]);
  } else {
    groups_[group].wants_registers = true;
    // What one warpgroup gives, another may wait for.
    for (unsigned g = 0; g < groups_.size(); ++g) change_registers(g);
    for (unsigned g = 0; g < groups_.size(); ++g) change_registers(g);
  }
}

void Block::change_registers(unsigned group) {
  if (!groups_[group].wants_registers) return;
  const Thread& first = threads_[group * warpgroup_threads];
  require(first, first.line, registers_.problem(group, first.operand, first.collective == Collective::take_registers));
  if (!registers_.change(group, first.operand)) return;
  groups_[group].wants_registers = false;
  for (unsigned w = 0; w < warpgroup_warps; ++w) wake(warps_[group * warpgroup_warps + w]);
}

/// What all threads of a warpgroup know: a product starts after each of them has come.
const Clock& Block::common_knowledge(unsigned group) {
  Group& self = groups_[group];
  std::uint64_t changes = 0;
  const Thread* const threads = &threads_[group * warpgroup_threads];
  for (unsigned t = 0; t < warpgroup_threads; ++t) changes += threads[t].clock.changes();
  if (changes != self.changes) {
    self.common = threads[0].clock;
    for (unsigned t = 1; t < warpgroup_threads; ++t) self.common.meet(threads[t].clock);
    self.changes = changes;
  }
  return self.common;
}

void Block::multiply(unsigned group) {
  const Thread* const threads = &threads_[group * warpgroup_threads];
  const Wgmma& first = threads[0].wgmma;
  const int line = threads[0].line;
  Product product{.dtype = static_cast<Dtype>(first.dtype),
                  .columns = first.columns,
                  .accumulate = first.accumulate,
                  .A_in_registers = first.A_words != nullptr,
                  .A = first.A,
                  .B = first.B,
                  .A_major = first.A_transposed ? Major::mn : Major::k,
                  .B_major = first.B_transposed ? Major::mn : Major::k,
                  .line = line};
  for (unsigned t = 0; t < warpgroup_threads; ++t) {
    const Wgmma& own = threads[t].wgmma;
    product.D[t] = own.D;
    product.A_words[t] = own.A_words;
    if (own.A != first.A || own.B != first.B || own.accumulate != first.accumulate) {
      fail(threads[t], line,
           fmt::format("descriptors or `accumulate` are not those of thread {} of the same warpgroup",
                       threads[0].index));
    }
  }
  require(threads[0], line, descriptor_problem(product.B, product.B_major, product.columns));
  if (!product.A_in_registers) {
    require(threads[0], line, descriptor_problem(product.A, product.A_major, product_rows));
    const std::vector<unsigned> A = chunk_addresses(product.A, product.A_major, product_rows);
    // A warp reads its own rows: a run of chunks, or where rows are contiguous two of each run.
    const std::size_t runs = product.A_major == Major::k ? 1 : product_depth;
    const std::size_t part = A.size() / runs / warpgroup_warps;
    for (unsigned w = 0; w < warpgroup_warps; ++w) {
      std::vector<unsigned> own;
      for (std::size_t run = 0; run < runs; ++run) {
        const auto begin = A.begin() + static_cast<std::ptrdiff_t>((run * warpgroup_warps + w) * part);
        own.insert(own.end(), begin, begin + static_cast<std::ptrdiff_t>(part));
      }
      note_operand(own, group, w, w, line);
    }
  }
  note_operand(chunk_addresses(product.B, product.B_major, product.columns), group, 0, warpgroup_warps - 1, line);
  require(group, line, groups_[group].products.issue(product));
}

/// The warps read these chunks until they have waited for the product.
void Block::note_operand(const std::vector<unsigned>& addresses, unsigned group, unsigned first_warp,
                         unsigned last_warp, int line) {
  const Clock& clock = common_knowledge(group);
  for (unsigned w = first_warp; w <= last_warp; ++w) {
    Warp& warp = warps_[group * warpgroup_warps + w];
    if (warp.product_agent == 0) warp.product_agent = add_agent(Agent::Kind::products, warp.first / warp_size);
    const Epoch epoch{warp.product_agent, groups_[group].products.group(w), line, Proxy::async};
    for (const unsigned address : addresses) {
      require(threads_[warp.first], line, mbarriers_.overlap(address, chunk_bytes));
      require(threads_[warp.first], line, only_memory().note_load(address, chunk_bytes, clock, epoch));
    }
  }
}

void Block::perform_wgmma_wait(const Warp& warp) {
  const Thread& first = threads_[warp.first];
  const unsigned w = warp_in_group(warp);
  Warpgroup& products = products_of(warp);
  require(warp.first / warpgroup_threads, first.line, products.wait(w, first.operand, only_memory()));
  if (warp.product_agent == 0) return;
  for (Thread* thread : live_lanes(warp)) thread->clock.set(warp.product_agent, products.finished(w));
}

}  // namespace attune::emulator
