#include "runtime/emulator/block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace attune::emulator {

Block::Block(const Launch& launch, RunThread* run_thread, GlobalMemory& global, Announcements& announcements)
    : launch_(launch),
      run_thread_(run_thread),
      global_(global),
      announcements_(announcements),
      copies_(static_cast<std::size_t>(launch.threads) * launch.grid.cluster),
      banks_(static_cast<std::size_t>(launch.threads) * launch.grid.cluster / warp_size),
      threads_(static_cast<std::size_t>(launch.threads) * launch.grid.cluster),
      warps_(threads_.size() / warp_size),
      groups_((warps_.size() + warpgroup_warps - 1) / warpgroup_warps) {
  for (unsigned i = 0; i < launch.grid.cluster; ++i)
    shared_.emplace_back(static_cast<std::size_t>(launch.shared_bytes));
  const auto block_threads = static_cast<unsigned>(launch.threads);
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].index = i;
    threads_[i].rank = i / block_threads;
    threads_[i].in_block = i % block_threads;
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
    thread.fiber->forget_unwound_frames();
    Warp& warp = warps_[thread.index / warp_size];
    warp.ready &= ~(1U << thread.index % warp_size);
    warp.live &= ~(1U << thread.index % warp_size);
    thread.state = Thread::State::idle;
    Thread* next = nullptr;
    try {
      if (fault_.empty()) next = next_thread();
    } catch (const Fault& fault) {
      fault_ = fault.what();
      thread.fiber->forget_unwound_frames();
    }
    current_ = next;
    thread.fiber->switch_to(next != nullptr ? *next->fiber : home_);
  }
  return &home_;
}

void Block::begin(unsigned long long number) {
  number_ = number;
  const Grid& grid = launch_.grid;
  const unsigned blocks = cluster_blocks();
  const unsigned clusters_y = grid.y / blocks;
  first_ = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % clusters_y) * blocks,
            static_cast<unsigned>(number / grid.x / clusters_y)};
  Random seeds(launch_.seed ^ number * 0x9e3779b97f4a7c15U);
  random_ = Random(seeds());
  copies_.reset(seeds());
  bulk_copies_.reset(seeds());
  for (SharedMemory& memory : shared_) memory.reset();
  mbarriers_.reset();
  named_barriers_.reset();
  registers_.reset(threads_.size());
  for (Group& group : groups_) {
    group.products.reset(seeds());
    group.changes = 0;
    group.wants_registers = false;
  }
  box_stores_.reset(seeds());
  agents_.assign(threads_.size(), {});
  cancelled_ = false;
  fault_.clear();
  // Before its first barrier a thread knows of its own accesses alone.
  for (Thread& thread : threads_) {
    thread.clock = Clock(agents_.size());
    thread.clock.set(thread.index, 1);
    thread.copy_agent = thread.copy_groups = 0;
    thread.box_agent = thread.box_groups = 0;
    thread.heard.clear();
    thread.cluster_reads.assign(shared_.size(), {});
  }
  for (unsigned w = 0; w < warps_.size(); ++w) warps_[w] = {.first = w * warp_size, .ready = ~0U, .live = ~0U};
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
  throw Fault(fmt::format("line {}, {}, thread {} (warp {}, lane {}): {}", line, block_text(thread.rank),
                          thread.in_block, thread.in_block / warp_size, thread.in_block % warp_size, what));
}

void Block::require(const Thread& thread, int line, const std::optional<std::string>& problem) const {
  if (problem) fail(thread, line, *problem);
}

void Block::require(const Thread& thread, int line, const std::optional<SharedMemory::Problem>& problem) const {
  if (problem) fail(thread, line, problem->text + earlier_text(*problem));
}

std::string Block::earlier_text(const SharedMemory::Problem& problem) const {
  const Epoch& epoch = problem.earlier;
  if (!epoch.exists()) return {};
  const Agent& agent = agents_[epoch.agent];
  const auto text = [&](const std::string& who, const char* lacks) {
    return fmt::format(" by {} in line {}: {}", who, epoch.line,
                       problem.lacks_proxy_fence ? "no proxy fence lies between the two" : lacks);
  };
  switch (agent.kind) {
    case Agent::Kind::thread:
      return text(fmt::format("thread {}", number_of(threads_[epoch.agent])), "no barrier orders the two");
    case Agent::Kind::copies:
      return text(fmt::format("the asynchronous copy that thread {} issued", number_of(threads_[agent.owner])),
                  "no wait, or no barrier after it, orders the two");
    case Agent::Kind::products:
      return text(fmt::format("the wgmma that warp {} issued", agent.owner),
                  "no wgmma_wait, or no barrier after it, orders the two");
    case Agent::Kind::boxes:
      return text(fmt::format("the bulk copy that signals the mbarrier at {:#x}, issued", agent.owner),
                  "no wait for that phase, or no barrier after it, orders the two");
    case Agent::Kind::box_stores:
      return text(fmt::format("the bulk copy that thread {} issued", agent.owner),
                  "no wait_boxes_read, or no barrier after it, orders the two");
  }
  return {};
}

