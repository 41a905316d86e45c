// Blocks of a cluster: their common barrier, and reads of each other's shared memory.
#include <fmt/format.h>

#include <cstring>

#include "runtime/emulator/block.hpp"

namespace attune::emulator {

std::string Block::block_text(unsigned rank) const {
  const Index block = index_of(rank);
  return fmt::format("block ({}, {}, {})", block.x, block.y, block.z);
}

/// Its number within its block, which is named where there are several.
std::string Block::number_of(const Thread& thread) const {
  return launch_.grid.cluster == 1 ? std::to_string(thread.in_block)
                                   : fmt::format("{} of {}", thread.in_block, block_text(thread.rank));
}

void Block::require_no_cluster(const char* what, int line) const {
  if (launch_.grid.cluster != 1) fail(*current_, line, fmt::format("{} is not modelled in clusters", what));
}

void Block::cluster_barrier(int line) { wait_at(Collective::cluster_barrier, line); }

void Block::load_cluster(unsigned address, unsigned block, void* to, unsigned bytes, int line) {
  Thread& self = *current_;
  if (block >= cluster_blocks()) {
    fail(self, line, fmt::format("reads from block {} of its cluster, which has {}", block, cluster_blocks()));
  }
  SharedMemory& memory = shared_[block];
  const Epoch epoch = epoch_of(self, line);
  require(self, line, mbarriers_.overlap(address, bytes));
  auto problem = memory.note_load(address, bytes, self.clock, epoch);
  if (problem) problem->text = fmt::format("from {}: {}", block_text(block), problem->text);
  require(self, line, problem);
  self.cluster_reads[block] = epoch;
  std::memcpy(to, memory.at(address), bytes);
}

/// A block's memory goes with the block, whose end is that of its last thread: one of its threads at least must have
/// known, as it ended, of each read by another block. Who knows of a thread's last read knows of those before. Asked
/// once all have ended, so that the answer does not depend on who happened to end first.
void Block::require_reads_before_ends() const {
  if (launch_.grid.cluster == 1) return;
  for (unsigned rank = 0; rank < cluster_blocks(); ++rank) {
    Clock end;
    for (const Thread& thread : threads_) {
      if (thread.rank == rank) end.join(thread.clock);
    }
    for (const Thread& thread : threads_) {
      const Epoch& read = thread.cluster_reads[rank];
      if (!read.exists() || end.knows(read)) continue;
      fail(thread, read.line,
           fmt::format("reads from {}, which may have ended: no barrier orders the read before its end",
                       block_text(rank)));
    }
  }
}

}  // namespace attune::emulator
