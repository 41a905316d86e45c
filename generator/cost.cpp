#include "generator/cost.hpp"

namespace attune {
namespace {

// Measured with nvcc and NVRTC 13.0: what a kernel without its loop costs, and what each mma of the loop adds
// with the loads and the softmax around it.
constexpr double base_seconds = 0.3;
constexpr double seconds_per_mma = 0.0015;
constexpr long long base_code_bytes = 12LL * 1024;
constexpr long long code_bytes_per_mma = 40;

}  // namespace

int mma_instructions(const Variant& variant) {
  const int row_tiles = variant.B_r / (16 * variant.warps);
  return row_tiles * (variant.B_c / 8) * (variant.head_dim / 16) * 2;
}

Cost estimate(std::span<const Variant> variants, int archs) {
  Cost total;
  for (const Variant& variant : variants) {
    const int mma = mma_instructions(variant);
    total.seconds += archs * (base_seconds + seconds_per_mma * mma);
    total.bytes += archs * (base_code_bytes + code_bytes_per_mma * mma);
  }
  return total;
}

}  // namespace attune
