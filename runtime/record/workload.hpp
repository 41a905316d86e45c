// Which kernels a workload needs, so that they can be built before it runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/call/device.hpp"
#include "runtime/record/record.hpp"

namespace attune {

/// A kernel, and how much of the workload needs it. Its set of GPUs is those for which it was chosen.
struct NeededKernel {
  Variant variant;
  long long problems = 0;
  long long calls = 0;
};

/// A problem that no kernel can serve.
struct UnservedProblem {
  std::string problem;
  std::string device;
  std::vector<std::string> reasons;
};

struct WorkloadKernels {
  std::vector<NeededKernel> kernels;  ///< each variant once, ascending
  std::vector<UnservedProblem> unserved;

  [[nodiscard]] std::vector<Variant> variants() const;
};

/// What a registry that compiles for exact head dimensions (ATTUNE_COMPILE_EXACT) would serve these problems with on
/// each of these devices, with all launches: kernels that are ready, and others that it would generate. Beside a kernel
/// of decode stands that which merges its parts, unless the caller asks for one part.
WorkloadKernels kernels_for(std::span<const Recorded> workload, std::span<const Device> devices,
                            const ReadyKernels& ready = ReadyKernels());

}  // namespace attune
