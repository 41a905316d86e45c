// The registry: which kernels there are, and the loaded one that serves a problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/log.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/operations/operations.hpp"
#include "runtime/record/record.hpp"
#include "runtime/registry/kernels.hpp"

namespace attune {

struct RegistryOptions {
  attune_device device = ATTUNE_DEVICE_CUDA;
  std::uint64_t emulator_seed = 1;
  attune_compile_policy policy = ATTUNE_COMPILE_MISSING;
  std::filesystem::path cache_root = default_cache_root();
  std::vector<std::filesystem::path> bundles = {};    ///< files whose kernels come before all others
  std::optional<ReadyKernels> ready = {};             ///< in place of theirs and of all others
  std::optional<std::vector<TunedTable>> tuned = {};  ///< in place of default_tuned_tables(); the emulator has none
  Log log = say_on_stderr;
  std::filesystem::path record = default_record_path();  ///< where to record calls (record.hpp); empty: nowhere
};

/// Thread-safe; no lock and no allocation once a problem's kernel has been loaded.
class Registry {
 public:
  /// Throws Error{ATTUNE_INVALID_ARGUMENT} when a bundle is refused.
  explicit Registry(RegistryOptions options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Loads (ready, disk, NVRTC: in this order) whatever serves such a call on the current context's device, with all
  /// kernels that it needs; for the emulator, from the disk or the host's compiler. Waits for a kernel that would be
  /// compiled in the background. Throws Error.
  void prepare(AnyArgs args);

  /// Loads what is not loaded yet, then launches on the stream; the emulator is done when this returns. Throws Error.
  void run(AnyArgs args, void* stream);

  /// What serves such a call now. Loads nothing. Throws Error.
  ServingNames serving(AnyArgs args);

  /// Bytes of workspace that such a call makes use of, or decode needs, also when another kernel takes over. Throws
  /// Error.
  std::size_t workspace_bytes(AnyArgs args);

  /// Makes the CUDA context that is current here current on whichever thread calls the result.
  [[nodiscard]] std::function<void()> share_context();

  /// attune_registry_finish()
  void finish();

  [[nodiscard]] attune_counters counters() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
