// Host memory of a call: what it reads and writes, one thing after the other, with poison between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/call/field_checks.hpp"

namespace attune {

/// Words, for the storage types have 16 bits. It can be copied to a GPU as it is.
using Memory = std::vector<std::uint16_t>;

/// A NaN in fp16, in bf16 and, twice, in fp32.
inline constexpr std::uint16_t poison = 0x7fff;

/// Deals out places in one memory, in bytes from its beginning.
class Places {
 public:
  static constexpr std::size_t guard = 2048;  ///< bytes before and after each place that nobody owns

  /// The first byte of so many: a multiple of 256, as a GPU's allocator would give.
  std::size_t add(std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    const std::size_t place = end_;
    end_ = (place + bytes + guard + alignment - 1) / alignment * alignment;
    return place;
  }

  /// The place of an array that is to be put there.
  template <class T>
  std::size_t add(const std::vector<T>& values) {
    return add(values.size() * sizeof(T));
  }

  /// Bytes that hold all.
  [[nodiscard]] std::size_t end() const { return end_; }

  [[nodiscard]] Memory memory() const { return Memory(end_ / sizeof(std::uint16_t), poison); }

 private:
  std::size_t end_ = guard;
};

/// Copies an array to its place.
template <class T>
void put(Memory& memory, std::size_t place, const std::vector<T>& values) {
  if (!values.empty())
    std::memcpy(memory.data() + place / sizeof(std::uint16_t), values.data(), values.size() * sizeof(T));
}

/// A copy of the bytes at a place, which become poison.
template <class T>
std::vector<T> take(Memory& memory, std::size_t place, std::size_t count) {
  std::vector<T> values(count);
  std::uint16_t* const first = memory.data() + place / sizeof(std::uint16_t);
  if (count > 0) std::memcpy(values.data(), first, count * sizeof(T));
  for (std::size_t i = 0; i < count * sizeof(T) / sizeof(std::uint16_t); ++i) first[i] = poison;
  return values;
}

/// Sets what rows have beyond their columns where head_dim is no multiple of 8.
inline void fill_padding(std::uint16_t* row, std::size_t rows, int head_dim, std::uint16_t value) {
  const int padded = padded_head_dim(head_dim);
  for (; rows > 0 && padded > head_dim; --rows, row += padded) std::fill(row + head_dim, row + padded, value);
}

/// Rows without that.
inline std::vector<std::uint16_t> without_padding(std::vector<std::uint16_t> rows, int head_dim) {
  const int padded = padded_head_dim(head_dim);
  if (padded == head_dim) return rows;
  auto to = rows.begin();
  for (auto row = rows.begin(); row != rows.end(); row += padded) to = std::copy_n(row, head_dim, to);
  rows.erase(to, rows.end());
  return rows;
}

/// Where something is in a memory, on the host or on a GPU.
template <class T>
T* at(void* memory, std::size_t place) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + place);
}

/// The same of an array; null where it has no elements.
template <class T>
const T* array_at(void* memory, std::size_t place, const std::vector<T>& values) {
  return values.empty() ? nullptr : at<const T>(memory, place);
}

}  // namespace attune
