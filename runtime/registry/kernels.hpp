// The kernels of a registry, on whatever runs them.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/call/backend.hpp"

namespace attune {

/// Which kernel serves a call, by name, and which is to take over; empty where there is none.
struct ServingNames {
  std::string now;
  std::string coming;
};

/// Thread-safe.
class Kernels : public KernelFinder {
 public:
  /// As kernel_for(), but where another kernel is to take over it waits for that one, and what it finds is launched
  /// without loading anything. Throws Error; a lack of what is not needed counts as no failure.
  virtual const ServingKernel& prepare(const ProblemView& problem, Needed needed) = 0;

  /// What serves the problem now. Loads nothing. Throws Error.
  virtual ServingNames serving(const ProblemView& problem) = 0;

  /// The most that this says of the kernel that serves the problem, and of one that is to take over; as MostBytes has
  /// it. Throws Error.
  virtual std::size_t most_bytes(const ProblemView& problem,
                                 FunctionRef<std::size_t(const Variant&, const Device&)> bytes, Needed needed) = 0;
};

}  // namespace attune
