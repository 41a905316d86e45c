// One launch of a kernel on the emulator against the float64 reference.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "tests/harness/call_image.hpp"

namespace attune::emulator_tests {

struct Case {
  Problem problem;
  testing::Layout layout;
};

/// CHECKs numbers and that nothing else was written, and REQUIREs that no access is unsafe.
inline void check_image(const EmulatedKernel& kernel, const testing::CallImage& image, std::uint64_t seed) {
  CAPTURE(kernel.variant.name());
  CAPTURE(image.problem().text());
  Memory memory = image.memory();
  const attune_prefill_args args = image.args(memory.data());
  const emulator::Report report = run_emulated(FixedKernels{&kernel}, args, image.problem(), {.seed = seed});
  REQUIRE_MESSAGE(report.ok(), report.fault);
  image.check(image.outputs(std::move(memory)), args.softmax_scale);
}

inline void check_case(const EmulatedKernel& kernel, const Case& one, std::uint64_t seed) {
  CAPTURE(name_of(one.layout));
  check_image(kernel, testing::CallImage(one.problem, one.layout, seed), seed);
}

}  // namespace attune::emulator_tests
