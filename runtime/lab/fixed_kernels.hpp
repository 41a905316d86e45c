// Kernels that somebody has chosen, in place of those that a registry would find.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/call/backend.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/operations/operations.hpp"

namespace attune {

/// One for each operation at most.
class FixedKernels : public KernelFinder {
 public:
  FixedKernels() = default;
  FixedKernels(std::initializer_list<const ServingKernel*> kernels) {
    for (const ServingKernel* kernel : kernels) add(*kernel);
  }
  template <class Kernel>
  explicit FixedKernels(const std::vector<Kernel>& kernels) {
    for (const Kernel& kernel : kernels) add(kernel);
  }

  /// In place of what was there for its operation. It outlives this.
  void add(const ServingKernel& kernel) { kernels_[index_of(family_of(kernel.variant).operation)] = &kernel; }

  const ServingKernel& kernel_for(const ProblemView& problem) override {
    const ServingKernel* kernel = kernels_[index_of(problem.operation())];
    if (kernel == nullptr)
      throw Error(ATTUNE_INTERNAL_ERROR, fmt::format("no kernel was given for {}", problem.text()));
    return *kernel;
  }

  const ServingKernel* optional_kernel_for(const ProblemView& problem) override {
    return kernels_[index_of(problem.operation())];
  }

 private:
  static constexpr std::size_t index_of(Operation operation) { return static_cast<std::size_t>(operation); }

  std::array<const ServingKernel*, operation_count> kernels_{};
};

/// Runs something with these kernels on the emulator, `call(backend)`. What the report says of its last launch: the one
/// with a fault, where one has.
emulator::Report emulate(KernelFinder& kernels, const EmulatedRun& how, FunctionRef<void(const Backend&)> call);

/// A checked call of any operation.
template <class Args, class OneProblem>
emulator::Report run_emulated(FixedKernels kernels, const Args& args, const OneProblem& problem,
                              const EmulatedRun& how = {}) {
  return emulate(kernels, how, [&](const Backend& backend) { run(args, problem, backend); });
}

}  // namespace attune
