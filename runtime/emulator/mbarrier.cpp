#include "runtime/emulator/mbarrier.hpp"

#include <fmt/format.h>

#include <utility>

namespace attune::emulator {

namespace {
constexpr unsigned object_bytes = 8;
constexpr unsigned largest_count = (1U << 20) - 1;  // of arrivals and of bytes
}  // namespace

std::optional<std::string> Mbarrier::arrive(unsigned bytes, const Clock& clock) {
  if (missing_arrivals == 0) {
    return fmt::format("the mbarrier at {:#x} gets more than the {} arrivals that its phase {} expects", address,
                       arrivals, phase);
  }
  missing_bytes += bytes;
  if (missing_bytes > static_cast<long long>(largest_count)) {
    return fmt::format("the mbarrier at {:#x} is to count {} bytes; it can count 2^20 - 1", address, missing_bytes);
  }
  --missing_arrivals;
  arrived.join(clock);
  return std::nullopt;
}

std::optional<std::string> Mbarrier::advance() {
  if (under_way != 0) {
    return fmt::format(
        "phase {} of the mbarrier at {:#x} ends while a copy for it is under way, the newest from line {}: it expects "
        "too few bytes",
        phase, address, copied_line);
  }
  if (!unseen.empty()) {
    return fmt::format(
        "phase {} of the mbarrier at {:#x} ends before thread {} has seen the end of the one before, which it waits "
        "for: it may miss it",
        phase, address, unseen.front());
  }
  over = std::exchange(arrived, Clock());
  ++phase;
  missing_arrivals = arrivals;
  return std::nullopt;
}

std::optional<std::string> Mbarriers::init(unsigned address, unsigned arrivals, const Epoch& by, std::uint32_t agent) {
  if (address % object_bytes != 0) return fmt::format("an mbarrier at {:#x} is not 8-byte aligned", address);
  if (arrivals == 0 || arrivals > largest_count) {
    return fmt::format("an mbarrier cannot expect {} arrivals, only 1 to 2^20 - 1", arrivals);
  }
  const auto [place, is_new] = barriers_.try_emplace(address);
  Mbarrier& barrier = place->second;
  if (!is_new) {
    return fmt::format("there is an mbarrier at {:#x} already, initialised in line {}", address, barrier.init.line);
  }
  barrier.address = address;
  barrier.agent = agent;
  barrier.arrivals = barrier.missing_arrivals = arrivals;
  barrier.init = by;
  return std::nullopt;
}

void Mbarriers::fence(const Epoch& by) {
  for (auto& [address, barrier] : barriers_) {
    if (barrier.init.agent == by.agent && !barrier.fence) barrier.fence = by;
  }
}

std::optional<std::string> Mbarriers::misuse(unsigned address, const Clock& clock) const {
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) return fmt::format("there is no mbarrier at {:#x}", address);
  const Epoch& init = found->second.init;
  if (!clock.knows(init)) {
    return fmt::format(
        "race: uses the mbarrier at {:#x}, which thread {} initialised in line {}: no barrier orders the "
        "two",
        address, init.agent, init.line);
  }
  return std::nullopt;
}

std::optional<std::string> Mbarriers::overlap(unsigned address, unsigned bytes) const {
  auto next = barriers_.lower_bound(address + bytes);
  if (next == barriers_.begin()) return std::nullopt;
  const auto& [place, barrier] = *--next;
  if (place + object_bytes <= address) return std::nullopt;
  return fmt::format("accesses shared address {:#x} as memory, where an mbarrier lives since line {}",
                     std::max(place, address), barrier.init.line);
}

}  // namespace attune::emulator
