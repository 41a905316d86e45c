// Bulk copies of boxes, and what a block may not leave behind.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/emulator/block.hpp"

namespace attune::emulator {

/// The box that the current thread hands to the copy engine.
Box Block::box_at(const void* map, unsigned address, const Corner& at, int line) {
  require_no_cluster("a bulk copy", line);
  const Thread& self = *current_;
  const std::optional<TensorMap> tensor = read_map(map);
  if (!tensor) fail(self, line, "the copy engine is given something that is no tensor map");
  if (at.rank != tensor->rank) {
    fail(self, line, fmt::format("{} coordinates, and the tensor map has {} dimensions", at.rank, tensor->rank));
  }
  if (address % swizzle_atom != 0) {
    fail(self, line,
         fmt::format("shared address {:#x} is no multiple of the swizzle's {} bytes", address, swizzle_atom));
  }
  require(self, line, only_memory().outside(address, tensor->box_bytes()));
  require(self, line, mbarriers_.overlap(address, tensor->box_bytes()));
  return {.map = *tensor, .at = std::to_array(at.x), .address = address};
}

void Block::load_box(unsigned address, const void* map, unsigned barrier_address, const Corner& at, int line) {
  Thread& self = *current_;
  const Box box = box_at(map, address, at, line);
  Mbarrier& barrier = mbarrier_at(barrier_address, line);
  if (!barrier.fence || !self.clock.knows(*barrier.fence)) {
    fail(self, line,
         fmt::format("the copy engine does not know the mbarrier at {:#x}: no mbarrier_fence follows its "
                     "initialisation in line {}",
                     barrier_address, barrier.init.line));
  }
  const Epoch epoch{barrier.agent, barrier.phase + 1, line, Proxy::async};
  constexpr unsigned piece = 16;
  for (unsigned offset = 0; offset < box.map.box_bytes(); offset += piece) {
    require(self, line, only_memory().note_store(swizzle_128(address + offset), piece, self.clock, epoch));
  }
  for_each_row(box, [&](const BoxRow& row) {
    require(self, line, global_.check_loaded_row(row.elements, row.bytes, access_of(self, epoch)));
  });
  if (is_outside(box)) {
    // Seen on Hopper: the copy engine reads there even where it only writes zeros.
    constexpr unsigned least = 16;
    const auto wrong = global_.check_loaded_row(box.map.base, least, access_of(self, epoch));
    if (wrong) fail(self, line, fmt::format("a box wholly outside its tensor reads at the map's base: {}", *wrong));
  }
  ++barrier.under_way;
  barrier.copied = epoch.time;
  barrier.copied_line = line;
  barrier.copied_by = self.index;
  bulk_copies_.issue({.box = box, .barrier = barrier_address, .thread = self.index, .line = line});
}

void Block::land(const BulkCopy& copy) {
  load(copy.box, only_memory());
  Mbarrier& barrier = mbarriers_.at(copy.barrier);
  --barrier.under_way;
  barrier.missing_bytes -= copy.box.map.box_bytes();
  end_phase_if_complete(barrier, threads_[copy.thread], copy.line);
}

void Block::store_box(const void* map, unsigned address, const Corner& at, int line) {
  Thread& self = *current_;
  const Box box = box_at(map, address, at, line);
  if (std::ranges::any_of(box.at, [](int coordinate) { return coordinate < 0; })) {
    fail(self, line, "a box is stored from a negative coordinate on, which Hopper takes for an illegal instruction");
  }
  if (self.box_agent == 0) self.box_agent = add_agent(Agent::Kind::box_stores, self.index);
  const Epoch read{self.box_agent, self.box_groups + 1, line, Proxy::async};
  // wait_boxes_read says nothing of the writes, so nobody ever comes to know them.
  const Epoch write{self.box_agent, std::numeric_limits<std::uint32_t>::max(), line, Proxy::async};
  for_each_row(box, [&](const BoxRow& row) {
    for_each_piece(box, row, [&](const BoxPiece& piece) {
      require(self, line, only_memory().note_load(piece.address, piece.bytes, self.clock, read));
    });
    require(self, line, global_.check_stored_row(row.elements, row.bytes, access_of(self, write)));
  });
  box_stores_.issue({.box = box, .thread = self.index, .group = read.time, .line = line});
}

void Block::commit_boxes() { ++current_->box_groups; }

void Block::wait_boxes_read() {
  Thread& self = *current_;
  if (self.box_agent == 0) return;
  box_stores_.finish(self.index, self.box_groups, only_memory());
  self.clock.set(self.box_agent, self.box_groups);
}

void Block::fence_for_copies() {
  current_->clock.fence();
  advance(*current_);
}

/// A block may not end while something reads or writes its shared memory, or with a barrier half full.
void Block::require_nothing_left() const {
  for (const auto& [address, barrier] : mbarriers_.all()) {
    if (barrier.copied <= barrier.seen) continue;
    fail(threads_[barrier.copied_by], barrier.copied_line,
         fmt::format("the block ends, and nobody has waited at the mbarrier at {:#x} for this copy", address));
  }
  if (const BoxStore* store = box_stores_.unfinished()) {
    const Thread& thread = threads_[store->thread];
    fail(thread, store->line,
         store->group > thread.box_groups
             ? "the block ends, and no commit_boxes has closed the group of this copy"
             : "the block ends, and its thread has not waited with wait_boxes_read until this copy has read");
  }
  if (const auto id = named_barriers_.half_full()) {
    const NamedBarriers::Barrier& barrier = named_barriers_.at(*id);
    fail(threads_.front(), barrier.line,
         fmt::format("the block ends, and only {} of {} threads have come to named barrier {}", barrier.arrived,
                     barrier.threads, *id));
  }
}

}  // namespace attune::emulator
