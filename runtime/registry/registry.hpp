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
#include "runtime/record/record.hpp"

namespace attune {

struct RegistryOptions {
  attune_device device = ATTUNE_DEVICE_CUDA;
  std::uint64_t emulator_seed = 1;
  attune_compile_policy policy = ATTUNE_COMPILE_MISSING;
  std::filesystem::path cache_root = default_cache_root();
  std::vector<std::filesystem::path> bundles = {};    ///< files whose kernels come before all others
  std::optional<ReadyKernels> ready = {};             ///< in place of theirs and of all others
  std::optional<std::vector<TunedTable>> tuned = {};  ///< in place of default_tuned_tables(); the emulator has none
  Log log = warn_on_stderr;
  std::filesystem::path record = default_record_path();  ///< where to record calls (record.hpp); empty: nowhere
};

/// Which kernel serves a call, by name, and which is to take over; empty where there is none.
struct ServingNames {
  std::string now;
  std::string coming;
};

/// Thread-safe; no lock and no allocation once a problem's kernel has been loaded.
class Registry {
 public:
  /// Throws Error{ATTUNE_INVALID_ARGUMENT} when a bundle is refused.
  explicit Registry(RegistryOptions options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Loads (ready, disk, NVRTC: in this order) whatever serves this problem on the current context's
  /// device; for the emulator, from the disk or the host's compiler. Waits for a kernel that would be compiled in the
  /// background. Throws Error.
  void prepare(const attune_prefill_args& args);

  /// The same for decode: both of its kernels, where it needs the second.
  void prepare(const attune_decode_args& args);
  void prepare(const attune_store_kv_args& args);
  void prepare(const attune_merge_states_args& args);

  /// Loads what is not loaded yet, then launches on the stream; the emulator is done when this returns. Throws Error.
  void prefill(const attune_prefill_args& args, void* stream);
  void decode(const attune_decode_args& args, void* stream);
  void store_kv(const attune_store_kv_args& args, void* stream);
  void merge_states(const attune_merge_states_args& args, void* stream);

  /// What serves such a call now. Loads nothing. Throws Error.
  ServingNames serving(const attune_prefill_args& args);
  ServingNames serving(const attune_decode_args& args);
  ServingNames serving(const attune_store_kv_args& args);
  ServingNames serving(const attune_merge_states_args& args);

  /// Bytes of workspace that prefill() makes use of and decode() needs, also when another kernel takes over. Throws
  /// Error.
  std::size_t prefill_workspace(const attune_prefill_args& args);
  std::size_t decode_workspace(const attune_decode_args& args);

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
