#include "runtime/execute/gpu_executor.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"

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

LoadedKernel::LoadedKernel(const Driver& owner, const Variant& of, const Device& where, std::string_view image,
                           const std::string& name)
    : ServingKernel{of, where},
      driver(owner),
      handle(owner.load(image, name, resources(of).shared_bytes, where.ordinal)) {}

LoadedKernel::~LoadedKernel() {
  if (handle.library != nullptr) driver.unload(handle);
}

LoadedKernel::LoadedKernel(LoadedKernel&& other) noexcept
    : ServingKernel(static_cast<ServingKernel&&>(other)),
      driver(other.driver),
      handle(std::exchange(other.handle, {})) {}

AttuneTensorMap GpuExecutor::encode(const TensorDescription& tensor) const {
  thread_local TensorMaps maps;
  return maps.find_or_encode(driver_, tensor);
}

void GpuExecutor::launch(const Step& step, void* stream) const {
  const auto& kernel = static_cast<const LoadedKernel&>(*step.kernel);
  driver_.launch(kernel.handle, step.grid, step.threads, step.shared_bytes, stream, step.params, step.order);
}

void GpuExecutor::run(const Plan& plan, void* stream) {
  for (std::size_t i = 0; i < plan.size(); ++i) launch(plan[i], stream);
}

void GpuExecutor::ask(const char* asker, FunctionRef<Step(void* place)> step_at, void* result, std::size_t bytes,
                      void* stream) {
  if (driver_.is_capturing(stream)) {
    throw Error(
        ATTUNE_INVALID_ARGUMENT,
        fmt::format("{} waits for its result, but the stream is being captured, where nothing can be waited for",
                    asker));
  }
  const auto release = [this](void* place) { driver_.free(place); };
  const std::unique_ptr<void, decltype(release)> place(driver_.allocate(bytes), release);
  launch(step_at(place.get()), stream);
  driver_.synchronize(stream);
  driver_.copy_to_host(result, place.get(), bytes);
}

}  // namespace attune
