// The kernels of a registry that emulates: made by the host's compiler on first need, and kept.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "attune/attune.h"
#include "generator/emit.hpp"
#include "runtime/base/counters.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/made_once.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/registry/kernels.hpp"

namespace attune {

/// Where the cache keeps what this compiler makes of a source.
CacheKey emulator_key(const emulator::HostCompiler& compiler, const Source& source);

/// The shared object of a source, from the cache or from the compiler.
Compiled compile_cached(const emulator::HostCompiler& compiler, const Source& source, const Cache& cache);

class EmulatedKernels : public Kernels {
 public:
  /// What is ready says which variants are preferred; their images, for GPUs, are not used.
  /// All of them outlive it; the log is told what was compiled. With ATTUNE_COMPILE_BACKGROUND it compiles and waits,
  /// as with ATTUNE_COMPILE_EXACT.
  EmulatedKernels(attune_compile_policy policy, const ReadyKernels& ready, const Cache& cache, Counters& counters,
                  const Log& log)
      : policy_(policy), ready_(ready), cache_(cache), counters_(counters), log_(log) {}

  const EmulatedKernel& kernel_for(const ProblemView& problem) override;
  const EmulatedKernel* optional_kernel_for(const ProblemView& problem) override;
  std::optional<Variant> optional_variant_for(const ProblemView& problem) override;
  const EmulatedKernel& prepare(const ProblemView& problem, Needed needed) override {
    return find_or_make(problem, needed);
  }
  ServingNames serving(const ProblemView& problem) override;
  std::size_t most_bytes(const ProblemView& problem, FunctionRef<std::size_t(const Variant&, const Device&)> bytes,
                         Needed needed) override;

 private:
  /// Throws Error. A lack of what a call may do without is no failure that counts.
  const EmulatedKernel& find_or_make(const ProblemView& problem, Needed needed);
  [[nodiscard]] Variant choice(const ProblemView& problem) const;
  std::unique_ptr<const EmulatedKernel> make(const Variant& variant);
  const emulator::HostCompiler& open_compiler();

  const attune_compile_policy policy_;
  const ReadyKernels& ready_;
  const Cache& cache_;
  Counters& counters_;
  const Log& log_;
  std::mutex compiler_mutex_;  ///< of finding it
  std::unique_ptr<emulator::HostCompiler> compiler_;
  MadeOnce<Variant, EmulatedKernel> kernels_;
};

}  // namespace attune
