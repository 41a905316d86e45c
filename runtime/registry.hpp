// The registry: which kernels there are, and the loaded one that serves a problem.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "attune/attune.h"
#include "runtime/cache.hpp"
#include "runtime/driver.hpp"
#include "runtime/plan.hpp"

namespace attune {

/// A kernel that was compiled when the library was built.
struct EmbeddedKernel {
  Variant variant;
  std::string_view name;    ///< the extern "C" name
  std::string_view fatbin;  ///< compressed: sm_80, sm_90, compute_80 PTX
};

/// All of them, in the order of preference of the shipped specs. Empty when built without a CUDA toolkit.
std::span<const EmbeddedKernel> embedded_kernels();

/// The templates the library carries for run-time generation.
const TemplateFiles& embedded_templates();

struct RegistryOptions {
  attune_compile_policy policy = ATTUNE_COMPILE_MISSING;
  std::filesystem::path cache_root = default_cache_root();
};

/// Thread-safe; no lock and no allocation once a problem's kernel has been loaded.
class Registry {
 public:
  explicit Registry(RegistryOptions options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Loads (embedded, disk, NVRTC: in this order) whatever serves this problem on the current context's
  /// device. Throws Error.
  void prepare(const attune_prefill_args& args);

  /// prepare(), then launches on the stream. Throws Error.
  void prefill(const attune_prefill_args& args, void* stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
