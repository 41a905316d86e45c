// Where calls run: what finds their kernels, and what runs their plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attune/attune.h"
#include "runtime/base/error.hpp"
#include "runtime/base/function_ref.hpp"
#include "runtime/call/plan.hpp"
#include "runtime/call/problem_view.hpp"
#include "runtime/call/tensor_description.hpp"

namespace attune {

/// Whether a problem's lack of a kernel is one of the kinds that a call may do without: no template serves it here, or
/// the policy or the machine forbids to make what does.
inline bool is_lack(const Error& error) {
  return error.status() == ATTUNE_NOT_COMPILED || error.status() == ATTUNE_UNSUPPORTED;
}

class KernelFinder {
 public:
  virtual ~KernelFinder() = default;

  /// What serves a problem; it stays until this goes. Throws Error.
  virtual const ServingKernel& kernel_for(const ProblemView& problem) = 0;

  /// The same for what a call may do without: null where nothing serves it. Throws Error where something fails.
  virtual const ServingKernel* optional_kernel_for(const ProblemView& problem) {
    try {
      return &kernel_for(problem);
    } catch (const Error& error) {
      if (!is_lack(error)) throw;
      return nullptr;
    }
  }

  /// The variant that optional_kernel_for() would find; nothing where none serves. Asks for the kernel where it is not
  /// known otherwise.
  virtual std::optional<Variant> optional_variant_for(const ProblemView& problem) {
    const ServingKernel* const kernel = optional_kernel_for(problem);
    return kernel == nullptr ? std::nullopt : std::optional(kernel->variant);
  }
};

/// Whether a call has to have a kernel.
enum class Needed { yes, no };

/// As kernel_for(), as a parameter. That what is not needed is lacking counts as no failure, though it is thrown, too.
using FindKernel = FunctionRef<const ServingKernel&(const ProblemView&, Needed)>;

/// The most that `bytes(variant, device)` says of the kernels that serve a problem or are to take over; 0 where none
/// serves one that a call may do without.
using MostBytes = FunctionRef<std::size_t(
    const ProblemView&, FunctionRef<std::size_t(const Variant&, const Device&)> bytes, Needed needed)>;

class Executor {
 public:
  virtual ~Executor() = default;

  /// Queues the plan's launches on the stream; an executor without streams is done when it returns. Throws Error.
  virtual void run(const Plan& plan, void* stream) = 0;

  /// Runs one launch, whose kernel writes `bytes` to the place that `step_at` is told, waits for it and copies them to
  /// `result`. Throws Error{ATTUNE_INVALID_ARGUMENT} where the stream cannot be waited for, which names `asker`.
  virtual void ask(const char* asker, FunctionRef<Step(void* place)> step_at, void* result, std::size_t bytes,
                   void* stream) = 0;

  /// Copies from a call's operands to the host. What writes them must have ended.
  virtual void read(void* to, const void* from, std::size_t bytes) const = 0;

  /// Whether what the stream is given is captured into a graph.
  virtual bool is_capturing(void* stream) const = 0;

  /// A tensor map for kernels of compute capability 9.0.
  virtual AttuneTensorMap encode(const TensorDescription& tensor) const = 0;

  /// A number, not 0, that no memory can be expected to hold; another one for each launch.
  virtual std::uint64_t launch_number() = 0;
};

struct Backend {
  KernelFinder& kernels;
  Executor& executor;
  void* stream;
};

}  // namespace attune
