// What tests of the registry over the fake driver (tests/fake_driver) share.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/fake_driver/fake_cuda.hpp"

namespace attune::registry_tests {

/// Allocations of this thread, so that a test can say "none".
inline long long& allocations() {
  thread_local long long count = 0;
  return count;
}

/// The fake in the real one's place: whoever opens "libcuda.so.1" from now on gets it, by its soname.
inline void* fake_library() {
  static void* const library = dlopen(ATTUNE_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  return library;
}

inline testing::FakeCuda& fake_cuda() {
  REQUIRE(fake_library() != nullptr);
  void* const symbol = dlsym(fake_library(), "fake_cuda_state");
  REQUIRE(symbol != nullptr);
  return *reinterpret_cast<testing::FakeCudaState*>(symbol)();
}

inline int capture_mode() {
  return reinterpret_cast<testing::FakeCaptureMode*>(dlsym(fake_library(), "fake_cuda_capture_mode"))();
}

/// A fake driver in its first state, a cache folder of its own, and device 0 current.
class Bench {
 public:
  Bench() {
    fake().reset();
    fake().current_device = 0;
  }
  ~Bench() { fake().reset(); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  [[nodiscard]] static testing::FakeCuda& fake() { return fake_cuda(); }
  /// Without tuned tables, whichever are embedded.
  [[nodiscard]] RegistryOptions options(attune_compile_policy policy = ATTUNE_COMPILE_MISSING) const {
    return {.policy = policy, .cache_root = folder(), .tuned = std::vector<TunedTable>{}};
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

inline void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

/// Whether anything can be served here at all: an embedded kernel, or NVRTC.
inline bool can_serve() {
  if (!embedded_kernels().empty()) return true;
  try {
    const Compiler compiler;
    return true;
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return false;
  }
}

inline attune_status status_of(const auto& body) {
  try {
    body();
    return ATTUNE_OK;
  } catch (const Error& error) {
    CHECK_FALSE(std::string(error.what()).empty());
    return error.status();
  }
}

}  // namespace attune::registry_tests
