// Boxes on their way from shared memory to a tensor and floats on theirs to sums in global memory, between their issue
// and the wait that covers them.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/emulator/box.hpp"

namespace attune::emulator {

/// Floats in a row of shared memory that are added to global memory (PTX ISA, "cp.reduce.async.bulk").
struct AddedRow {
  float* to = nullptr;
  unsigned address = 0;  ///< in shared memory
  unsigned count = 0;
};

struct BoxStore {
  std::variant<Box, AddedRow> what;
  unsigned thread = 0;      ///< who issued it ...
  std::uint32_t group = 0;  ///< ... in which of its groups, counted from 1 ...
  int line = 0;             ///< ... and where
};

/// The boxes that one block stores, and the rows that it adds. Each is read and written at a moment drawn when it is
/// issued; half of them only when a wait makes them.
class BoxStores {
 public:
  /// A new block.
  void reset(std::uint64_t seed);

  void issue(const BoxStore& store);

  /// Time passes: whatever is due by now is stored.
  void tick(SharedMemory& shared);

  /// Everything the thread issued in groups up to this one has been read, and is known to have been. Boxes are then
  /// stored; rows are added later.
  void finish_reads(unsigned thread, std::uint32_t group, SharedMemory& shared);

  /// All of that has been added, too.
  void finish(unsigned thread, std::uint32_t group, SharedMemory& shared);

  /// The block ends: so does what has been read.
  void end(SharedMemory& shared);

  /// The oldest that no wait has covered; null where there is none.
  [[nodiscard]] const BoxStore* unfinished() const;

 private:
  struct Flight {
    BoxStore store;
    std::uint64_t due = 0;
    bool done = false;
    bool covered = false;       ///< by a wait for reads
    std::vector<float> read{};  ///< of a row that has been read and not added
  };

  static void read(Flight& flight, SharedMemory& shared);
  static void carry_out(Flight& flight, SharedMemory& shared);

  Random random_{0};
  std::uint64_t now_ = 0;
  std::vector<Flight> flights_;  ///< in the order of issue
};

}  // namespace attune::emulator
