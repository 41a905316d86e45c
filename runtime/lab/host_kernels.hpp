// Kernels of any variant on the emulator.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "generator/emit.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/execute/emulator_executor.hpp"

namespace attune {

/// What the host's compiler makes on first need, from the cache or anew.
class HostKernels {
 public:
  explicit HostKernels(std::filesystem::path cache_root = default_cache_root()) : cache_(std::move(cache_root)) {}

  /// It stays until this goes. Throws Error.
  const EmulatedKernel& operator[](const Variant& variant);

  /// The same of many sources, which are compiled side by side.
  void make(std::span<const Source> sources);

 private:
  const emulator::HostCompiler compiler_;
  const Cache cache_;
  std::map<Variant, std::unique_ptr<const EmulatedKernel>> kernels_;
};

}  // namespace attune
