#include "runtime/emulator/box_stores.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "runtime/emulator/copies.hpp"

namespace attune::emulator {

void BoxStores::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  flights_.clear();
}

void BoxStores::issue(const BoxStore& store) {
  const bool late = random_.below(2) == 0;
  flights_.push_back(
      {.store = store,
       .due = late ? std::numeric_limits<std::uint64_t>::max() : now_ + 1 + random_.below(longest_copy)});
}

void BoxStores::read(Flight& flight, SharedMemory& shared) {
  const auto* const row = std::get_if<AddedRow>(&flight.store.what);
  if (row == nullptr || !flight.read.empty()) return;
  flight.read.resize(row->count);
  for (unsigned i = 0; i < row->count; ++i) {
    std::memcpy(&flight.read[i], shared.at(row->address + i * sizeof(float)), sizeof(float));
  }
}

void BoxStores::carry_out(Flight& flight, SharedMemory& shared) {
  if (flight.done) return;
  flight.done = true;
  if (const Box* const box = std::get_if<Box>(&flight.store.what)) {
    store(*box, shared);
    return;
  }
  read(flight, shared);
  float* const to = std::get<AddedRow>(flight.store.what).to;
  for (std::size_t i = 0; i < flight.read.size(); ++i) {
    std::atomic_ref(to[i]).fetch_add(flight.read[i], std::memory_order_relaxed);
  }
}

void BoxStores::tick(SharedMemory& shared) {
  ++now_;
  for (Flight& flight : flights_) {
    if (flight.due <= now_) carry_out(flight, shared);
  }
}

void BoxStores::finish_reads(unsigned thread, std::uint32_t group, SharedMemory& shared) {
  for (Flight& flight : flights_) {
    if (flight.store.thread != thread || flight.store.group > group) continue;
    flight.covered = true;
    if (std::holds_alternative<Box>(flight.store.what)) {
      carry_out(flight, shared);
    } else if (!flight.done) {
      read(flight, shared);
    }
  }
  std::erase_if(flights_, [](const Flight& flight) { return flight.covered && flight.done; });
}

void BoxStores::finish(unsigned thread, std::uint32_t group, SharedMemory& shared) {
  for (Flight& flight : flights_) {
    if (flight.store.thread == thread && flight.store.group <= group) carry_out(flight, shared);
  }
  finish_reads(thread, group, shared);
}

void BoxStores::end(SharedMemory& shared) {
  for (Flight& flight : flights_) carry_out(flight, shared);
  flights_.clear();
}

const BoxStore* BoxStores::unfinished() const {
  const auto found = std::ranges::find(flights_, false, &Flight::covered);
  return found == flights_.end() ? nullptr : &found->store;
}

}  // namespace attune::emulator
