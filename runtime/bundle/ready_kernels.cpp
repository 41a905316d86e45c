#include "runtime/bundle/ready_kernels.hpp"

#include <algorithm>
#include <iterator>

#include "runtime/bundle/embedded.hpp"

namespace attune {

ReadyKernels::ReadyKernels(std::span<const std::filesystem::path> bundles, const LineLog& log) {
  for (const std::filesystem::path& file : bundles) bundles_.push_back(LoadedBundle::from_file(file));
  std::ranges::copy(environment_bundles(log), std::back_inserter(bundles_));
  std::ranges::copy(registered_bundles(), std::back_inserter(bundles_));
  for (const auto& bundle : bundles_) {
    add(bundle->kernels());
    std::ranges::copy(bundle->tables(), std::back_inserter(tables_));
  }
  add(embedded_kernels());
  std::ranges::copy(embedded_tables(), std::back_inserter(tables_));
}

void ReadyKernels::add(std::span<const ReadyKernel> kernels) {
  for (const ReadyKernel& kernel : kernels) {
    const auto operation = static_cast<std::size_t>(family_of(kernel.variant).operation);
    const auto known = std::ranges::find(kernels_, kernel.variant, &ReadyKernel::variant);
    if (known == kernels_.end()) {
      kernels_.push_back(kernel);
      variants_[operation].push_back(kernel.variant);
    } else if (known->tables_only && !kernel.tables_only) {
      known->tables_only = false;
    } else {
      continue;
    }
    if (!kernel.tables_only) heuristic_variants_[operation].push_back(kernel.variant);
  }
}

std::span<const Variant> ReadyKernels::variants(Operation operation) const {
  return variants_[static_cast<std::size_t>(operation)];
}

std::span<const Variant> ReadyKernels::heuristic_variants(Operation operation) const {
  return heuristic_variants_[static_cast<std::size_t>(operation)];
}

const ReadyKernel* ReadyKernels::find(const Variant& variant) const {
  const auto found = std::ranges::find(kernels_, variant, &ReadyKernel::variant);
  return found == kernels_.end() ? nullptr : &*found;
}

}  // namespace attune
