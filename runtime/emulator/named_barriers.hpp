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
  void reset() {
    barriers_ = {};
    met_ = {};
  }

  struct Barrier {
    unsigned threads = 0;  ///< that it waits for; 0: nobody has come
    unsigned arrived = 0;
    std::vector<unsigned> warps;    ///< that have come
    bool votes = false;             ///< whether those who come ask for an answer (named_barrier_any)
    bool any = false;               ///< the answer, so far
    Clock joint;                    ///< what those who came knew
    std::vector<unsigned> waiting;  ///< warps
    int line = 0;                   ///< where the first came

    [[nodiscard]] bool complete() const { return threads != 0 && arrived == threads; }
  };

  /// Counts a warp. Says what is wrong: a number outside 1 to 15, a count of threads that is no multiple of 32 within
  /// the block, or not the one that those who came before gave; a vote where they wait, or the other way round; a warp
  /// that was not among those who met there the time before: it could as well have been counted among them.
  std::optional<std::string> arrive(unsigned id, unsigned warp, unsigned threads, unsigned block_threads, bool votes,
                                    int line);

  /// Begins anew with a barrier to which all have come.
  void finish(unsigned id);

  Barrier& at(unsigned id) { return barriers_[id]; }
  [[nodiscard]] const Barrier& at(unsigned id) const { return barriers_[id]; }

  /// The first to which some have come and not all.
  [[nodiscard]] std::optional<unsigned> half_full() const;

 private:
  /// Those who met at a barrier the last time.
  struct Met {
    std::vector<unsigned> warps;
    int line = 0;
  };

  std::array<Barrier, 16> barriers_;
  std::array<Met, 16> met_;
};

}  // namespace attune::emulator
