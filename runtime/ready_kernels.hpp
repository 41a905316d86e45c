// Kernels that need no compiler any more, by what they compute.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/embedded.hpp"

namespace attune {

/// What a registry can load as it is. The images are not its own: they outlive it.
class ReadyKernels {
 public:
  /// In the order of preference; of two of the same variant only the first counts.
  explicit ReadyKernels(std::span<const EmbeddedKernel> kernels = embedded_kernels());

  /// Every variant of an operation, in the order of preference.
  [[nodiscard]] std::span<const Variant> variants(Operation operation) const;

  /// The kernel of this variant; null where there is none.
  [[nodiscard]] const EmbeddedKernel* find(const Variant& variant) const;

 private:
  std::vector<EmbeddedKernel> kernels_;
  std::array<std::vector<Variant>, operation_count> variants_;
};

}  // namespace attune
