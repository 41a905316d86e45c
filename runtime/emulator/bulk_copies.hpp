// Copies of boxes of a tensor by the copy engine (PTX ISA, "cp.async.bulk.tensor"), between their issue and their
// landing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/emulator/shared_memory.hpp"
#include "runtime/emulator/tensor_map.hpp"
#include "runtime/random.hpp"

namespace attune::emulator {

struct BulkCopy {
  TensorMap map;
  std::array<int, 4> at{};  ///< the box's first element, innermost dimension first
  unsigned address = 0;     ///< in shared memory
  unsigned barrier = 0;     ///< the mbarrier that counts its bytes
  unsigned thread = 0;      ///< who issued it ...
  int line = 0;             ///< ... and where
};

/// A part of a row of a box that lies within the tensor.
struct BoxRow {
  const std::byte* source = nullptr;
  unsigned bytes = 0;
  unsigned offset = 0;  ///< in the box, before the swizzle
};

/// Every row of the box that is not wholly outside the tensor, in order.
void for_each_row(const BulkCopy& copy, const std::function<void(const BoxRow&)>& visit);

/// Reads the box, zeros where it leaves the tensor, and writes it swizzled.
void carry_out(const BulkCopy& copy, SharedMemory& shared);

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
