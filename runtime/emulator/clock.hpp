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

/// How an access reaches memory (PTX ISA, "Proxies"): the copy engine and wgmma take the asynchronous one.
enum class Proxy : std::uint8_t { generic, async };

/// One access: by which agent, at which of its times, from which line. Time 0 means none.
struct Epoch {
  std::uint32_t agent = 0;
  std::uint32_t time = 0;
  int line = 0;
  Proxy proxy = Proxy::generic;

  [[nodiscard]] bool exists() const { return time != 0; }
};

/// Grows with the agents it hears of.
class Clock {
 public:
  Clock() = default;
  explicit Clock(std::size_t agents) : times_(agents, 0) {}

  /// Whether the access happened before whatever this clock's owner does next.
  [[nodiscard]] bool knows(const Epoch& epoch) const { return at(epoch.agent) >= epoch.time; }

  [[nodiscard]] std::uint32_t at(std::uint32_t agent) const { return agent < times_.size() ? times_[agent] : 0; }
  void set(std::uint32_t agent, std::uint32_t time) {
    if (agent >= times_.size()) times_.resize(agent + 1, 0);
    times_[agent] = std::max(times_[agent], time);
    ++changes_;
  }

  /// Takes over what the other knows.
  void join(const Clock& other) {
    if (other.times_.size() > times_.size()) times_.resize(other.times_.size(), 0);
    for (std::size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
    ++changes_;
  }

  /// Keeps only what the other knows too.
  void meet(const Clock& other) {
    for (std::size_t i = 0; i < times_.size(); ++i) {
      times_[i] = std::min(times_[i], other.at(static_cast<std::uint32_t>(i)));
    }
    ++changes_;
  }

  /// Grows whenever the clock may have changed.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  std::vector<std::uint32_t> times_;
  std::uint64_t changes_ = 0;
};

}  // namespace attune::emulator
