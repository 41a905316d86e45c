// Storage types, the naive version and the comparison that kernels are held to.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/lab/reference.hpp"

using namespace attune;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

/// A problem of 1 x 1 x 2 rows with head_dim 1, and outputs that stand for its reference and naive results.
const Problem two_rows{.dtype = Dtype::bf16, .seqlen_q = 2, .seqlen_k = 1, .head_dim = 1};
const ReferenceOutput exact{.o = {1.0, -2.0}, .lse = {0.5, 3.0}};
const ReferenceOutput rounded{.o = {1.02, -2.0}, .lse = {0.5, 3.0}};  // naive error 0.02, tolerance 0.04

Comparison compare_with(float first, float second, std::vector<float> lse = {0.5F, 3.0F},
                        const ReferenceOutput& reference = exact) {
  const std::vector<std::uint16_t> o{to_storage(Dtype::bf16, first), to_storage(Dtype::bf16, second)};
  return compare(two_rows, o.data(), lse.empty() ? nullptr : lse.data(), reference, rounded);
}

}  // namespace

TEST_CASE("every 16-bit value survives the way to float and back") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    int wrong = 0;
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const float value = from_storage(dtype, static_cast<std::uint16_t>(bits));
      const std::uint16_t back = to_storage(dtype, value);
      const bool same = std::isnan(value) ? std::isnan(from_storage(dtype, back)) : back == bits;
      if (!same) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("fp16 rounds to nearest, ties to even, and saturates to infinity") {
  CHECK(to_storage(Dtype::fp16, 1.0F) == 0x3c00);
  CHECK(to_storage(Dtype::fp16, -2.0F) == 0xc000);
  CHECK(to_storage(Dtype::fp16, 1.0F + 0x1p-11F) == 0x3c00);      // a tie, down to even
  CHECK(to_storage(Dtype::fp16, 1.0F + 3 * 0x1p-11F) == 0x3c02);  // a tie, up to even
  CHECK(to_storage(Dtype::fp16, 1.0F + 0x1p-11F + 0x1p-20F) == 0x3c01);
  CHECK(to_storage(Dtype::fp16, 65504.0F) == 0x7bff);
  CHECK(to_storage(Dtype::fp16, 65519.9F) == 0x7bff);
  CHECK(to_storage(Dtype::fp16, 65520.0F) == 0x7c00);
  CHECK(to_storage(Dtype::fp16, -infinity) == 0xfc00);
  CHECK(to_storage(Dtype::fp16, 0x1p-24F) == 0x0001);                           // smallest subnormal
  CHECK(to_storage(Dtype::fp16, 0x1p-25F) == 0x0000);                           // a tie, down to even
  CHECK(to_storage(Dtype::fp16, 3 * 0x1p-25F) == 0x0002);                       // a tie, up to even
  CHECK(to_storage(Dtype::fp16, std::bit_cast<float>(0x387fffffU)) == 0x0400);  // just under the smallest normal
  CHECK(std::isnan(from_storage(Dtype::fp16, to_storage(Dtype::fp16, not_a_number))));
}

