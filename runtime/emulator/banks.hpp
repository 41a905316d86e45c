// Shared-memory wavefronts: how many passes over the 32 banks the accesses of each source line take.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "runtime/emulator/emulator.hpp"

namespace attune::emulator {

/// Counts for one block. An access of 16 bytes a lane is served 8 lanes at a time, one of 8 bytes 16 lanes, a smaller
/// one the whole warp at once; a pass delivers one word of each bank.
class Banks {
 public:
  explicit Banks(std::size_t warps) : open_(warps) {}

  /// One lane's part of an access of its warp. Which lanes' parts belong together is told by their order: the n-th
  /// times that lanes come through a line between two collectives are one access.
  void note(unsigned warp, unsigned lane, int line, unsigned address, unsigned bytes);

  /// The warp has come to a collective: what was noted since the last is complete.
  void close(unsigned warp);

  [[nodiscard]] const std::map<int, BankSite>& sites() const { return sites_; }

 private:
  struct Part {
    int line;
    unsigned lane;
    unsigned address;
    unsigned bytes;
  };

  void count(int line, std::span<const Part> access);

  std::vector<std::vector<Part>> open_;  ///< for each warp
  std::map<int, BankSite> sites_;
};

}  // namespace attune::emulator
