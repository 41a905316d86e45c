#include "runtime/lab/host_kernels.hpp"

#include <cstddef>
#include <vector>

#include "generator/parallel.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/registry/emulated_kernels.hpp"

namespace attune {

const EmulatedKernel& HostKernels::operator[](const Variant& variant) {
  auto& kernel = kernels_[variant];
  if (kernel == nullptr) {
    const Source source = generate(variant);
    kernel = std::make_unique<const EmulatedKernel>(
        emulated_kernel(variant, compile_cached(compiler_, source, cache_).image, source.name));
  }
  return *kernel;
}

void HostKernels::make(std::span<const Source> sources) {
  std::vector<Compiled> compiled(sources.size());
  parallel_for(static_cast<long long>(sources.size()), 0, [&](long long i) {
    const auto at = static_cast<std::size_t>(i);
    compiled[at] = compile_cached(compiler_, sources[at], cache_);
  });
  for (std::size_t i = 0; i < sources.size(); ++i) {
    kernels_[sources[i].variant] =
        std::make_unique<const EmulatedKernel>(emulated_kernel(sources[i].variant, compiled[i].image, sources[i].name));
  }
}

}  // namespace attune
