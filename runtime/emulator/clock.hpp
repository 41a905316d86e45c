// Happens-before by vector clocks (Lamport 1978; Flanagan and Freund, "FastTrack", 2009).
//
// An agent is whatever makes accesses in an order of its own: a thread, or a thread's stream of asynchronous copies. A
// clock says, for one agent, how far into every agent's accesses its own knowledge reaches, and how much of that
// came before a proxy fence. Barriers and waits are the only operations that pass knowledge on.
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

  /// ... and a proxy fence lies between the two.
  [[nodiscard]] bool knows_fenced(const Epoch& epoch) const { return at(fenced_, epoch.agent) >= epoch.time; }

  [[nodiscard]] std::uint32_t at(std::uint32_t agent) const { return at(times_, agent); }
  void set(std::uint32_t agent, std::uint32_t time) {
    if (agent >= times_.size()) times_.resize(agent + 1, 0);
    times_[agent] = std::max(times_[agent], time);
    ++changes_;
  }

  /// A proxy fence: all that is known now came before it.
  void fence() {
    fenced_ = times_;
    ++changes_;
  }

  /// Takes over what the other knows.
  void join(const Clock& other) {
    join(times_, other.times_);
    join(fenced_, other.fenced_);
    ++changes_;
  }

  /// Keeps only what the other knows too.
  void meet(const Clock& other) {
    meet(times_, other.times_);
    meet(fenced_, other.fenced_);
    ++changes_;
  }

  /// Grows whenever the clock may have changed.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  using Times = std::vector<std::uint32_t>;  ///< by agent; 0 where there is none

  static std::uint32_t at(const Times& times, std::uint32_t agent) { return agent < times.size() ? times[agent] : 0; }
  static void join(Times& times, const Times& others) {
    if (others.size() > times.size()) times.resize(others.size(), 0);
    for (std::size_t i = 0; i < others.size(); ++i) times[i] = std::max(times[i], others[i]);
  }
  static void meet(Times& times, const Times& others) {
    if (times.size() > others.size()) times.resize(others.size());
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = std::min(times[i], others[i]);
  }

  Times times_;
  Times fenced_;  ///< at most times_
  std::uint64_t changes_ = 0;
};

}  // namespace attune::emulator
