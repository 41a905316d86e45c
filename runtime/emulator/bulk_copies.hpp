// Bulk copies on their way to shared memory, between their issue and their landing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/emulator/box.hpp"

namespace attune::emulator {

/// Bytes in a row of global memory and where they go (PTX ISA, "cp.async.bulk").
struct ByteRow {
  const std::byte* from = nullptr;
  unsigned address = 0;  ///< in shared memory
  unsigned bytes = 0;
};

struct BulkCopy {
  std::variant<Box, ByteRow> what;
  unsigned barrier = 0;  ///< the mbarrier that counts its bytes
  unsigned thread = 0;   ///< who issued it ...
  int line = 0;          ///< ... and where
};

/// The copies that one block has under way. Each is due at a moment drawn when it is issued; half of them land only
/// when nothing else can happen any more.
class BulkCopies {
 public:
  void reset(std::uint64_t seed);

  void issue(const BulkCopy& copy);

  void tick() { ++now_; }

  /// One that is due by now, taken out.
  std::optional<BulkCopy> due();

  /// Any, taken out.
  std::optional<BulkCopy> any();

 private:
  struct Flight {
    BulkCopy copy;
    std::uint64_t due;
  };

  std::optional<BulkCopy> take(std::vector<Flight>::iterator flight);

  Random random_{0};
  std::uint64_t now_ = 0;
  std::vector<Flight> flights_;
};

}  // namespace attune::emulator
