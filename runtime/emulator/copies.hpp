// Asynchronous copies between their issue and their landing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <queue>
#include <vector>

#include "runtime/base/random.hpp"

namespace attune::emulator {

/// The longest that a copy takes, in collectives of its block, unless only the wait for it ends it: some copies land
/// within a few instructions, some much later.
inline constexpr std::uint64_t longest_copy = 400;

/// The copies that one block has under way. Each is due at a moment drawn when it is issued; half of them never come
/// before the wait that covers them makes them.
class Copies {
 public:
  explicit Copies(std::size_t threads) : of_thread_(threads) {}

  /// A new block.
  void reset(std::uint64_t seed);

  static constexpr unsigned bytes = 16;  ///< that one writes

  /// `to` is in shared memory. Operands are read when the copy lands. What the source's bytes do not fill becomes zero.
  void issue(unsigned thread, std::uint32_t group, std::byte* to, const void* source, unsigned source_bytes);

  /// Time passes: whatever is due by now lands.
  void tick();

  /// Everything the thread issued in groups up to this one lands.
  void finish(unsigned thread, std::uint32_t group);

 private:
  struct Copy {
    std::uint32_t group;
    std::byte* to;
    const void* source;
    unsigned source_bytes;
    bool landed;
  };
  struct Due {
    std::uint64_t when;
    std::size_t copy;
    bool operator>(const Due& other) const { return when != other.when ? when > other.when : copy > other.copy; }
  };

  static void land(Copy& copy);

  Random random_{0};
  std::uint64_t now_ = 0;
  std::vector<Copy> copies_;  ///< of this block, in the order of issue
  std::vector<std::deque<std::size_t>> of_thread_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

}  // namespace attune::emulator
