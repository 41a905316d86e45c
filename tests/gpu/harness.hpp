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

/// Compiles the kernels of these calls, several at a time, before the first of them is made. What is wrong with a call
/// is told when it is made.
template <class Args>
void prepare_ahead(const TestRegistry& registry, attune_operation operation, const std::vector<Args>& calls) {
  std::vector<attune_prepare_item> items;
  for (const Args& call : calls) items.push_back({.operation = operation, .args = &call});
  static_cast<void>(attune_prepare_all(registry.get(), items.data(), items.size(), 0, nullptr, nullptr));
}

/// Stands for memory in the arguments of a call that is prepared and not made.
inline void* no_memory() { return reinterpret_cast<void*>(std::uintptr_t{1} << 40); }

/// A copy of host memory in device memory.
inline DeviceBuffer on_device(const Memory& memory) {
  DeviceBuffer buffer(gpu().driver, memory.size() * sizeof(Memory::value_type));
  buffer.upload(memory);
  return buffer;
}

/// Waits for the GPU and fetches as much of a memory as there was in the beginning.
inline Memory fetched(const DeviceBuffer& buffer, Memory memory) {
  gpu().driver.synchronize();
  buffer.download(memory);
  return memory;
}

/// A call in device memory.
class TestCall {
 public:
  explicit TestCall(CallImage image);
  TestCall(const Problem& problem, Layout layout, std::uint64_t seed) : TestCall(CallImage(problem, layout, seed)) {}

  /// The arguments of the call; a test may change scalars before run().
  attune_prefill_args args{};

  /// Launches and waits; the status of the launch.
  attune_status run(const TestRegistry& registry, void* stream = nullptr) const;

  [[nodiscard]] Outputs fetch() const;

  /// Puts the memory back as it was before the call: inputs, and poison.
  void poison() const;

  [[nodiscard]] const CallImage& image() const { return image_; }
  [[nodiscard]] Comparison compare_with_reference(const Outputs& outputs) const {
    return image_.compare_with_reference(outputs, args.softmax_scale);
  }

 private:
  CallImage image_;
  DeviceBuffer memory_;
};

/// Runs a call so many times, each with its memory as it was before, and checks that it gives these bits.
void check_same_bits(const TestRegistry& registry, const TestCall& call, const Outputs& bits, int times);

/// Runs one call and checks everything a correct one fulfils.
void check_call(const TestRegistry& registry, const TestCall& call);
void check_call(const TestRegistry& registry, const Problem& problem, Layout layout, std::uint64_t seed);

}  // namespace attune::gpu_tests
