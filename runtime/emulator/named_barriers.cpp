#include "runtime/emulator/named_barriers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/emulator/fragments.hpp"

namespace attune::emulator {

std::optional<std::string> NamedBarriers::arrive(unsigned id, unsigned warp, unsigned threads, unsigned block_threads,
                                                 bool votes, int line) {
  if (id == 0 || id >= barriers_.size()) {
    return fmt::format("there is no named barrier {}; they are 1 to {}", id, barriers_.size() - 1);
  }
  if (threads == 0 || threads % warp_size != 0 || threads > block_threads) {
    return fmt::format("named barrier {} cannot be of {} threads: whole warps, and at most the {} of the block", id,
                       threads, block_threads);
  }
  Barrier& barrier = barriers_[id];
  if (barrier.threads != 0 && barrier.threads != threads) {
    return fmt::format("named barrier {} is of {} threads here and of {} in line {}", id, threads, barrier.threads,
                       barrier.line);
  }
  if (barrier.threads != 0 && barrier.votes != votes) {
    return fmt::format("named barrier {} is a vote {}, and none {}", id,
                       votes ? "here" : fmt::format("in line {}", barrier.line),
                       votes ? fmt::format("in line {}", barrier.line) : "here");
  }
  const Met& met = met_[id];
  if (!met.warps.empty() && std::ranges::find(met.warps, warp) == met.warps.end()) {
    return fmt::format(
        "warp {} comes to named barrier {}, where warps {} met in line {}: a barrier's warps must be the same each "
        "time",
        warp, id, fmt::join(met.warps, ", "), met.line);
  }
  if (barrier.threads == 0) {
    barrier.votes = votes;
    barrier.threads = threads;
    barrier.line = line;
  }
  barrier.arrived += warp_size;
  barrier.warps.push_back(warp);
  return std::nullopt;
}

void NamedBarriers::finish(unsigned id) {
  Barrier& barrier = barriers_[id];
  met_[id] = {.warps = std::move(barrier.warps), .line = barrier.line};
  barrier = {};
}

std::optional<unsigned> NamedBarriers::half_full() const {
  for (unsigned id = 0; id < barriers_.size(); ++id) {
    if (barriers_[id].arrived != 0) return id;
  }
  return std::nullopt;
}

}  // namespace attune::emulator
