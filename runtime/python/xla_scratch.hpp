// Device memory that XLA lends to a call.
#pragma once

#include <cstddef>

#include "runtime/python/xla_ffi_abi.hpp"

namespace attune::xla {

/// Memory from XLA's allocator until this goes, which may be as soon as the work that uses it is queued: XLA hands it
/// on in the order of the stream.
class Scratch {
 public:
  /// None where XLA has no room.
  Scratch(const CallFrame& frame, std::size_t bytes) : frame_(frame) {
    if (bytes == 0) return;
    MemoryAllocateArgs wanted{sizeof(wanted), nullptr, frame.context, bytes, alignment, nullptr};
    if (Error* failed = frame.api->memory_allocate(&wanted)) {
      forget(failed);
      return;
    }
    data_ = wanted.data;
    bytes_ = bytes;
  }
  ~Scratch() {
    if (data_ == nullptr) return;
    MemoryFreeArgs done{sizeof(done), nullptr, frame_.context, bytes_, data_};
    if (Error* failed = frame_.api->memory_free(&done)) forget(failed);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] void* data() const { return data_; }  ///< null: none
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t alignment = 16;

  void forget(Error* failed) const {
    ErrorDestroyArgs it{sizeof(it), nullptr, failed};
    frame_.api->error_destroy(&it);
  }

  const CallFrame& frame_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace attune::xla
