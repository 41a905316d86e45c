#include "generator/cost.hpp"

namespace attune {
namespace {

// Measured with NVRTC 13.0 for sm_90 over the shipped kernels (128 to 256 mma, 0.34 to 0.52 s, 27 to 41 KB): what a
// kernel costs without its loop, and what each mma of the loop adds with the loads and the softmax around it.
constexpr double base_seconds = 0.2;
constexpr double seconds_per_mma = 0.0011;
constexpr long long base_code_bytes = 18LL * 1024;
constexpr long long code_bytes_per_mma = 80;

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
