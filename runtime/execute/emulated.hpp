// Problems served by the emulator: the same plan and parameters as on a GPU, over the caller's host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/counters.hpp"
#include "runtime/base/made_once.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "runtime/operations/store/problem.hpp"
#include "templates/params.h"
#include "templates/shared_tiles.h"
#include "templates/tile_list.h"

namespace attune {

/// What the kernel may touch: the tensors of a checked call, as far as they are read or written.
std::vector<emulator::Buffer> buffers_of(const attune_prefill_args& args, const Problem& problem);

/// The parameter block of a planned call, with tensor maps for the emulator's copy engine where the family has them.
class EmulatedParams {
 public:
  EmulatedParams(const attune_prefill_args& args, const Problem& problem, const Plan& plan);

  EmulatedParams(const EmulatedParams&) = delete;
  EmulatedParams& operator=(const EmulatedParams&) = delete;

  /// What emulator::Launch::params is.
  [[nodiscard]] const void* get() const { return used_; }

  /// What the kernel may touch: buffers_of() that call, and what the launch uses of its workspace.
  [[nodiscard]] std::vector<emulator::Buffer> memory(const attune_prefill_args& args, const Problem& problem) const;

 private:
  AttuneListedPrefillParams listed_{};  // aligned to 64 bytes, and so the first
  AttuneSharedPrefillParams shared_{};
  long long signals_ = 0;  ///< how many it has
  AttunePrefillParams params_{};
  const void* used_;  ///< one of these
};

/// How to run a call, besides what it computes.
struct EmulatedRun {
  std::uint64_t seed = 1;    ///< of the schedule
  int jobs = 0;              ///< blocks at a time; 0: one for each core
  bool count_banks = false;  ///< fill Report::sites
};

/// Plans a checked call for the variant that the kernel was made of, and runs it.
emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, const attune_prefill_args& args,
                              const Problem& problem, const EmulatedRun& how);

/// Where the cache keeps what this compiler makes of a source.
CacheKey emulator_key(const emulator::HostCompiler& compiler, const Source& source);

/// The shared object of a source, from the cache or from the compiler.
Compiled compile_cached(const emulator::HostCompiler& compiler, const Source& source, const Cache& cache);

/// The kernels of a registry that emulates, made on first need and kept. Thread-safe.
class EmulatedKernels {
 public:
  /// What is ready says which variants are preferred; their images, for GPUs, are not used.
  /// All three outlive it. With ATTUNE_COMPILE_BACKGROUND it compiles and waits, as with ATTUNE_COMPILE_EXACT.
  EmulatedKernels(attune_compile_policy policy, const ReadyKernels& ready, const Cache& cache, Counters& counters,
                  std::uint64_t seed)
      : policy_(policy), ready_(ready), cache_(cache), counters_(counters), seed_(seed) {}

  /// Compiles or fetches what serves the problem. Throws Error.
  void prepare(const Problem& problem);
  void prepare(const DecodeProblem& problem);
  void prepare(const StoreProblem& problem);
  void prepare(const MergeProblem& problem);
  void prepare(const CheckProblem& problem);

  /// prepare(), then runs the call to its end. Throws Error{ATTUNE_KERNEL_FAULT} with what the emulator found.
  void prefill(const attune_prefill_args& args, const Problem& problem);
  void decode(const attune_decode_args& args, const DecodeProblem& problem);
  void store_kv(const attune_store_kv_args& args, const StoreProblem& problem);
  void merge_states(const attune_merge_states_args& args, const MergeProblem& problem);

  /// Throws Error{ATTUNE_INVALID_ARGUMENT} with what a check of the caller's tables found.
  void check(const AttuneCheckParams& params);

  /// The name of the kernel that serves the problem; empty before it was made.
  template <class AnyProblem>
  std::string serving(const AnyProblem& problem) const;

  /// Bytes that prefill() makes use of.
  [[nodiscard]] std::size_t prefill_workspace(const Problem& problem) const;

  /// The launches of a call. Throws Error.
  DecodePlan decode_plan(const DecodeProblem& problem);

 private:
  struct Made {
    Variant variant;
    emulator::Kernel kernel;
  };

  template <class AnyProblem>
  [[nodiscard]] Variant choice(const AnyProblem& problem) const;
  template <class AnyProblem>
  const Made& kernel_for(const AnyProblem& problem);
  std::unique_ptr<const Made> make(const Variant& variant);
  const emulator::HostCompiler& open_compiler();

  /// An operation that is one launch.
  template <class Args, class AnyProblem>
  void run(const Args& args, const AnyProblem& problem);

  const attune_compile_policy policy_;
  const ReadyKernels& ready_;
  const Cache& cache_;
  Counters& counters_;
  const std::uint64_t seed_;
  std::mutex compiler_mutex_;  ///< of finding it
  std::unique_ptr<emulator::HostCompiler> compiler_;
  MadeOnce<Variant, Made> kernels_;
};

}  // namespace attune
