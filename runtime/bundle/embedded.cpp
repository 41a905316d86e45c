#include "runtime/bundle/embedded.hpp"

#include "runtime/bundle/bundle.hpp"

extern "C" {
// kernels.attune of the build, from runtime/bundle/embedded_bundle.S.
extern const char attune_embedded_bundle_begin[];
extern const char attune_embedded_bundle_end[];
}

namespace attune {
namespace {

const LoadedBundle& bundle() {
  static const std::shared_ptr<const LoadedBundle> embedded = LoadedBundle::from_memory(
      {attune_embedded_bundle_begin, attune_embedded_bundle_end}, "the bundle inside the library");
  return *embedded;
}

}  // namespace

std::span<const ReadyKernel> embedded_kernels() { return bundle().kernels(); }

std::span<const BundledTable> embedded_tables() { return bundle().tables(); }

}  // namespace attune
