#include "runtime/problem/device.hpp"

#include <algorithm>

namespace attune {

Arch arch_of(const Device& device) {
  const auto known = std::ranges::find(all_archs(), device.capability, &Arch::capability);
  if (known != all_archs().end()) return *known;
  return {.name = "this GPU",
          .capability = device.capability,
          .shared_per_block = device.shared_per_block,
          .shared_per_sm = device.shared_per_sm};
}

Device device_of(const Arch& arch) {
  Device device;
  device.name = std::string(arch.name);
  device.capability = arch.capability;
  device.multiprocessors = 108;
  device.shared_per_block = arch.shared_per_block;
  device.shared_per_sm = arch.shared_per_sm;
  device.l2_bytes = 40LL << 20;
  return device;
}

}  // namespace attune
