// Barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier"), without the threads that wait there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/emulator/clock.hpp"

namespace attune::emulator {

/// One barrier object. Phases are counted from 0; the current one is over when no arrival and no byte is missing.
struct Mbarrier {
  unsigned address = 0;
  std::uint32_t agent = 0;  ///< of the copies that signal here: those of phase p have time p + 1
  unsigned arrivals = 0;    ///< that a phase expects
  Epoch init;
  std::optional<Epoch> fence;  ///< after which the copy engine knows the barrier

  std::uint32_t phase = 0;
  unsigned missing_arrivals = 0;
  long long missing_bytes = 0;  ///< negative: landed before they were expected
  Clock arrived;                ///< what those who came in this phase knew
  Clock over;                   ///< ... in the last

  // Bulk copies that signal here.
  unsigned under_way = 0;
  std::uint32_t copied = 0;  ///< phases, counted from 1, of the newest copy, ...
  int copied_line = 0;       ///< ... its line ...
  unsigned copied_by = 0;    ///< ... and thread
  std::uint32_t seen = 0;    ///< phases, counted from 1, whose end somebody waited for

  std::vector<unsigned> waiting;  ///< threads, for the current phase
  std::vector<unsigned> unseen;   ///< threads that waited for the last phase and have not run since its end

  /// Whether the newest phase of this parity is over.
  [[nodiscard]] bool is_over(unsigned parity) const { return (phase & 1) != parity; }
  [[nodiscard]] bool complete() const { return missing_arrivals == 0 && missing_bytes == 0; }

  /// One arrival that expects so many bytes more. Says what is wrong: more arrivals than the phase expects, or more
  /// bytes than the barrier can count.
  std::optional<std::string> arrive(unsigned bytes, const Clock& clock);

  /// The current phase is over. Says what is wrong: copies of this phase are still under way, or a thread may miss the
  /// phase before.
  std::optional<std::string> advance();
};

/// The barriers of one block.
class Mbarriers {
 public:
  void reset() { barriers_.clear(); }

  /// Says what is wrong: the place is no multiple of 8, the count is not in 1 to 2^20 - 1, a barrier is there already.
  std::optional<std::string> init(unsigned address, unsigned arrivals, const Epoch& by, std::uint32_t agent);

  /// Shows the copy engine the barriers that this thread has initialised.
  void fence(const Epoch& by);

  /// Why somebody who knows this much may not use a barrier there, or nothing.
  [[nodiscard]] std::optional<std::string> misuse(unsigned address, const Clock& clock) const;

  Mbarrier& at(unsigned address) { return barriers_.at(address); }

  /// Why these bytes may not be accessed as memory, or nothing.
  [[nodiscard]] std::optional<std::string> overlap(unsigned address, unsigned bytes) const;

  [[nodiscard]] const std::map<unsigned, Mbarrier>& all() const { return barriers_; }

 private:
  std::map<unsigned, Mbarrier> barriers_;  ///< by address
};

}  // namespace attune::emulator