std::uint32_t Block::add_agent(Agent::Kind kind, unsigned owner) {
  agents_.push_back({kind, owner});
  return static_cast<std::uint32_t>(agents_.size() - 1);
}

// --- who runs next ---------------------------------------------------------------------------------------------------

/// The current thread waits until its warp, its warpgroup, its block or its cluster has done this together.
void Block::wait_at(Collective collective, int line) {
  if (collective >= Collective::mbarrier_wait) require_no_cluster(name_of(collective), line);
  current_->collective = collective;
  current_->line = line;
  leave();
}

/// The current thread cannot go on; returns when something has made it ready. Throws Cancelled.
void Block::leave() {
  Thread& self = *current_;
  self.state = Thread::State::waiting;
  warps_[self.index / warp_size].ready &= ~(1U << self.index % warp_size);
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
  while (warp->ready == 0) {
    const auto start = random_.below(warps_.size());
    for (std::size_t i = 0; i < warps_.size() && warp->ready == 0; ++i) warp = &warps_[(start + i) % warps_.size()];
    if (warp->ready != 0) break;
    if (finished()) {
      require_nothing_left();
      box_stores_.end(only_memory());
      require_reads_before_ends();
      return nullptr;
    }
    if (release_barriers()) continue;
    // What lands as late as it can lands now.
    if (const auto copy = bulk_copies_.any()) {
      land(*copy);
    } else if (!hear_words()) {
      report_deadlock();
    }
  }
  const unsigned lane = current_->index % warp_size;
  const std::uint32_t rotated = std::rotr(warp->ready, static_cast<int>(lane));
  return &threads_[warp->first + (lane + static_cast<unsigned>(std::countr_zero(rotated))) % warp_size];
}

bool Block::finished() const {
  return std::ranges::all_of(warps_, [](const Warp& warp) { return warp.live == 0; });
}

/// No lane of the warp can go on by itself: it does what all its lanes have come to.
void Block::settle(Warp& warp) {
  if (launch_.count_banks) banks_.close(warp.first / warp_size);
  if (warp.live == 0 || warp.parked != Parked::no || warp.apart != 0) return;
  require_same_collective(warp);
  tick();
  const Collective collective = threads_[warp.first + static_cast<unsigned>(std::countr_zero(warp.live))].collective;
  switch (collective) {
    case Collective::block_barrier:
      warp.parked = Parked::block_barrier;
      break;
    case Collective::cluster_barrier:
      warp.parked = Parked::cluster_barrier;
      break;
    case Collective::named_barrier_wait:
    case Collective::named_barrier_announce:
    case Collective::named_barrier_any:
      come_to_named_barrier(warp, collective);
      break;
    case Collective::wgmma:
    case Collective::take_registers:
    case Collective::give_registers:
      come_to_warpgroup(warp);
      break;
    default:
      perform(warp, collective);
      wake(warp);
  }
}

/// Time passes: what is due happens.
void Block::tick() {
  copies_.tick();
  for (Group& group : groups_) group.products.tick(only_memory());
  box_stores_.tick(only_memory());
  bulk_copies_.tick();
  while (const auto copy = bulk_copies_.due()) land(*copy);
}

bool Block::is_barrier(Collective collective) {
  return collective == Collective::block_barrier || collective == Collective::cluster_barrier ||
         collective == Collective::warp_barrier || collective == Collective::named_barrier_wait ||
         collective == Collective::named_barrier_announce || collective == Collective::named_barrier_any;
}

/// Every lane must have come to the same instruction: these are ".aligned", and lanes that have ended are only allowed
/// to be missing at barriers.
void Block::require_same_collective(const Warp& warp) const {
  const Thread& first = threads_[warp.first + static_cast<unsigned>(std::countr_zero(warp.live))];
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const Thread& thread = threads_[warp.first + lane];
    const char* self = name_of(first.collective);
    if ((warp.live >> lane & 1) == 0) {
      if (is_barrier(first.collective)) continue;
      fail(first, first.line, fmt::format("{} waits for thread {}, which has ended", self, thread.in_block));
    }
    if (thread.line == first.line && thread.collective == first.collective) continue;
    fail(first, first.line,
         fmt::format("{} waits for thread {} of the same warp, which waits at {} in line {}", self, thread.in_block,
                     name_of(thread.collective), thread.line));
  }
}

