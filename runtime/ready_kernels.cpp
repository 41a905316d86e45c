#include "runtime/ready_kernels.hpp"

#include <algorithm>

namespace attune {

ReadyKernels::ReadyKernels(std::span<const EmbeddedKernel> kernels) {
  kernels_.reserve(kernels.size());
  for (const EmbeddedKernel& kernel : kernels) {
    if (find(kernel.variant) != nullptr) continue;
    kernels_.push_back(kernel);
    variants_[static_cast<std::size_t>(family_of(kernel.variant).operation)].push_back(kernel.variant);
  }
}

std::span<const Variant> ReadyKernels::variants(Operation operation) const {
  return variants_[static_cast<std::size_t>(operation)];
}

const EmbeddedKernel* ReadyKernels::find(const Variant& variant) const {
  const auto found = std::ranges::find(kernels_, variant, &EmbeddedKernel::variant);
  return found == kernels_.end() ? nullptr : &*found;
}

}  // namespace attune
