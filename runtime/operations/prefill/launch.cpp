#include "runtime/operations/prefill/launch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/operations/prefill/tensor_maps.hpp"

namespace attune {
namespace {

/// Maps of the tensors that a thread met last.
class TensorMaps {
 public:
  const AttuneTensorMap& find_or_encode(const Driver& driver, const TensorDescription& tensor) {
    // Fibonacci hashing: addresses of tensors differ in their middle bits.
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.base);
    const std::size_t first = address * 0x9e3779b97f4a7c15 >> (64 - index_bits);
    for (std::size_t i = 0; i < ways; ++i) {
      const Entry& entry = entries_[(first + i) % entries_.size()];
      if (entry.tensor == tensor) return entry.map;
    }
    Entry& entry = entries_[(first + replaced_++ % ways) % entries_.size()];
    entry = {tensor, driver.encode(tensor)};
    return entry.map;
  }

 private:
  struct Entry {
    TensorDescription tensor;
    AttuneTensorMap map;
  };
  static constexpr unsigned index_bits = 6;
  static constexpr std::size_t ways = 4;

  std::array<Entry, 1U << index_bits> entries_{};
  std::size_t replaced_ = 0;
};

}  // namespace

void launch(const Driver& driver, KernelHandle kernel, const Plan& plan, const AttunePrefillParams& params,
            const Workspace& workspace, void* stream) {
  if (!family_of(plan.variant).tensor_maps) {
    driver.launch(kernel, plan.grid, plan.threads, plan.shared_bytes, stream, &params);
    return;
  }
  thread_local TensorMaps maps;
  const AttuneTensorPrefillParams block = make_tensor_params(
      params, plan, [&](const TensorDescription& tensor) { return maps.find_or_encode(driver, tensor); });
  if (plan.tiles != nullptr) {
    const AttuneListedPrefillParams listed{block, *plan.tiles};
    driver.launch(kernel, plan.grid, plan.threads, plan.shared_bytes, stream, &listed);
  } else if (plan.variant.stream_k != 0) {
    const AttuneSharedPrefillParams shared = make_shared_params(block, plan, workspace);
    driver.launch(kernel, plan.grid, plan.threads, plan.shared_bytes, stream, &shared);
  } else {
    driver.launch(kernel, plan.grid, plan.threads, plan.shared_bytes, stream, &block);
  }
}

}  // namespace attune
