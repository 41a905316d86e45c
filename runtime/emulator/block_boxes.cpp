// Bulk copies of boxes, and what a block may not leave behind.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <variant>

#include "runtime/emulator/block.hpp"

namespace attune::emulator {

namespace {
constexpr unsigned bulk_piece = 16;  // bytes that a bulk copy moves as one
}  // namespace

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

/// The mbarrier that a bulk copy into shared memory counts at, which the copy engine knows.
Mbarrier& Block::copy_barrier(unsigned address, int line) {
  Thread& self = *current_;
  Mbarrier& barrier = mbarrier_at(address, line);
  if (!barrier.fence || !self.clock.knows(*barrier.fence)) {
    fail(self, line,
         fmt::format("the copy engine does not know the mbarrier at {:#x}: no mbarrier_fence follows its "
                     "initialisation in line {}",
                     address, barrier.init.line));
  }
  return barrier;
}

/// Sends a copy on its way, which writes shared memory in the barrier's next phase.
void Block::issue(const BulkCopy& copy, Mbarrier& barrier, const Epoch& epoch) {
  ++barrier.under_way;
  barrier.copied = epoch.time;
  barrier.copied_line = copy.line;
  barrier.copied_by = copy.thread;
  bulk_copies_.issue(copy);
}

void Block::load_box(unsigned address, const void* map, unsigned barrier_address, const Corner& at, int line) {
  Thread& self = *current_;
  const Box box = box_at(map, address, at, line);
  Mbarrier& barrier = copy_barrier(barrier_address, line);
  const Epoch epoch{barrier.agent, barrier.phase + 1, line, Proxy::async};
  for (unsigned offset = 0; offset < box.map.box_bytes(); offset += bulk_piece) {
    require(self, line, only_memory().note_store(swizzle_128(address + offset), bulk_piece, self.clock, epoch));
  }
  for_each_row(box, [&](const BoxRow& row) {
    require(self, line, global_.check_loaded_row(row.elements, row.bytes, access_of(self, epoch)));
  });
  if (is_outside(box)) {
    // Seen on Hopper: the copy engine reads there even where it only writes zeros.
    const auto wrong = global_.check_loaded_row(box.map.base, bulk_piece, access_of(self, epoch));
    if (wrong) fail(self, line, fmt::format("a box wholly outside its tensor reads at the map's base: {}", *wrong));
  }
  issue({.what = box, .barrier = barrier_address, .thread = self.index, .line = line}, barrier, epoch);
}

/// That a bulk copy or reduction of bytes may have these places.
void Block::require_bulk_pieces(const void* pointer, unsigned address, unsigned bytes, int line) {
  const Thread& self = *current_;
  if (address % bulk_piece != 0 || reinterpret_cast<std::uintptr_t>(pointer) % bulk_piece != 0 ||
      bytes % bulk_piece != 0) {
    fail(self, line,
         fmt::format("{} bytes at {} and {:#x} move in bulk, which have to be multiples of {}", bytes,
                     fmt::ptr(pointer), address, bulk_piece));
  }
  require(self, line, only_memory().outside(address, bytes));
  require(self, line, mbarriers_.overlap(address, bytes));
}

void Block::load_bytes(unsigned address, const void* pointer, unsigned bytes, unsigned barrier_address, int line) {
  require_no_cluster("a bulk copy", line);
  Thread& self = *current_;
  const auto* const from = static_cast<const std::byte*>(pointer);
  require_bulk_pieces(pointer, address, bytes, line);
  Mbarrier& barrier = copy_barrier(barrier_address, line);
  const Epoch epoch{barrier.agent, barrier.phase + 1, line, Proxy::async};
  for (unsigned offset = 0; offset < bytes; offset += bulk_piece) {
    require(self, line, only_memory().note_store(address + offset, bulk_piece, self.clock, epoch));
  }
  require(self, line, global_.check_loaded_row(from, bytes, access_of(self, epoch)));
  issue({.what = ByteRow{.from = from, .address = address, .bytes = bytes},
         .barrier = barrier_address,
         .thread = self.index,
         .line = line},
        barrier, epoch);
}

void Block::land(const BulkCopy& copy) {
  Mbarrier& barrier = mbarriers_.at(copy.barrier);
  if (const Box* const box = std::get_if<Box>(&copy.what)) {
    load(*box, only_memory());
    barrier.missing_bytes -= box->map.box_bytes();
  } else {
    const auto& row = std::get<ByteRow>(copy.what);
    for (unsigned offset = 0; offset < row.bytes; offset += bulk_piece) {
      std::memcpy(only_memory().at(row.address + offset), row.from + offset, bulk_piece);
    }
    barrier.missing_bytes -= row.bytes;
  }
  --barrier.under_way;
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
  box_stores_.issue({.what = box, .thread = self.index, .group = read.time, .line = line});
}

void Block::add_bytes(float* pointer, unsigned address, unsigned bytes, int line) {
  require_no_cluster("a bulk reduction", line);
  Thread& self = *current_;
  require_bulk_pieces(pointer, address, bytes, line);
  if (self.box_agent == 0) self.box_agent = add_agent(Agent::Kind::box_stores, self.index);
  const Epoch read{self.box_agent, self.box_groups + 1, line, Proxy::async};
  for (unsigned offset = 0; offset < bytes; offset += bulk_piece) {
    require(self, line, only_memory().note_load(address + offset, bulk_piece, self.clock, read));
    const auto* const sums = reinterpret_cast<const std::byte*>(pointer) + offset;
    require(self, line, global_.check_added(sums, bulk_piece, access_of(self, read)));
  }
  box_stores_.issue({.what = AddedRow{.to = pointer, .address = address, .count = bytes / unsigned{sizeof(float)}},
                     .thread = self.index,
                     .group = read.time,
                     .line = line});
}

void Block::commit_boxes() { ++current_->box_groups; }

void Block::wait_boxes_read() {
  Thread& self = *current_;
  if (self.box_agent == 0) return;
  box_stores_.finish_reads(self.index, self.box_groups, only_memory());
  self.clock.set(self.box_agent, self.box_groups);
}

void Block::wait_boxes() {
  const Thread& self = *current_;
  if (self.box_agent != 0) box_stores_.finish(self.index, self.box_groups, only_memory());
  wait_boxes_read();
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
