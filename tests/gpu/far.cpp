// Tensors beyond 2^32 elements, and sequences of a million keys, on the GPU.
#include <doctest/doctest.h>

#include <memory>

#include "runtime/base/error.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/far_calls.hpp"

namespace attune::gpu_tests {
namespace {

using testing::Far;
using testing::far_strides;

class DeviceMemory : public testing::FarMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : data_(gpu().driver.allocate(bytes)) {}
  ~DeviceMemory() override { gpu().driver.free(data_); }

  [[nodiscard]] char* data() const override { return static_cast<char*>(data_); }
  void write(std::size_t offset, const void* from, std::size_t bytes) override {
    gpu().driver.copy_to_device(data() + offset, from, bytes);
  }
  void read(void* to, std::size_t offset, std::size_t bytes) const override {
    gpu().driver.synchronize();
    gpu().driver.copy_to_host(to, data() + offset, bytes);
  }

 private:
  void* data_;
};

std::unique_ptr<testing::FarMemory> allocated(std::size_t bytes) { return std::make_unique<DeviceMemory>(bytes); }

/// Whether the GPU has the memory; says so where it has not.
bool has_room() {
  constexpr std::size_t needed = std::size_t{36} << 30;
  try {
    const DeviceMemory room(needed);
    return true;
  } catch (const Error& error) {
    MESSAGE("skipped: 36 GB are not free: " << error.what());
    return false;
  }
}

bool has_tensor_maps() { return gpu().device.capability >= 90; }

}  // namespace

TEST_CASE("prefill reads and writes tensors beyond 2^32 elements on the GPU, whichever stride is the large one") {
  if (!has_room()) return;
  Registry registry({});
  for (const Far far : far_strides) {
    testing::check_far_prefill(registry, allocated, far, "prefill_sm80");
    if (has_tensor_maps()) testing::check_far_prefill(registry, allocated, far, "prefill_sm90");
  }
}

TEST_CASE("ragged batches of a million rows and beyond 2^32 elements are prefilled on the GPU, the last one too") {
  if (!has_room()) return;
  Registry registry({});
  testing::check_far_ragged_prefill(registry, allocated, "prefill_sm80");
  if (has_tensor_maps()) testing::check_far_ragged_prefill(registry, allocated, "prefill_sm90");
}

TEST_CASE("caches of pages beyond 2^32 elements are read on the GPU, their last page too") {
  if (!has_room()) return;
  Registry registry({});
  testing::check_far_paged_prefill(registry, allocated);
  for (const int page_size : {16, 13, 256}) testing::check_far_paged_decode(registry, allocated, page_size);
}

TEST_CASE("decode and combine reach beyond 2^32 elements on the GPU, whichever stride is the large one") {
  if (!has_room()) return;
  Registry registry({});
  for (const Far far : far_strides) testing::check_far_decode(registry, allocated, far);
  testing::check_long_decode(registry, allocated);
}

TEST_CASE("new keys are stored and states merged beyond 2^32 elements on the GPU") {
  if (!has_room()) return;
  Registry registry({});
  for (const bool by_slots : {true, false}) testing::check_far_store(registry, allocated, by_slots);
  for (const Far far : far_strides) testing::check_far_merge(registry, allocated, far);
}

}  // namespace attune::gpu_tests
