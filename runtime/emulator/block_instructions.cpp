// What a thread, or a warp together, does at once: memory, copies by cp.async, exchange, mma.
#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "runtime/base/storage.hpp"
#include "runtime/emulator/block.hpp"

namespace attune::emulator {
namespace {

constexpr unsigned copied_bytes = Copies::bytes;

}  // namespace

// --- memory ----------------------------------------------------------------------------------------------------------

void Block::note_load(Thread& thread, unsigned address, unsigned bytes, int line) {
  require(thread, line, mbarriers_.overlap(address, bytes));
  require(thread, line, memory_of(thread).note_load(address, bytes, thread.clock, epoch_of(thread, line)));
  if (launch_.count_banks) banks_.note(thread.index / warp_size, thread.index % warp_size, line, address, bytes);
}

void Block::note_store(Thread& thread, unsigned address, unsigned bytes, int line) {
  require(thread, line, mbarriers_.overlap(address, bytes));
  require(thread, line, memory_of(thread).note_store(address, bytes, thread.clock, epoch_of(thread, line)));
  if (launch_.count_banks) banks_.note(thread.index / warp_size, thread.index % warp_size, line, address, bytes);
}

void Block::load_shared(unsigned address, void* to, unsigned bytes, int line) {
  note_load(*current_, address, bytes, line);
  std::memcpy(to, memory_of(*current_).at(address), bytes);
}

void Block::store_shared(unsigned address, const void* from, unsigned bytes, int line) {
  note_store(*current_, address, bytes, line);
  std::memcpy(memory_of(*current_).at(address), from, bytes);
}

void Block::load_global(const void* pointer, void* to, unsigned bytes, int line) {
  const Thread& self = *current_;
  require(self, line, global_.check_load(pointer, bytes, access_of(self, epoch_of(self, line)), bytes));
  std::memcpy(to, pointer, bytes);
}

void Block::store_global(void* pointer, const void* from, unsigned bytes, int line) {
  const Thread& self = *current_;
  require(self, line, global_.check_store(pointer, bytes, access_of(self, epoch_of(self, line))));
  std::memcpy(pointer, from, bytes);
}

void Block::add_global(float* pointer, float value, int line) {
  const Thread& self = *current_;
  require(self, line, global_.check_added(pointer, sizeof(value), access_of(self, epoch_of(self, line))));
  std::atomic_ref(*pointer).fetch_add(value, std::memory_order_relaxed);
}

int Block::count_global(int* counter, int line) {
  const Thread& self = *current_;
  require(self, line, global_.check_added(counter, sizeof(*counter), access_of(self, epoch_of(self, line))));
  return std::atomic_ref(*counter).fetch_add(1, std::memory_order_relaxed);
}

void Block::cp_async(unsigned address, const void* pointer, unsigned bytes, int line) {
  Thread& self = *current_;
  if (bytes > copied_bytes)
    require(self, line, fmt::format("copies {} bytes; cp.async has room for {}", bytes, copied_bytes));
  if (self.copy_agent == 0) self.copy_agent = add_agent(Agent::Kind::copies, self.index);
  const Epoch epoch{self.copy_agent, self.copy_groups + 1, line};
  require(self, line, mbarriers_.overlap(address, copied_bytes));
  require(self, line, memory_of(self).note_store(address, copied_bytes, self.clock, epoch));
  if (bytes > 0) require(self, line, global_.check_load(pointer, bytes, access_of(self, epoch), copied_bytes));
  if (launch_.count_banks) banks_.note(self.index / warp_size, self.index % warp_size, line, address, copied_bytes);
  copies_.issue(self.index, epoch.time, memory_of(self).at(address), pointer, bytes);
}

void Block::cp_async_commit() { ++current_->copy_groups; }

void Block::cp_async_wait(unsigned pending) {
  Thread& self = *current_;
  if (self.copy_groups <= pending) return;
  const std::uint32_t landed = self.copy_groups - pending;
  copies_.finish(self.index, landed);
  if (self.copy_agent != 0) self.clock.set(self.copy_agent, landed);
}

// --- collectives -----------------------------------------------------------------------------------------------------

const char* Block::name_of(Collective collective) {
  switch (collective) {
    case Collective::block_barrier:
      return "block_barrier";
    case Collective::cluster_barrier:
      return "cluster_barrier";
    case Collective::warp_barrier:
      return "warp_barrier";
    case Collective::shuffle_xor:
      return "shuffle_xor";
    case Collective::shuffle_from:
      return "shuffle_from";
    case Collective::any_lane:
      return "any_lane";
    case Collective::ldmatrix:
    case Collective::ldmatrix_transposed:
      return "ldmatrix";
    case Collective::stmatrix:
      return "stmatrix";
    case Collective::mma_fp16:
    case Collective::mma_bf16:
      return "mma";
    case Collective::mbarrier_wait:
      return "mbarrier_wait";
    case Collective::await_word:
      return "await_word";
    case Collective::named_barrier_wait:
      return "named_barrier_wait";
    case Collective::named_barrier_announce:
      return "named_barrier_announce";
    case Collective::named_barrier_any:
      return "named_barrier_any";
    case Collective::wgmma_fence:
      return "wgmma_fence";
    case Collective::wgmma_commit:
      return "wgmma_commit";
    case Collective::wgmma_wait:
      return "wgmma_wait";
    case Collective::wgmma:
      return "wgmma";
    case Collective::take_registers:
      return "take_registers";
    case Collective::give_registers:
      return "give_registers";
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

unsigned Block::shuffle_from(unsigned value, unsigned source, int line) {
  unsigned words[2] = {value, 0};
  current_->words = words;
  current_->operand = source;
  wait_at(Collective::shuffle_from, line);
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

void Block::stmatrix(const unsigned (&words)[4], unsigned address, int line) {
  current_->source = words;
  current_->operand = address;
  wait_at(Collective::stmatrix, line);
}

void Block::mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int dtype, int line) {
  current_->mma = {&d, &a, {b0, b1}};
  wait_at(static_cast<Dtype>(dtype) == Dtype::fp16 ? Collective::mma_fp16 : Collective::mma_bf16, line);
}

unsigned short Block::to_storage(int dtype, float value) const {
  return attune::to_storage(static_cast<Dtype>(dtype), value);
}

float Block::from_storage(int dtype, unsigned short bits) const {
  return attune::from_storage(static_cast<Dtype>(dtype), bits);
}

void Block::perform(Warp& warp, Collective collective) {
  constexpr unsigned row_bytes = 16;  // of a matrix
  Thread* const lanes = &threads_[warp.first];
  SharedMemory& memory = memory_of(*lanes);
  switch (collective) {
    case Collective::warp_barrier:
      synchronise(live_lanes(warp));
      break;
    case Collective::shuffle_xor:
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        lanes[lane].words[1] = lanes[(lane ^ lanes[lane].operand) % warp_size].words[0];
      }
      break;
    case Collective::shuffle_from:
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        lanes[lane].words[1] = lanes[lanes[lane].operand % warp_size].words[0];
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
      Lanes<const std::byte*> rows{};
      Lanes<std::uint32_t*> words{};
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        note_load(lanes[lane], lanes[lane].operand, row_bytes, lanes[lane].line);
        rows[lane] = memory.at(lanes[lane].operand);
        words[lane] = lanes[lane].words;
      }
      if (launch_.count_banks) banks_.close(warp.first / warp_size);
      emulator::ldmatrix(rows, collective == Collective::ldmatrix_transposed, words);
      break;
    }
    case Collective::stmatrix: {
      Lanes<std::byte*> rows{};
      Lanes<const std::uint32_t*> words{};
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        note_store(lanes[lane], lanes[lane].operand, row_bytes, lanes[lane].line);
        rows[lane] = memory.at(lanes[lane].operand);
        words[lane] = lanes[lane].source;
      }
      if (launch_.count_banks) banks_.close(warp.first / warp_size);
      emulator::stmatrix(rows, words);
      break;
    }
    case Collective::mma_fp16:
    case Collective::mma_bf16: {
      Lanes<const MmaOperands*> operands{};
      for (unsigned lane = 0; lane < warp_size; ++lane) operands[lane] = &lanes[lane].mma;
      emulator::mma(collective == Collective::mma_fp16 ? Dtype::fp16 : Dtype::bf16, operands);
      break;
    }
    case Collective::wgmma_fence:
      products_of(warp).fence(warp_in_group(warp));
      break;
    case Collective::wgmma_commit:
      products_of(warp).commit(warp_in_group(warp));
      break;
    case Collective::wgmma_wait:
      perform_wgmma_wait(warp);
      break;
    default:
      break;  // settle() keeps the warp there
  }
}

}  // namespace attune::emulator
