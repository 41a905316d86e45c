// The block's numbered barriers (PTX ISA, "barrier"), without the warps that wait there.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/emulator/clock.hpp"

namespace attune::emulator {

/// Barriers 1 to 15; 0 is the block barrier's.
class NamedBarriers {
 public:
  void reset() { barriers_ = {}; }

  struct Barrier {
    unsigned threads = 0;  ///< that it waits for; 0: nobody has come
    unsigned arrived = 0;
    bool votes = false;             ///< whether those who come ask for an answer (named_barrier_any)
    bool any = false;               ///< the answer, so far
    Clock joint;                    ///< what those who came knew
    std::vector<unsigned> waiting;  ///< warps
    int line = 0;                   ///< where the first came

    [[nodiscard]] bool complete() const { return threads != 0 && arrived == threads; }
  };

  /// Counts a warp. Says what is wrong: a number outside 1 to 15, a count of threads that is no multiple of 32 within
  /// the block, or not the one that those who came before gave; a vote where they wait, or the other way round.
  std::optional<std::string> arrive(unsigned id, unsigned threads, unsigned block_threads, bool votes, int line);

  Barrier& at(unsigned id) { return barriers_[id]; }
  [[nodiscard]] const Barrier& at(unsigned id) const { return barriers_[id]; }

  /// The first to which some have come and not all.
  [[nodiscard]] std::optional<unsigned> half_full() const;

 private:
  std::array<Barrier, 16> barriers_;
};

}  // namespace attune::emulator
