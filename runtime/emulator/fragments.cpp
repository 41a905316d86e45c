#include "runtime/emulator/fragments.hpp"

#include <bit>
#include <cstring>
#include <vector>

#include "runtime/base/storage.hpp"

namespace attune::emulator {
namespace {

/// fp16 as fp32, by its bits: a table, since every mma converts hundreds.
const std::vector<float>& fp16_values() {
  static const std::vector<float> values = [] {
    std::vector<float> all(std::size_t{1} << 16);
    for (std::size_t bits = 0; bits < all.size(); ++bits) {
      all[bits] = from_storage(Dtype::fp16, static_cast<std::uint16_t>(bits));
    }
    return all;
  }();
  return values;
}

struct FromFp16 {
  const float* values = fp16_values().data();
  float operator()(std::uint32_t bits) const { return values[bits & 0xffff]; }
};

struct FromBf16 {
  float operator()(std::uint32_t bits) const { return std::bit_cast<float>(bits << 16); }
};

template <class Convert>
void multiply(const Lanes<const MmaOperands*>& lanes) {
  const Convert convert;
  float A[16][16];
  float B[16][8];
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const unsigned g = lane / 4;
    const unsigned t = lane % 4 * 2;
    for (unsigned w = 0; w < 4; ++w) {
      const std::uint32_t pair = (*lanes[lane]->a)[w];
      float* at = &A[g + w % 2 * 8][t + w / 2 * 8];
      at[0] = convert(pair);
      at[1] = convert(pair >> 16);
    }
    for (unsigned w = 0; w < 2; ++w) {
      B[t + w * 8][g] = convert(lanes[lane]->b[w]);
      B[t + w * 8 + 1][g] = convert(lanes[lane]->b[w] >> 16);
    }
  }
  float D[16][8] = {};
  for (unsigned i = 0; i < 16; ++i) {
    for (unsigned k = 0; k < 16; ++k) {
      for (unsigned j = 0; j < 8; ++j) D[i][j] += A[i][k] * B[k][j];
    }
  }
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    const unsigned g = lane / 4;
    const unsigned t = lane % 4 * 2;
    for (unsigned e = 0; e < 4; ++e) (*lanes[lane]->d)[e] += D[g + e / 2 * 8][t + e % 2];
  }
}

}  // namespace

void ldmatrix(const Lanes<const std::byte*>& rows, bool transposed, const Lanes<std::uint32_t*>& words) {
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t elements[8][8];
    for (unsigned r = 0; r < 8; ++r) std::memcpy(elements[r], rows[matrix * 8 + r], sizeof(elements[r]));
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      const unsigned i = lane / 4;
      const unsigned j = lane % 4 * 2;
      const std::uint32_t low = transposed ? elements[j][i] : elements[i][j];
      const std::uint32_t high = transposed ? elements[j + 1][i] : elements[i][j + 1];
      words[lane][matrix] = low | high << 16;
    }
  }
}

void stmatrix(const Lanes<std::byte*>& rows, const Lanes<const std::uint32_t*>& words) {
  constexpr unsigned row_words = 4;
  for (unsigned row = 0; row < warp_size; ++row) {
    std::uint32_t elements[row_words];
    for (unsigned i = 0; i < row_words; ++i) elements[i] = words[row % 8 * row_words + i][row / 8];
    std::memcpy(rows[row], elements, sizeof(elements));
  }
}

void to_floats(Dtype dtype, const void* from, unsigned count, float* to) {
  const auto convert_all = [&](const auto& convert) {
    for (unsigned i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const std::byte*>(from) + i * sizeof(bits), sizeof(bits));
      to[i] = convert(bits);
    }
  };
  if (dtype == Dtype::fp16) {
    convert_all(FromFp16());
  } else {
    convert_all(FromBf16());
  }
}

void mma(Dtype dtype, const Lanes<const MmaOperands*>& lanes) {
  if (dtype == Dtype::fp16) {
    multiply<FromFp16>(lanes);
  } else {
    multiply<FromBf16>(lanes);
  }
}

}  // namespace attune::emulator
