#include "runtime/call/device.hpp"

#include <algorithm>
#include <array>

namespace attune {
namespace {

// By NVIDIA's data sheets and architecture papers; an H200's L2 as its driver has it.
constexpr std::array gpus{
    KnownGpu{"h200", "NVIDIA H200", 90, 132, 60, 989, 4800},
    KnownGpu{"h100", "NVIDIA H100 80GB HBM3", 90, 132, 50, 989, 3350},
    KnownGpu{"h100-pcie", "NVIDIA H100 PCIe", 90, 114, 50, 756, 2000},
    KnownGpu{"a100", "NVIDIA A100-SXM4-80GB", 80, 108, 40, 312, 2039},
    KnownGpu{"a40", "NVIDIA A40", 86, 84, 6, 150, 696},
    KnownGpu{"a10", "NVIDIA A10", 86, 72, 6, 125, 600},
    KnownGpu{"rtx3090", "NVIDIA GeForce RTX 3090", 86, 82, 6, 71, 936},
    KnownGpu{"orin", "Orin", 87, 16, 4, 43, 205},
    KnownGpu{"l40s", "NVIDIA L40S", 89, 142, 96, 362, 864},
    KnownGpu{"l4", "NVIDIA L4", 89, 58, 48, 121, 300},
    KnownGpu{"rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 72, 165, 1008},
    KnownGpu{"b200", "NVIDIA B200", 100, 148, 126, 2250, 8000},
    KnownGpu{"b300", "NVIDIA B300", 103, 148, 126, 2250, 8000},
    KnownGpu{"thor", "NVIDIA Thor", 110, 20, 32, 259, 273},
    KnownGpu{"rtx5090", "NVIDIA GeForce RTX 5090", 120, 170, 96, 210, 1792},
    KnownGpu{"gb10", "NVIDIA GB10", 121, 48, 24, 125, 273},
};

Device device_of(const KnownGpu& gpu) {
  const Arch& arch = *std::ranges::find(all_archs(), gpu.capability, &Arch::capability);
  return {.ordinal = 0,
          .name = std::string(gpu.name),
          .capability = gpu.capability,
          .multiprocessors = gpu.multiprocessors,
          .shared_per_block = arch.shared_per_block,
          .shared_per_sm = arch.shared_per_sm,
          .l2_bytes = static_cast<long long>(gpu.l2_megabytes) << 20};
}

}  // namespace

Arch arch_of(const Device& device) {
  const auto known = std::ranges::find(all_archs(), device.capability, &Arch::capability);
  if (known != all_archs().end()) return *known;
  return {.name = "this GPU",
          .capability = device.capability,
          .shared_per_block = device.shared_per_block,
          .shared_per_sm = device.shared_per_sm};
}

std::span<const KnownGpu> known_gpus() { return gpus; }

const KnownGpu& most_like(const Device& device) {
  const auto named = std::ranges::find(gpus, device.name, &KnownGpu::name);
  if (named != gpus.end()) return *named;
  const auto alike = std::ranges::find(gpus, device.capability, &KnownGpu::capability);
  return alike != gpus.end() ? *alike : *std::ranges::find(gpus, usual_gpu, &KnownGpu::word);
}

std::optional<Device> find_gpu_device(std::string_view word) {
  const auto known = std::ranges::find(gpus, word, &KnownGpu::word);
  if (known != gpus.end()) return device_of(*known);
  const Arch* arch = find_arch(word);
  return arch == nullptr ? std::nullopt : std::optional(device_of(*arch));
}

std::vector<std::string> gpu_words() {
  std::vector<std::string> words;
  for (const KnownGpu& gpu : gpus) words.emplace_back(gpu.word);
  for (const Arch& arch : all_archs()) words.emplace_back(arch.name);
  return words;
}

Device device_of(const Arch& arch) {
  return device_of(*std::ranges::find(gpus, arch.capability, &KnownGpu::capability));
}

}  // namespace attune