TEST_CASE("bf16 rounds to nearest, ties to even") {
  CHECK(to_storage(Dtype::bf16, 1.0F) == 0x3f80);
  CHECK(to_storage(Dtype::bf16, 1.0F + 0x1p-8F) == 0x3f80);
  CHECK(to_storage(Dtype::bf16, 1.0F + 3 * 0x1p-8F) == 0x3f82);
  CHECK(to_storage(Dtype::bf16, std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(to_storage(Dtype::bf16, infinity) == 0x7f80);
  CHECK(std::isnan(from_storage(Dtype::bf16, to_storage(Dtype::bf16, std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("the naive version stays near the reference, and is not equal to it") {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const Problem problem{.dtype = dtype, .seqlen_q = 20, .seqlen_k = 33, .head_dim = 16, .causal = true};
    const auto values = [&](std::size_t rows, float phase) {
      std::vector<std::uint16_t> bits(rows * 16);
      for (std::size_t i = 0; i < bits.size(); ++i) {
        bits[i] = to_storage(dtype, std::sin(phase + 0.37F * static_cast<float>(i)));
      }
      return bits;
    };
    const std::vector<std::uint16_t> q = values(20, 0);
    const std::vector<std::uint16_t> k = values(33, 1);
    const std::vector<std::uint16_t> v = values(33, 2);
    const auto tensor = [](const std::vector<std::uint16_t>& bits) { return HostTensor{bits.data(), 0, 16, 16}; };
    const ReferenceOutput reference = reference_attention(problem, tensor(q), tensor(k), tensor(v), 0.25);
    const ReferenceOutput naive = naive_attention(problem, tensor(q), tensor(k), tensor(v), 0.25);

    std::vector<std::uint16_t> o(naive.o.size());
    std::vector<float> lse(naive.lse.size());
    for (std::size_t i = 0; i < o.size(); ++i) o[i] = to_storage(dtype, static_cast<float>(naive.o[i]));
    for (std::size_t i = 0; i < lse.size(); ++i) lse[i] = static_cast<float>(naive.lse[i]);
    const Comparison same = compare(problem, o.data(), lse.data(), reference, naive);
    CHECK(same.agrees);
    CHECK(same.max_error > 0);
    CHECK(same.max_error == doctest::Approx(same.naive_error));
    CHECK(same.naive_error < (dtype == Dtype::bf16 ? 2e-2 : 2e-3));

    o[7] = to_storage(dtype, from_storage(dtype, o[7]) + 0.1F);
    CHECK_FALSE(compare(problem, o.data(), lse.data(), reference, naive).agrees);
  }
}

TEST_CASE("within twice the naive error agrees, beyond it does not") {
  CHECK(compare_with(1.0F, -2.0F).agrees);
  CHECK(compare_with(1.03F, -2.0F).agrees);
  const Comparison wrong = compare_with(1.06F, -2.0F);
  CHECK_FALSE(wrong.agrees);
  CHECK(wrong.tolerance == doctest::Approx(0.04));
  CHECK(wrong.max_error == doctest::Approx(0.06).epsilon(0.05));
}

TEST_CASE("the tolerance is never below one ulp of the largest value") {
  const std::vector<std::uint16_t> o{to_storage(Dtype::bf16, 1.0F), to_storage(Dtype::bf16, -2.0F)};
  CHECK(compare(two_rows, o.data(), nullptr, exact, exact).tolerance == 0x1p-6);  // bf16 between 2 and 4
  const Problem fp16{.dtype = Dtype::fp16, .seqlen_q = 2, .seqlen_k = 1, .head_dim = 1};
  CHECK(compare(fp16, o.data(), nullptr, exact, exact).tolerance == 0x1p-9);
}

TEST_CASE("poison that was never overwritten is counted") {
  const Comparison in_o = compare_with(not_a_number, -2.0F);
  CHECK_FALSE(in_o.agrees);
  CHECK(in_o.unwritten == 1);
  const Comparison in_lse = compare_with(1.0F, -2.0F, {0.5F, not_a_number});
  CHECK_FALSE(in_lse.agrees);
  CHECK(in_lse.unwritten == 1);
}

TEST_CASE("an infinite output never agrees with a finite reference") {
  CHECK_FALSE(compare_with(infinity, -2.0F).agrees);
  CHECK_FALSE(compare_with(1.0F, -2.0F, {0.5F, -infinity}).agrees);
}

TEST_CASE("the LSE of an empty row must be minus infinity") {
  const ReferenceOutput empty_row{.o = {0.0, -2.0}, .lse = {-infinity, 3.0}};
  CHECK(compare_with(0.0F, -2.0F, {-infinity, 3.0F}, empty_row).agrees);
  CHECK_FALSE(compare_with(0.0F, -2.0F, {infinity, 3.0F}, empty_row).agrees);
  CHECK_FALSE(compare_with(0.0F, -2.0F, {-1e30F, 3.0F}, empty_row).agrees);
}

TEST_CASE("LSE is held to fp32 accuracy and may be left out") {
  CHECK(compare_with(1.0F, -2.0F, {}).agrees);
  CHECK(compare_with(1.0F, -2.0F, {0.500002F, 3.0F}).agrees);
  CHECK_FALSE(compare_with(1.0F, -2.0F, {0.5002F, 3.0F}).agrees);
}
