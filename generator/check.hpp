// Which variants make sense, decided before any compiler runs. Each rule is stated here once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/need.hpp"
#include "generator/variant.hpp"

namespace attune {

/// What a variant asks of the hardware, by arithmetic alone.
struct Resources {
  int threads = 0;                ///< per block
  int shared_bytes = 0;           ///< dynamic shared memory per block
  int accumulator_registers = 0;  ///< per thread: O and S, and Q or P where they stay in registers
};

Resources resources(const Variant& variant);

/// A rule that a variant breaks: which, the two numbers, and the nearest value that would pass.
struct Refusal {
  std::string field;  ///< the key to change, for pointing at the spec's line
  std::string message;
};

/// Every rule that the variant breaks whatever the GPU, and on those of its own set; without a set it must
/// fit the largest one. Empty when it can be built.
std::vector<Refusal> check(const Variant& variant);

/// Of kernels of the backward pass: why gradients do not pass the variant's score as they are, if they do not.
std::optional<Refusal> gradients_rule(const Variant& variant);

/// Whether the variant's shared memory fits this GPU and the GPU is new enough; empty when it does.
std::vector<Refusal> check_arch(const Variant& variant, const Arch& arch);

/// The same for a device known by its own limits instead of the table's.
std::vector<Refusal> check_limits(const Variant& variant, int capability, int shared_per_block);

/// The architectures the variant is for: its own set, or every one that it fits when that is empty.
std::vector<Arch> target_archs(const Variant& variant);

/// What long sequences prefer of a family that has several tiles.
constexpr int long_sequence_B_r = 192;

/// What a family has for a need that nobody tuned: its default tile for these head dimensions (1 to 256, rounded up to
/// some that it has), made smaller to fit `shared_per_block` bytes where the family has smaller tiles; of several tiles
/// the one whose rows are nearest to `B_r`. It has what the need asks for as far as the family knows it, and is for any
/// where it may be.
Variant default_variant(int family, const Need& need, int shared_per_block, int B_r = long_sequence_B_r);

}  // namespace attune
