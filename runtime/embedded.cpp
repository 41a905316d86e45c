#include "runtime/embedded.hpp"

#include "runtime/bundle.hpp"

extern "C" {
// kernels.attune of the build, from runtime/embedded_bundle.S.
extern const char attune_embedded_bundle_begin[];
extern const char attune_embedded_bundle_end[];
}

namespace attune {

std::span<const EmbeddedKernel> embedded_kernels() {
  static const std::shared_ptr<const LoadedBundle> bundle = LoadedBundle::from_memory(
      {attune_embedded_bundle_begin, attune_embedded_bundle_end}, "the bundle inside the library");
  return bundle->kernels();
}

}  // namespace attune