void Block::wake(Warp& warp) {
  warp.ready = warp.live;
  warp.parked = Parked::no;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((warp.live >> lane & 1) != 0) threads_[warp.first + lane].state = Thread::State::ready;
  }
}

/// The thread need wait no longer by itself.
void Block::go_on(Thread& thread) {
  Warp& warp = warps_[thread.index / warp_size];
  const std::uint32_t lane = 1U << thread.index % warp_size;
  thread.state = Thread::State::ready;
  warp.ready |= lane;
  warp.apart &= ~lane;
}

/// Whether all threads of a block waited at its barrier, or all of the cluster at that.
bool Block::release_barriers() {
  const std::size_t of_block = warps_.size() / shared_.size();
  bool released = false;
  for (std::size_t first = 0; first < warps_.size(); first += of_block) {
    released |= release(std::span(warps_).subspan(first, of_block), Parked::block_barrier);
  }
  return released || release(warps_, Parked::cluster_barrier);
}

/// Whether all threads of these warps waited there. Those that have ended are not waited for.
bool Block::release(std::span<Warp> warps, Parked place) {
  std::vector<Thread*> group;
  for (const Warp& warp : warps) {
    if (warp.live != 0 && warp.parked != place) return false;
    for (Thread* thread : live_lanes(warp)) group.push_back(thread);
  }
  if (group.empty()) return false;
  synchronise(group);
  for (Warp& warp : warps) wake(warp);
  return true;
}

std::vector<Block::Thread*> Block::live_lanes(const Warp& warp) {
  std::vector<Thread*> lanes;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((warp.live >> lane & 1) != 0) lanes.push_back(&threads_[warp.first + lane]);
  }
  return lanes;
}

/// The thread's accesses from now on are told from those before.
void Block::advance(Thread& thread) { thread.clock.set(thread.index, thread.clock.at(thread.index) + 1); }

/// What any of them did before, all know from now on.
void Block::synchronise(const std::vector<Thread*>& group) {
  Clock joint = group.front()->clock;
  for (const Thread* thread : group) joint.join(thread->clock);
  for (Thread* thread : group) {
    thread->clock = joint;
    advance(*thread);
  }
}

std::string Block::waiting_text(const Thread& thread) {
  std::string where = fmt::format("{} in line {}", name_of(thread.collective), thread.line);
  switch (thread.collective) {
    case Collective::mbarrier_wait: {
      const Mbarrier& barrier = mbarriers_.at(thread.operand);
      return fmt::format("{} for phase {} of the mbarrier at {:#x}, which lacks {} of {} arrivals and {} bytes", where,
                         barrier.phase, barrier.address, barrier.missing_arrivals, barrier.arrivals,
                         barrier.missing_bytes);
    }
    case Collective::named_barrier_wait:
    case Collective::named_barrier_any: {
      const NamedBarriers::Barrier& barrier = named_barriers_.at(thread.operand);
      return fmt::format("{} for barrier {}, to which {} of {} threads have come", where, thread.operand,
                         barrier.arrived, barrier.threads);
    }
    case Collective::await_word:
      return fmt::format("{} for the word {:#x} at {}, which no block has announced", where, thread.word,
                         global_.name_of_word(thread.place));
    case Collective::take_registers:
      return fmt::format("{} for {} registers of each thread, while {} are free in all", where, thread.operand,
                         registers_.free());
    default:
      return where;
  }
}

void Block::report_deadlock() {
  using BlockWait = std::pair<unsigned, std::string>;  // a block and where its threads wait
  std::vector<std::pair<BlockWait, std::vector<const Thread*>>> places;
  for (const Warp& warp : warps_) {
    for (const Thread* thread : live_lanes(warp)) {
      const BlockWait text{thread->rank, waiting_text(*thread)};
      const auto place = std::ranges::find(places, text, &decltype(places)::value_type::first);
      if (place == places.end()) {
        places.push_back({text, {thread}});
      } else {
        place->second.push_back(thread);
      }
    }
  }
  std::string all;
  for (const auto& [place, threads] : places) {
    const std::string from = number_of(*threads.front());
    all += threads.size() == 1 ? fmt::format("; thread {} waits at {}", from, place.second)
                               : fmt::format("; {} threads from {} on wait at {}", threads.size(), from, place.second);
  }
  const Thread& first = *places.front().second.front();
  fail(first, first.line, "deadlock: nothing can happen any more" + all);
}

}  // namespace attune::emulator
