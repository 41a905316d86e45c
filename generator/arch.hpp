// The GPUs a variant can be meant for, and the limits that decide whether it fits.
#pragma once

#include <span>
#include <string_view>

namespace attune {

/// A compute capability and its limits (CUDA programming guide 13, "Compute Capabilities").
struct Arch {
  std::string_view name;  ///< "sm_80"
  int capability;         ///< 10 * major + minor: 80
  int shared_per_block;   ///< bytes of shared memory one block may have (opt-in maximum)
  int shared_per_sm;      ///< bytes of shared memory of one multiprocessor
};

/// All known architectures, ascending. Bit i of an ArchSet stands for element i.
std::span<const Arch> all_archs();

/// The architecture of that name, or null.
const Arch* find_arch(std::string_view name);

/// A set of architectures as a bit mask over all_archs(); 0 means "every one that it fits".
using ArchSet = unsigned;

/// The set of this one; empty where it is none of all_archs().
ArchSet set_of(const Arch& arch);

}  // namespace attune
