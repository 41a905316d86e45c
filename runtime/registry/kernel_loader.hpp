// Kernels in a GPU's memory: from the library, from the disk or from NVRTC, each once for each device.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/counters.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/made_once.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/call/device.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/execute/gpu_executor.hpp"
#include "runtime/gpu/driver.hpp"

namespace attune {

/// Thread-safe. Different kernels are loaded and compiled side by side; who wants one that is in the making waits for
/// it. All of them stay loaded until this goes: launches in flight and captured graphs may use them. What loads needs
/// a current context.
class KernelLoader {
 public:
  /// All four outlive it; the log is told what was compiled.
  KernelLoader(const Driver& driver, const Cache& cache, Counters& counters, const Log& log)
      : driver_(driver), cache_(cache), counters_(counters), log_(log) {}

  /// As far as it is loaded already; waits for nobody.
  [[nodiscard]] const LoadedKernel* find(const Variant& variant, int ordinal) const {
    return kernels_.find({ordinal, variant});
  }

  /// What is loaded on a device of an operation's kernels.
  [[nodiscard]] std::vector<Variant> loaded_variants(Operation operation, int ordinal) const;

  /// Null when the image has no code for this GPU. Throws Error.
  const LoadedKernel* load_ready(const ReadyKernel& kernel, const Device& device);

  /// A kernel of exactly this variant from the disk; null when it is not there. Throws Error, with ATTUNE_NOT_COMPILED
  /// where there is no NVRTC, whose version is part of the name under which a kernel is kept.
  const LoadedKernel* load_cached(const Variant& variant, const Device& device);

  /// A kernel of exactly this variant: generated, then from the disk or from NVRTC. Throws Error, with
  /// ATTUNE_NOT_COMPILED where there is no NVRTC.
  const LoadedKernel& load_generated(const Variant& variant, const Device& device);

 private:
  /// From the disk without libnvrtc, where an earlier process has noted which one this machine has.
  std::optional<Compiled> find_noted(const Variant& variant, int capability);
  /// Whether the next process may look kernels up without libnvrtc.
  enum class Note { no, yes };
  const Compiler& open_compiler(Note note);
  std::unique_ptr<const LoadedKernel> load(const Variant& variant, const Device& device, std::string_view image,
                                           const std::string& name);

  const Driver& driver_;
  const Cache& cache_;
  Counters& counters_;
  const Log& log_;
  std::mutex compiler_mutex_;  ///< of opening it
  std::unique_ptr<Compiler> compiler_;
  MadeOnce<std::pair<int, Variant>, LoadedKernel> kernels_;  ///< by ordinal and variant
};

}  // namespace attune
