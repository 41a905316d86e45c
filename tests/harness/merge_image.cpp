#include "tests/harness/merge_image.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference.hpp"
#include "tests/harness/random_choice.hpp"

namespace attune::testing {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

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

std::size_t MergeImage::rows() const {
  return static_cast<std::size_t>(case_.problem.batch) * case_.problem.seqlen * case_.problem.heads;
}

MergeImage::MergeImage(const MergeCase& one, std::uint64_t seed) : case_(one) {
  const MergeProblem& problem = case_.problem;
  Places places;
  for (std::size_t i = 0; i < 3; ++i) {
    o_[i] = PlacedTensor::laid_out(layout_of(case_.heads_outermost[i]), problem.batch, problem.seqlen, problem.heads,
                                   problem.head_dim)
                .in(places);
    lse_place_[i] = places.add(rows() * sizeof(float));
  }
  memory_ = places.memory();
  for (std::vector<float>& lse : lse_) lse.resize(rows());
  Random random(seed);
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int row = 0; row < problem.seqlen; ++row) {
      for (int head = 0; head < problem.heads; ++head) {
        const auto [first, second] = random_lses(random);
        for (const std::size_t i : {0, 1}) {
          const float lse = i == 0 ? first : second;
          lse_[i][lse_offset(sequence, row, head)] = lse;
          if (lse == nothing) continue;  // and its O stays NaN
          put(memory_, 2 * o_[i].of(sequence, row, head),
              random_values(problem.dtype, static_cast<std::size_t>(problem.head_dim), random()));
        }
      }
    }
  }
  for (const std::size_t i : {0, 1}) put(memory_, lse_place_[i], lse_[i]);
}

std::size_t MergeImage::lse_offset(int sequence, int row, int head) const {
  const MergeProblem& problem = case_.problem;
  return (static_cast<std::size_t>(sequence) * problem.heads + head) * problem.seqlen + row;
}

attune_merge_states_args MergeImage::args(void* memory) const {
  const MergeProblem& problem = case_.problem;
  attune_merge_states_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.o1 = o_[0].at(memory);
  args.o2 = o_[1].at(memory);
  args.o = o_[written()].at(memory);
  args.lse1 = at<const float>(memory, lse_place_[0]);
  args.lse2 = at<const float>(memory, lse_place_[1]);
  args.lse = case_.has_lse ? at<float>(memory, lse_place_[2]) : nullptr;
  args.batch = problem.batch;
  args.seqlen = problem.seqlen;
  args.heads = problem.heads;
  args.head_dim = problem.head_dim;
  return args;
}

void MergeImage::check(Memory after) const {
  const MergeProblem& problem = case_.problem;
  const double half_ulp = problem.dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
  const auto number = [&](const Memory& memory, std::size_t i) {
    return static_cast<double>(from_storage(problem.dtype, memory[i]));
  };
  // What agrees becomes what it was.
  std::vector<float> lse_after(rows());
  if (case_.has_lse) lse_after = take<float>(after, lse_place_[2], rows());
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int row = 0; row < problem.seqlen; ++row) {
      for (int head = 0; head < problem.heads; ++head) {
        const std::size_t at_lse = lse_offset(sequence, row, head);
        const double lse_1 = lse_[0][at_lse];
        const double lse_2 = lse_[1][at_lse];
        const double top = std::max(lse_1, lse_2);
        const bool empty = std::isinf(top);
        const double lse = empty ? top : top + std::log(std::exp(lse_1 - top) + std::exp(lse_2 - top));
        const double weight_1 = empty ? 0 : std::exp(lse_1 - lse);
        const double weight_2 = empty ? 0 : std::exp(lse_2 - lse);
        for (std::size_t column = 0; column < static_cast<std::size_t>(problem.head_dim); ++column) {
          const auto part = [&](std::size_t i, double weight) {
            return weight == 0 ? 0.0 : weight * number(memory_, o_[i].of(sequence, row, head) + column);
          };
          const double first = part(0, weight_1);
          const double second = part(1, weight_2);
          const double exact = first + second;
          const double tolerance = half_ulp * std::abs(exact) + 1e-5 * (std::abs(first) + std::abs(second)) + 0x1p-25;
          const std::size_t to = o_[written()].of(sequence, row, head) + column;
          const bool agrees = std::abs(number(after, to) - exact) <= tolerance;
          after[to] = agrees ? memory_[to] : static_cast<std::uint16_t>(~memory_[to]);
        }
        if (!case_.has_lse) continue;
        const float found = lse_after[at_lse];
        CHECK((empty ? found == nothing : std::abs(found - lse) <= 1e-6 * std::abs(lse) + 2e-6));
      }
    }
  }
  const bool all_agrees = after == memory_;
  CHECK(all_agrees);
}

}  // namespace attune::testing
