#include "tests/harness/merge_image.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference.hpp"

namespace attune::testing {
namespace {

constexpr std::uint16_t poison_bits = 0x7fff;  // a NaN in fp16 and in bf16
constexpr float poison_float = std::numeric_limits<float>::quiet_NaN();
constexpr float nothing = -std::numeric_limits<float>::infinity();
constexpr std::size_t guard = 256;  // elements around each tensor

int up_to(Random& random, int most) { return static_cast<int>(random.below(static_cast<std::uint64_t>(most) + 1)); }

/// The LSEs of a row's two results: alike, far from each other, large, or over no keys.
std::pair<float, float> random_lses(Random& random) {
  const auto small = [&] { return static_cast<float>(random.uniform() * 12 - 4); };
  switch (random.below(8)) {
    case 0:
      return {nothing, small()};
    case 1:
      return {small(), nothing};
    case 2:
      return {nothing, nothing};
    case 3:
      return {small(), small() + 300};
    case 4:
      return {1000 + small(), 1000 + small()};
    case 5:
      return {-2000 + small(), -2000 + small()};
    default:
      return {small(), small()};
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

std::string MergeCase::text() const {
  return fmt::format("{} in place {}{}, heads outermost {}{}{}", problem.text(), in_place, has_lse ? "" : " no lse",
                     heads_outermost[0], heads_outermost[1], heads_outermost[2]);
}

MergeCase random_merge_case(Random& random) {
  MergeCase one;
  MergeProblem& problem = one.problem;
  constexpr std::array head_dims{8, 16, 40, 64, 80, 96, 128, 192, 256};
  problem.dtype = up_to(random, 1) == 0 ? Dtype::bf16 : Dtype::fp16;
  problem.batch = 1 + up_to(random, 3);
  problem.seqlen = 1 + up_to(random, 40);
  problem.heads = 1 + up_to(random, 4);
  problem.head_dim = head_dims[random.below(head_dims.size())];
  one.in_place = up_to(random, 2);
  one.has_lse = up_to(random, 3) > 0;
  for (bool& outermost : one.heads_outermost) outermost = up_to(random, 1) == 1;
  if (one.in_place > 0) one.heads_outermost[2] = one.heads_outermost[static_cast<std::size_t>(one.in_place) - 1];
  return one;
}

MergeImage::MergeImage(const MergeCase& one, std::uint64_t seed) : case_(one) {
  const MergeProblem& problem = case_.problem;
  Random random(seed);
  const std::size_t rows = static_cast<std::size_t>(problem.batch) * problem.seqlen * problem.heads;
  for (std::size_t i = 0; i < 3; ++i) {
    memory_.o[i].assign(rows * problem.head_dim + 2 * guard, poison_bits);
    memory_.lse[i].assign(rows + 2 * guard, poison_float);
  }
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int row = 0; row < problem.seqlen; ++row) {
      for (int head = 0; head < problem.heads; ++head) {
        const auto [first, second] = random_lses(random);
        for (const int i : {0, 1}) {
          const float lse = i == 0 ? first : second;
          memory_.lse[static_cast<std::size_t>(i)][lse_offset(sequence, row, head)] = lse;
          if (lse == nothing) continue;  // and its O stays NaN
          const auto values = random_values(problem.dtype, static_cast<std::size_t>(problem.head_dim), random());
          std::ranges::copy(values, memory_.o[static_cast<std::size_t>(i)].begin() +
                                        static_cast<std::ptrdiff_t>(offset(i, sequence, row, head)));
        }
      }
    }
  }
}

std::size_t MergeImage::offset(int tensor, int sequence, int row, int head) const {
  const MergeProblem& problem = case_.problem;
  const std::size_t inside = case_.heads_outermost[static_cast<std::size_t>(tensor)]
                                 ? static_cast<std::size_t>(head) * problem.seqlen + row
                                 : static_cast<std::size_t>(row) * problem.heads + head;
  return guard + (static_cast<std::size_t>(sequence) * problem.seqlen * problem.heads + inside) * problem.head_dim;
}

std::size_t MergeImage::lse_offset(int sequence, int row, int head) const {
  const MergeProblem& problem = case_.problem;
  return guard + (static_cast<std::size_t>(sequence) * problem.heads + head) * problem.seqlen + row;
}

attune_merge_states_args MergeImage::args(const std::array<void*, 3>& o, const std::array<void*, 3>& lse) const {
  const MergeProblem& problem = case_.problem;
  const std::int64_t dim = problem.head_dim;
  const auto tensor = [&](std::size_t i) {
    const bool outermost = case_.heads_outermost[i];
    return attune_tensor{static_cast<std::uint16_t*>(o[i]) + guard, dim * problem.heads * problem.seqlen,
                         outermost ? dim : dim * problem.heads, outermost ? dim * problem.seqlen : dim};
  };
  attune_merge_states_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.o1 = tensor(0);
  args.o2 = tensor(1);
  args.o = case_.in_place == 0 ? tensor(2) : tensor(static_cast<std::size_t>(case_.in_place) - 1);
  args.lse1 = static_cast<const float*>(lse[0]) + guard;
  args.lse2 = static_cast<const float*>(lse[1]) + guard;
  args.lse = case_.has_lse ? static_cast<float*>(lse[2]) + guard : nullptr;
  args.batch = problem.batch;
  args.seqlen = problem.seqlen;
  args.heads = problem.heads;
  args.head_dim = problem.head_dim;
  return args;
}

/// `expected` takes over what agrees.
void MergeImage::check_row(const MergeMemory& after, MergeMemory& expected, int sequence, int row, int head) const {
  const MergeProblem& problem = case_.problem;
  const auto o_index = static_cast<std::size_t>(case_.in_place == 0 ? 2 : case_.in_place - 1);
  const std::size_t at = lse_offset(sequence, row, head);
  const double lse_1 = memory_.lse[0][at];
  const double lse_2 = memory_.lse[1][at];
  const double top = std::max(lse_1, lse_2);
  const bool empty = std::isinf(top);
  const double lse = empty ? top : top + std::log(std::exp(lse_1 - top) + std::exp(lse_2 - top));
  const double weight_1 = empty ? 0 : std::exp(lse_1 - lse);
  const double weight_2 = empty ? 0 : std::exp(lse_2 - lse);
  const double half_ulp = problem.dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
  for (int column = 0; column < problem.head_dim; ++column) {
    const auto part = [&](int i, double weight) {
      const std::uint16_t bits = memory_.o[static_cast<std::size_t>(i)][offset(i, sequence, row, head) + column];
      return weight == 0 ? 0.0 : weight * from_storage(problem.dtype, bits);
    };
    const double first = part(0, weight_1);
    const double second = part(1, weight_2);
    const double exact = first + second;
    const double tolerance = half_ulp * std::abs(exact) + 1e-5 * (std::abs(first) + std::abs(second)) + 0x1p-25;
    const std::size_t to = offset(static_cast<int>(o_index), sequence, row, head) + static_cast<std::size_t>(column);
    const std::uint16_t bits = after.o[o_index][to];
    const bool agrees = std::abs(from_storage(problem.dtype, bits) - exact) <= tolerance;
    expected.o[o_index][to] = agrees ? bits : static_cast<std::uint16_t>(~bits);
  }
  if (!case_.has_lse) return;
  const float found = after.lse[2][at];
  const bool agrees = empty ? found == nothing : std::abs(found - lse) <= 1e-6 * std::abs(lse) + 2e-6;
  expected.lse[2][at] = agrees ? found : static_cast<float>(lse) + 1;
}

void MergeImage::check(const MergeMemory& after) const {
  MergeMemory expected = memory_;
  for (int sequence = 0; sequence < case_.problem.batch; ++sequence) {
    for (int row = 0; row < case_.problem.seqlen; ++row) {
      for (int head = 0; head < case_.problem.heads; ++head) check_row(after, expected, sequence, row, head);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const bool same_o = expected.o[i] == after.o[i];
    CHECK(same_o);
    CHECK(same_bits(expected.lse[i], after.lse[i]));
  }
}

}  // namespace attune::testing
