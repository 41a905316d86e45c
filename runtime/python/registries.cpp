#include "runtime/python/registries.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/error.hpp"
#include "runtime/python/errors.hpp"

namespace attune::python {
namespace {

attune_compile_policy policy_of_environment() {
  constexpr std::array<std::pair<std::string_view, attune_compile_policy>, 4> policies{{
      {"missing", ATTUNE_COMPILE_MISSING},
      {"frozen", ATTUNE_COMPILE_FROZEN},
      {"exact", ATTUNE_COMPILE_EXACT},
      {"background", ATTUNE_COMPILE_BACKGROUND},
  }};
  const char* value = std::getenv("ATTUNE_COMPILE");
  const std::string_view word = value == nullptr ? "" : value;
  if (word.empty()) return ATTUNE_COMPILE_MISSING;
  for (const auto& [name, policy] : policies) {
    if (word == name) return policy;
  }
  throw Error(ATTUNE_INVALID_ARGUMENT, "the environment variable ATTUNE_COMPILE is \"" + std::string(word) +
                                           "\"; it must be missing, frozen, exact or background");
}

attune_registry* open_registry(attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(options);
  options.compile_policy = policy_of_environment();
  options.device = device;
  options.emulator_seed = 1;
  attune_registry* registry = nullptr;
  check(attune_registry_create(&options, &registry));
  return registry;
}

/// The registries that are open: of the GPUs, of the emulator.
std::array<std::atomic<attune_registry*>, 2>& opened() {
  static std::array<std::atomic<attune_registry*>, 2> registries{};
  return registries;
}

}  // namespace

attune_registry* registry_of(bool emulator) {
  if (emulator) {
    static attune_registry* const registry = opened()[1] = open_registry(ATTUNE_DEVICE_EMULATOR);
    return registry;
  }
  static attune_registry* const registry = opened()[0] = open_registry(ATTUNE_DEVICE_CUDA);
  return registry;
}

void finish() {
  for (attune_registry* registry : opened()) {
    if (registry != nullptr) check(attune_registry_finish(registry));
  }
}

}  // namespace attune::python
