#include "generator/arch.hpp"

#include <algorithm>
#include <array>

namespace attune {
namespace {

constexpr int KB = 1024;

constexpr std::array archs{
    Arch{"sm_80", 80, 163 * KB, 164 * KB},   Arch{"sm_86", 86, 99 * KB, 100 * KB},
    Arch{"sm_87", 87, 163 * KB, 164 * KB},   Arch{"sm_89", 89, 99 * KB, 100 * KB},
    Arch{"sm_90", 90, 227 * KB, 228 * KB},   Arch{"sm_100", 100, 227 * KB, 228 * KB},
    Arch{"sm_103", 103, 227 * KB, 228 * KB}, Arch{"sm_110", 110, 227 * KB, 228 * KB},
    Arch{"sm_120", 120, 99 * KB, 100 * KB},  Arch{"sm_121", 121, 99 * KB, 100 * KB},
};

}  // namespace

std::span<const Arch> all_archs() { return archs; }

const Arch* find_arch(std::string_view name) {
  const auto found = std::ranges::find(archs, name, &Arch::name);
  return found == archs.end() ? nullptr : &*found;
}

ArchSet set_of(const Arch& arch) {
  const auto found = std::ranges::find(archs, arch.name, &Arch::name);
  return found == archs.end() ? 0U : 1U << static_cast<unsigned>(found - archs.begin());
}

}  // namespace attune
