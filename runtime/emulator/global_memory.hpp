// The global memory of a launch: a table of the caller's buffers, each element of which is known by its place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/emulator/clock.hpp"

namespace attune::emulator {

/// A strided array of the caller's: what lies between its rows does not belong to it.
struct Buffer {
  std::string name;  ///< "q"
  void* data = nullptr;
  int element_bytes = 2;
  std::array<long long, 4> extents{};  ///< elements, outermost first; the last dimension is contiguous
  std::array<long long, 3> strides{};  ///< of the first three, in elements
  bool writable = false;               ///< written by the kernel, and unreadable before
};

/// Checks every access of every block. Thread-safe.
class GlobalMemory {
 public:
  explicit GlobalMemory(std::vector<Buffer> buffers);
  ~GlobalMemory();

  /// Who accesses: blocks of a launch are not ordered with one another.
  struct Access {
    unsigned long long block = 0;
    const Clock* clock = nullptr;
    Epoch epoch;
  };

  /// What is wrong with the access, or nothing: it misses every buffer, is misaligned, reads what nothing wrote, or is
  /// not ordered after another access. A read or write that is right is noted. A row that the copy engine reads or
  /// writes is aligned to its elements alone, and is ordered after no other access to an output.
  std::optional<std::string> check_load(const void* pointer, unsigned bytes, const Access& access);
  std::optional<std::string> check_store(const void* pointer, unsigned bytes, const Access& access);
  std::optional<std::string> check_loaded_row(const void* pointer, unsigned bytes, const Access& access);
  std::optional<std::string> check_stored_row(const void* pointer, unsigned bytes, const Access& access);

 private:
  struct Written;  ///< who wrote each element of a writable buffer

  /// A buffer and the number of the element there, counted over its extents.
  struct Place {
    const Buffer* buffer = nullptr;
    Written* written = nullptr;
    unsigned long long element = 0;
  };

  [[nodiscard]] std::optional<Place> find(const void* pointer, unsigned bytes, bool writable) const;
  [[nodiscard]] std::string missed(const void* pointer, unsigned bytes, bool writable) const;

  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Written>> written_;  ///< one for each buffer; null where it is not writable
};

}  // namespace attune::emulator
