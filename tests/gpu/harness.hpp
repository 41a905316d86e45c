// One attention call on the GPU through the C ABI, and its comparison with the float64 reference.
#pragma once

#include <cstdint>
#include <vector>

#include "attune/attune.h"
#include "runtime/cli/machine.hpp"
#include "runtime/lab/device_memory.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "tests/harness/call_image.hpp"

namespace attune::gpu_tests {

using testing::CallImage;
using testing::Layout;

/// The GPU under test; main() has made sure that there is one.
const cli::Gpu& gpu();

/// A registry of the C ABI that goes when this goes.
class TestRegistry {
 public:
  explicit TestRegistry(attune_compile_policy policy = ATTUNE_COMPILE_MISSING,
                        attune_device device = ATTUNE_DEVICE_CUDA);
  ~TestRegistry();
  TestRegistry(const TestRegistry&) = delete;
  TestRegistry& operator=(const TestRegistry&) = delete;

  [[nodiscard]] attune_registry* get() const { return registry_; }

 private:
  attune_registry* registry_ = nullptr;
};

/// A call in device memory.
class TestCall {
 public:
  explicit TestCall(CallImage image);
  TestCall(const Problem& problem, Layout layout, std::uint64_t seed) : TestCall(CallImage(problem, layout, seed)) {}

  /// The arguments of the call; a test may change scalars before run().
  attune_prefill_args args{};

  /// Launches and waits; the status of the launch.
  attune_status run(const TestRegistry& registry, void* stream = nullptr) const;

  using Output = CallImage::Output;
  [[nodiscard]] Output fetch() const;

  /// Puts the poison back.
  void poison() const;

  [[nodiscard]] const CallImage& image() const { return image_; }
  [[nodiscard]] Comparison compare_with_reference(const Output& output) const {
    return image_.compare_with_reference(output, args.softmax_scale);
  }

 private:
  CallImage image_;
  DeviceBuffer in_;
  DeviceBuffer out_;
  DeviceBuffer lse_;
  DeviceBuffer cu_seqlens_q_;
  DeviceBuffer cu_seqlens_k_;
  DeviceBuffer seqused_k_;
  DeviceBuffer seqused_q_;
  DeviceBuffer block_table_;
};

/// Runs one call and checks everything a correct one fulfils.
void check_call(const TestRegistry& registry, const TestCall& call);
void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed);

}  // namespace attune::gpu_tests
