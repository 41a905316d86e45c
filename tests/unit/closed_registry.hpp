// A registry of the C ABI that compiles nothing, and pointers that nobody follows, for tests of arguments.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>

#include "attune/attune.h"

namespace attune::testing {

/// A registry that compiles nothing and writes nowhere.
class RegistryHandle {
 public:
  RegistryHandle() {
    attune_options options{};
    options.struct_size = sizeof(options);
    options.compile_policy = ATTUNE_COMPILE_FROZEN;
    REQUIRE(attune_registry_create(&options, &handle_) == ATTUNE_OK);
  }
  ~RegistryHandle() { attune_registry_destroy(handle_); }
  RegistryHandle(const RegistryHandle&) = delete;
  RegistryHandle& operator=(const RegistryHandle&) = delete;
  [[nodiscard]] attune_registry* get() const { return handle_; }

 private:
  attune_registry* handle_ = nullptr;
};

inline void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

}  // namespace attune::testing
