#include "generator/cost.hpp"

namespace attune {
namespace {

// Measured with NVRTC 13.0 for sm_90 over the shipped kernels of prefill_sm80 (128 to 256 mma, 0.34 to 0.52 s, 27 to 41
// KB): what a kernel costs without its loop, and what each mma of the loop adds with the loads and the softmax around
// it.
constexpr double base_seconds = 0.2;
constexpr double seconds_per_mma = 0.0011;
constexpr long long base_code_bytes = 18LL * 1024;
constexpr long long code_bytes_per_mma = 80;

// The same over those of prefill_sm90 (0.37 to 0.62 s, 31 to 43 KB): a compiler's work goes into the elements of O and
// S that a thread holds.
constexpr double seconds_per_column = 0.0021;  // of head_dim and of B_c
constexpr long long sm90_code_bytes = 38LL * 1024;

// And over those of backward_sm90 (0.26 to 0.70 s, 22 to 37 KB), whose queries are in registers, too.
constexpr double backward_seconds_per_column = 0.0018;  // of head_dim, B_r and B_c
constexpr long long backward_bytes_per_column = 110;

/// The same in decode_sm80's loop, where each warp has keys of its own.
int decode_mma_instructions(const Variant& variant) {
  const int row_tiles = variant.split_rows != 0 ? 1 : variant.B_r / 16;
  const int keys = variant.split_rows != 0 ? variant.B_c : variant.B_c / variant.warps;
  return row_tiles * (keys / 8) * (variant.head_dim / 16) * 2;
}

Cost mma_cost(int mma) {
  return {.seconds = base_seconds + seconds_per_mma * mma, .bytes = base_code_bytes + code_bytes_per_mma * mma};
}

Cost cost_of(const Variant& variant) {
  if (variant.family == prefill_sm90) {
    return {.seconds = seconds_per_column * (variant.head_dim + variant.B_c), .bytes = sm90_code_bytes};
  }
  if (variant.family == backward_sm90) {
    const int columns = variant.head_dim + variant.B_r + variant.B_c;
    return {.seconds = backward_seconds_per_column * columns, .bytes = backward_bytes_per_column * columns};
  }
  const Operation operation = family_of(variant).operation;
  if (operation == Operation::decode) return mma_cost(decode_mma_instructions(variant));
  return mma_cost(operation == Operation::prefill ? mma_instructions(variant) : 0);
}

}  // namespace

int mma_instructions(const Variant& variant) {
  const int row_tiles = variant.B_r / (16 * variant.warps);
  return row_tiles * (variant.B_c / 8) * (variant.head_dim / 16) * 2;
}

Cost estimate(std::span<const Variant> variants, int archs) {
  Cost total;
  for (const Variant& variant : variants) {
    const Cost one = cost_of(variant);
    total.seconds += archs * one.seconds;
    total.bytes += archs * one.bytes;
  }
  return total;
}

}  // namespace attune
