#include "runtime/python/registries.hpp"

#include "runtime/python/errors.hpp"

namespace attune::python {
namespace {

attune_registry* open_registry(attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(options);
  options.device = device;
  options.emulator_seed = 1;
  attune_registry* registry = nullptr;
  check(attune_registry_create(&options, &registry));
  return registry;
}

}  // namespace

attune_registry* registry_of(bool emulator) {
  if (emulator) {
    static attune_registry* const registry = open_registry(ATTUNE_DEVICE_EMULATOR);
    return registry;
  }
  static attune_registry* const registry = open_registry(ATTUNE_DEVICE_CUDA);
  return registry;
}

}  // namespace attune::python
