// Device memory between pages that nothing may touch.
#pragma once

#include <cstddef>
#include <memory>

namespace attune::gpu_tests {

/// Memory of exactly these bytes at one end of pages of its own, with no memory in front of them and none behind: an
/// access out of bounds at that end, or a page away from the other, is a fault of the kernel that makes it.
class GuardedMemory {
 public:
  enum class End {
    front,  ///< begins where the pages do
    back,   ///< ends where the pages do, up to 16 bytes, as the alignment of tensors has it
  };

  GuardedMemory(std::size_t bytes, End end);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  [[nodiscard]] void* data() const;

 private:
  struct Pages;
  std::unique_ptr<Pages> pages_;
};

}  // namespace attune::gpu_tests
