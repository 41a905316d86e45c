// Boxes on their way from shared memory to a tensor, between their issue and the wait that covers them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/emulator/box.hpp"

namespace attune::emulator {

struct BoxStore {
  Box box;
  unsigned thread = 0;      ///< who issued it ...
  std::uint32_t group = 0;  ///< ... in which of its groups, counted from 1 ...
  int line = 0;             ///< ... and where
};

/// The boxes that one block stores. Each is read and written at a moment drawn when it is issued; half of them only
/// when a wait makes them.
class BoxStores {
 public:
  /// A new block.
  void reset(std::uint64_t seed);

  void issue(const BoxStore& store);

  /// Time passes: whatever is due by now is stored.
  void tick(SharedMemory& shared);

  /// Everything the thread issued in groups up to this one is stored, and known to be.
  void finish(unsigned thread, std::uint32_t group, SharedMemory& shared);

  /// The oldest that no wait has covered; null where there is none.
  [[nodiscard]] const BoxStore* unfinished() const { return flights_.empty() ? nullptr : &flights_.front().store; }

 private:
  struct Flight {
    BoxStore store;
    std::uint64_t due = 0;
    bool done = false;
  };

  static void carry_out(Flight& flight, SharedMemory& shared);

  Random random_{0};
  std::uint64_t now_ = 0;
  std::vector<Flight> flights_;  ///< in the order of issue
};

}  // namespace attune::emulator
