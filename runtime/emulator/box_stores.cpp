#include "runtime/emulator/box_stores.hpp"

#include <limits>

namespace attune::emulator {

namespace {
constexpr std::uint64_t longest_flight = 400;  // ticks, as for cp.async
}  // namespace

void BoxStores::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  flights_.clear();
}

void BoxStores::issue(const BoxStore& store) {
  const bool late = random_.below(2) == 0;
  flights_.push_back(
      {.store = store,
       .due = late ? std::numeric_limits<std::uint64_t>::max() : now_ + 1 + random_.below(longest_flight),
       .done = false});
}

void BoxStores::carry_out(Flight& flight, SharedMemory& shared) {
  if (flight.done) return;
  flight.done = true;
  store(flight.store.box, shared);
}

void BoxStores::tick(SharedMemory& shared) {
  ++now_;
  for (Flight& flight : flights_) {
    if (flight.due <= now_) carry_out(flight, shared);
  }
}

void BoxStores::finish(unsigned thread, std::uint32_t group, SharedMemory& shared) {
  const auto covered = [&](const Flight& flight) {
    return flight.store.thread == thread && flight.store.group <= group;
  };
  for (Flight& flight : flights_) {
    if (covered(flight)) carry_out(flight, shared);
  }
  std::erase_if(flights_, covered);
}

}  // namespace attune::emulator
