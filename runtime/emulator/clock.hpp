// Happens-before by vector clocks (Lamport 1978; Flanagan and Freund, "FastTrack", 2009).
//
// An agent is whatever makes accesses in an order of its own: a thread, or a thread's stream of asynchronous copies. A
// clock says, for one agent, how far into every agent's accesses its own knowledge reaches. Barriers and waits are the
// only operations that pass knowledge on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune::emulator {

/// One access: by which agent, at which of its times, from which line. Time 0 means none.
struct Epoch {
  std::uint32_t agent = 0;
  std::uint32_t time = 0;
  int line = 0;

  [[nodiscard]] bool exists() const { return time != 0; }
};

class Clock {
 public:
  explicit Clock(std::size_t agents = 0) : times_(agents, 0) {}

  /// Whether the access happened before whatever this clock's owner does next.
  [[nodiscard]] bool knows(const Epoch& epoch) const { return times_[epoch.agent] >= epoch.time; }

  [[nodiscard]] std::uint32_t at(std::uint32_t agent) const { return times_[agent]; }
  void set(std::uint32_t agent, std::uint32_t time) { times_[agent] = std::max(times_[agent], time); }

  /// Takes over what the other knows.
  void join(const Clock& other) {
    for (std::size_t i = 0; i < times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
  }

 private:
  std::vector<std::uint32_t> times_;
};

}  // namespace attune::emulator
