// A planned call: the launches that it takes, in their order. The same for GPUs and for the emulator.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "generator/check.hpp"
#include "runtime/call/device.hpp"
#include "runtime/call/operand.hpp"

namespace attune {

/// A kernel that is ready to run: what plans need to know of it. Where its code is, its executor knows.
struct ServingKernel {
  Variant variant;
  Device device;
};

/// When a launch may begin.
enum class LaunchOrder {
  after,        ///< the work before it on its stream has ended
  overlapping,  ///< the kernel before it lets it; it waits for that one's results itself. Compute capability 9.0
};

/// Of a launch behind another one of its plan, whose kernel waits for that one's results.
inline LaunchOrder order_behind(const Device& device) {
  return device.capability >= 90 ? LaunchOrder::overlapping : LaunchOrder::after;
}

/// Grid and block of one launch.
struct Launch {
  Grid grid;  ///< empty: no launch
  int threads = 0;
  int shared_bytes = 0;
};

/// That of a kernel over a grid.
inline Launch launch_of(const Variant& variant, const Grid& grid) {
  const Resources needs = resources(variant);
  return {.grid = grid, .threads = needs.threads, .shared_bytes = needs.shared_bytes};
}

/// One launch. What it points to lives until the plan has been run.
struct Step {
  const ServingKernel* kernel;
  Grid grid;
  int threads;
  int shared_bytes;
  const void* params;  ///< the kernel's parameter block
  Operands operands;   ///< what the kernel may touch
  LaunchOrder order = LaunchOrder::after;
};

/// A Launch, or what a plan says of one, as a step.
template <class AnyLaunch>
Step step_of(const ServingKernel& kernel, const AnyLaunch& launch, const void* params, Operands operands,
             LaunchOrder order = LaunchOrder::after) {
  return {.kernel = &kernel,
          .grid = launch.grid,
          .threads = launch.threads,
          .shared_bytes = launch.shared_bytes,
          .params = params,
          .operands = operands,
          .order = order};
}

/// Up to eight launches, one after the other; it allocates nothing.
class Plan {
 public:
  static constexpr std::size_t most_steps = 8;

  /// A step without thread blocks is none.
  void add(const Step& step) {
    if (step.grid.blocks() > 0) steps_[count_++] = step;
  }

  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] const Step& operator[](std::size_t i) const { return *steps_[i]; }

 private:
  std::array<std::optional<Step>, most_steps> steps_;
  std::size_t count_ = 0;
};

}  // namespace attune
