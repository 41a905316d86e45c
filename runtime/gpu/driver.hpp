// libcuda, opened on first need: the CUDA driver API without linking to it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/call/device.hpp"
#include "runtime/call/plan.hpp"
#include "runtime/call/tensor_description.hpp"

namespace attune {

/// The driver's opaque handles, so that no CUDA header is needed to read this one.
struct KernelHandle {
  void* library = nullptr;   ///< CUlibrary
  void* function = nullptr;  ///< CUkernel, usable as a CUfunction in any context
};

/// The entry points Attune uses, resolved through cuGetProcAddress. Throws Error on a failed call, with the
/// driver's name for it.
class Driver {
 public:
  /// Opens libcuda.so.1 and initialises it. Throws Error{ATTUNE_NO_DEVICE}.
  Driver();
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] std::string version() const;  ///< "13.0": the newest CUDA it supports
  [[nodiscard]] int device_count() const;
  [[nodiscard]] Device device(int ordinal) const;

  /// Ordinal of the current context's device; nothing when the thread has no context.
  [[nodiscard]] std::optional<int> current_device() const;

  /// The current context of this thread; null when it has none.
  [[nodiscard]] void* current_context() const;

  /// Makes a context that another thread had current this thread's.
  void use_context(void* context) const;

  /// Makes the primary context of a device current on this thread (for the tool and tests; a library call
  /// uses the caller's context).
  void make_current(int ordinal) const;

  /// Loads a cubin or fatbin and finds the kernel; raises its dynamic shared memory limit on this device.
  /// Needs a current context. Safe while this or another thread captures a graph. Throws
  /// Error{ATTUNE_UNSUPPORTED} when the image has no code for this GPU.
  [[nodiscard]] KernelHandle load(std::string_view image, const std::string& name, int shared_bytes, int ordinal) const;
  void unload(KernelHandle kernel) const noexcept;

  /// Makes sure that the current context holds the kernel's code, so that its first launch there loads
  /// nothing (inside a graph capture, say). load() has done it for the context current at that time.
  void warm(KernelHandle kernel) const;

  /// Launches with one by-value parameter block.
  void launch(KernelHandle kernel, const Grid& grid, int threads, int shared_bytes, void* stream, const void* params,
              LaunchOrder order = LaunchOrder::after) const;

  /// Whether what is launched on the stream goes into a graph.
  [[nodiscard]] bool is_capturing(void* stream) const;

  /// Returns once the stream's work is done.
  void synchronize(void* stream) const;

  /// The tensor map for kernels of compute capability 9.0. Needs no context.
  [[nodiscard]] AttuneTensorMap encode(const TensorDescription& tensor) const;

  // What the tool needs to run a kernel on its own.
  [[nodiscard]] void* allocate(std::size_t bytes) const;
  void free(void* pointer) const noexcept;
  void clear(void* pointer, std::size_t bytes, void* stream) const;  ///< queues zeros; waits for nothing
  void copy_to_device(void* to, const void* from, std::size_t bytes) const;
  void copy_to_host(void* to, const void* from, std::size_t bytes) const;
  void synchronize() const;
  [[nodiscard]] void* create_event() const;
  void destroy_event(void* event) const noexcept;
  void record(void* event, void* stream) const;
  [[nodiscard]] double elapsed_ms(void* start, void* stop) const;  ///< waits for `stop`

 private:
  struct Api;
  std::unique_ptr<Api> api_;
};

}  // namespace attune
