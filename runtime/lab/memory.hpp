// Host memory of a call: what it reads and writes, one thing behind the other, with poison between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attune {

/// Words, for the storage types have 16 bits. It can be copied to a GPU as it is.
using Memory = std::vector<std::uint16_t>;

/// A NaN in fp16, in bf16 and, twice, in fp32.
inline constexpr std::uint16_t poison = 0x7fff;

/// Deals out places in one memory.
class Places {
 public:
  static constexpr std::size_t guard = 512;  ///< bytes in front of each place and behind it that are nobody's

  /// The first byte of so many: a multiple of 256, as a GPU's allocator would give.
  std::size_t add(std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    const std::size_t place = end_;
    end_ = (place + bytes + guard + alignment - 1) / alignment * alignment;
    return place;
  }

  /// Bytes that hold all.
  [[nodiscard]] std::size_t end() const { return end_; }

 private:
  std::size_t end_ = guard;
};

}  // namespace attune
