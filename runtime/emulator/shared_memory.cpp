#include "runtime/emulator/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace attune::emulator {

namespace {

bool lacks_proxy_fence(const Epoch& earlier, const Clock& clock, const Epoch& access) {
  return earlier.exists() && access.proxy == Proxy::async && earlier.proxy == Proxy::generic &&
         !clock.knows_fenced(earlier);
}

}  // namespace

void SharedMemory::History::note_read(const Clock& clock, const Epoch& epoch) {
  if (!reads.empty() && reads.back().agent == epoch.agent && reads.back().time == epoch.time) return;
  std::erase_if(reads, [&](const Epoch& read) { return clock.knows(read); });
  reads.push_back(epoch);
}

void SharedMemory::History::note_write(const Epoch& epoch) {
  write = epoch;
  reads.clear();
}

const Epoch* SharedMemory::History::unordered_before_read(const Clock& clock) const {
  return write.exists() && !clock.knows(write) ? &write : nullptr;
}

const Epoch* SharedMemory::History::unordered_before_write(const Clock& clock) const {
  if (const Epoch* earlier = unordered_before_read(clock)) return earlier;
  const auto read = std::ranges::find_if(reads, [&](const Epoch& epoch) { return !clock.knows(epoch); });
  return read != reads.end() ? &*read : nullptr;
}

void SharedMemory::reset() {
  for (Granule& granule : granules_) {
    granule.whole.note_write({});
    granule.bytes.reset();
  }
  // What a kernel reads by mistake should not look like what it expects.
  std::ranges::fill(data_, std::byte{0xff});
}

std::optional<SharedMemory::Problem> SharedMemory::misplaced(unsigned address, unsigned bytes) const {
  if (address % bytes != 0) {
    return Problem{fmt::format("shared address {:#x} is not aligned to the {} bytes accessed there", address, bytes),
                   {}};
  }
  return outside(address, bytes);
}

std::optional<SharedMemory::Problem> SharedMemory::outside(unsigned address, unsigned bytes) const {
  const std::size_t end = shared_base + data_.size();
  if (address < shared_base || address > end || end - address < bytes) {
    return Problem{fmt::format("{} bytes at shared address {:#x} are outside the launch's shared memory, which is from "
                               "{:#x} to {:#x}",
                               bytes, address, shared_base, end),
                   {}};
  }
  return std::nullopt;
}

/// Calls visit(history, address) for every byte, or once for a granule whose bytes are alike, until one has a problem.
template <class Visit>
std::optional<SharedMemory::Problem> SharedMemory::visit(unsigned address, unsigned bytes, const Visit& visit) {
  for (unsigned at = address; at < address + bytes;) {
    Granule& granule = granules_[(at - shared_base) / granule_bytes];
    const unsigned first = at % granule_bytes;
    const unsigned last = std::min(granule_bytes, first + (address + bytes - at));
    if (first == 0 && last == granule_bytes && granule.bytes == nullptr) {
      if (auto problem = visit(granule.whole, at)) return problem;
    } else {
      if (granule.bytes == nullptr) {
        granule.bytes = std::make_unique<std::array<History, granule_bytes>>();
        granule.bytes->fill(granule.whole);
      }
      for (unsigned i = first; i < last; ++i) {
        if (auto problem = visit((*granule.bytes)[i], at - first + i)) return problem;
      }
    }
    at += last - first;
  }
  return std::nullopt;
}

std::optional<SharedMemory::Problem> SharedMemory::note_load(unsigned address, unsigned bytes, const Clock& clock,
                                                             const Epoch& epoch) {
  if (auto problem = misplaced(address, bytes)) return problem;
  return visit(address, bytes, [&](History& history, unsigned at) -> std::optional<Problem> {
    if (!history.write.exists()) {
      return Problem{fmt::format("reads shared address {:#x}, which nothing has written", at), {}};
    }
    if (const Epoch* earlier = history.unordered_before_read(clock)) {
      return Problem{fmt::format("race: reads shared address {:#x}, unordered with a write there", at), *earlier};
    }
    if (lacks_proxy_fence(history.write, clock, epoch)) {
      return Problem{fmt::format("reads shared address {:#x} through the asynchronous proxy, written", at),
                     history.write, true};
    }
    history.note_read(clock, epoch);
    return std::nullopt;
  });
}

std::optional<SharedMemory::Problem> SharedMemory::note_store(unsigned address, unsigned bytes, const Clock& clock,
                                                              const Epoch& epoch) {
  if (auto problem = misplaced(address, bytes)) return problem;
  return visit(address, bytes, [&](History& history, unsigned at) -> std::optional<Problem> {
    if (const Epoch* earlier = history.unordered_before_write(clock)) {
      const bool write = earlier == &history.write;
      return Problem{
          fmt::format("race: writes shared address {:#x}, unordered with a {} there", at, write ? "write" : "read"),
          *earlier};
    }
    if (lacks_proxy_fence(history.write, clock, epoch)) {
      return Problem{fmt::format("writes shared address {:#x} through the asynchronous proxy, written", at),
                     history.write, true};
    }
    const auto read = std::ranges::find_if(
        history.reads, [&](const Epoch& earlier) { return lacks_proxy_fence(earlier, clock, epoch); });
    if (read != history.reads.end()) {
      return Problem{fmt::format("writes shared address {:#x} through the asynchronous proxy, read", at), *read, true};
    }
    history.note_write(epoch);
    return std::nullopt;
  });
}

}  // namespace attune::emulator
