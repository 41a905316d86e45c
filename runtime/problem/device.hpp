// What a launch has to know about a GPU.
#pragma once

#include <compare>
#include <string>

#include "generator/arch.hpp"

namespace attune {

struct Device {
  int ordinal = 0;
  std::string name;
  int capability = 0;  ///< 10 * major + minor
  int multiprocessors = 0;
  int shared_per_block = 0;  ///< opt-in maximum, bytes
  int shared_per_sm = 0;
  long long l2_bytes = 0;
};

/// The table's entry for a GPU; for one newer than the table, its own limits.
Arch arch_of(const Device& device);

/// An architecture of the table as a device that is not here, for planning. Its number of multiprocessors and L2
/// size are those of a common card.
Device device_of(const Arch& arch);

/// The thread blocks of a launch; they start with x running fastest, then y.
struct Grid {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
  unsigned cluster = 1;  ///< blocks of a cluster, neighbours along y, of which they are a divisor

  auto operator<=>(const Grid&) const = default;
  [[nodiscard]] unsigned long long blocks() const { return static_cast<unsigned long long>(x) * y * z; }
};

}  // namespace attune
