// The global memory of a launch: a table of the caller's buffers, each element of which is known by its place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
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

/// Who accesses. Blocks of a launch are ordered with one another only by what a thread has heard.
struct Access {
  unsigned long long block = 0;
  const Clock* clock = nullptr;
  Epoch epoch;
  const std::map<unsigned long long, Clock>* heard = nullptr;  ///< of other blocks, by number; null: nothing
  const char* here = "this block";                             ///< or cluster, whose blocks all have its number

  /// Whether that block did this before.
  [[nodiscard]] bool knows(unsigned long long other, const Epoch& earlier) const;
};

/// Checks every access of every block. Thread-safe.
class GlobalMemory {
 public:
  explicit GlobalMemory(std::vector<Buffer> buffers);
  ~GlobalMemory();

  using Access = emulator::Access;

  /// What is wrong with the access, or nothing: it misses every buffer, is misaligned, reads what nothing wrote, or is
  /// not ordered after another access. A read or write that is right is noted. A row that the copy engine reads or
  /// writes is aligned to its elements alone, and is ordered after no other access to an output. A write is ordered
  /// after no other block's.
  std::optional<std::string> check_load(const void* pointer, unsigned bytes, const Access& access, unsigned alignment);
  std::optional<std::string> check_store(const void* pointer, unsigned bytes, const Access& access);
  std::optional<std::string> check_loaded_row(const void* pointer, unsigned bytes, const Access& access);
  std::optional<std::string> check_stored_row(const void* pointer, unsigned bytes, const Access& access);

  /// An addition to what was there before the launch, carried out whole. Additions have no order among themselves, and
  /// what is added to is neither read nor written.
  std::optional<std::string> check_added(const void* pointer, unsigned bytes, const Access& access);

  /// A word that is announced there, or awaited, is 8 aligned bytes of an output that no other access touches.
  static constexpr unsigned word_bytes = 8;
  std::optional<std::string> check_announced(const void* pointer, const Access& access);
  [[nodiscard]] std::optional<std::string> check_awaited(const void* pointer) const;

  /// "element 5 of out", which check_announced() or check_awaited() has found.
  [[nodiscard]] std::string name_of_word(const void* pointer) const;

 private:
  struct Written;  ///< who wrote each element of a writable buffer

  /// A buffer and the number of the element there, counted over its extents.
  struct BufferElement {
    const Buffer* buffer = nullptr;
    Written* written = nullptr;
    unsigned long long element = 0;
  };

  [[nodiscard]] std::optional<BufferElement> find(const void* pointer, unsigned bytes, bool writable) const;
  [[nodiscard]] std::string missed(const char* does, const void* pointer, unsigned bytes, bool writable) const;

  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Written>> written_;  ///< one for each buffer; null where it is not writable
};

}  // namespace attune::emulator
