// Registers that warpgroups hand to one another (PTX ISA, "setmaxnreg").
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace attune::emulator {

/// The registers of one block. How many a thread has at launch is the compiler's choice; here it is the most that a
/// multiprocessor can give to a block that is alone on it.
class RegisterPool {
 public:
  /// A new block of so many threads.
  void reset(std::size_t threads);

  /// Why a thread of this warpgroup cannot come to have this many, or nothing: no multiple of 8 from 24 to 256, or less
  /// than it has come to have where it takes, more than it has where it gives.
  [[nodiscard]] std::optional<std::string> problem(std::size_t warpgroup, unsigned registers, bool take) const;

  /// Whether the warpgroup has that many for each thread from now on; false while too few have been given.
  bool change(std::size_t warpgroup, unsigned registers);

  [[nodiscard]] unsigned free() const { return free_; }

 private:
  std::vector<unsigned> of_warpgroup_;  ///< for each of its threads
  std::vector<bool> changed_;           ///< whether these are no longer those of the launch
  unsigned free_ = 0;
};

}  // namespace attune::emulator
