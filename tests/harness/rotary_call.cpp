#include "tests/harness/rotary_call.hpp"

#include <algorithm>
#include <array>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference_rotation.hpp"

namespace attune::testing {
namespace {

int from_to(Random& random, int least, int most) {
  return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least) + 1));
}

}  // namespace

PlacedTensor RotaryCall::place(Random& random, Places& places, int heads) const {
  const int gap = 8 * from_to(random, 0, 2);
  const Layout layout = layout_of(random.below(2) == 0);
  PlacedTensor tensor =
      PlacedTensor::laid_out(layout, problem_.batch, problem_.seqlen, heads, problem_.head_dim + gap).in(places);
  tensor.head_dim = problem_.head_dim;
  return tensor;
}

RotaryCall::RotaryCall(Random& random) {
  constexpr std::array head_dims{16, 40, 64, 80, 128, 256};
  problem_.dtype = random.below(2) == 0 ? Dtype::bf16 : Dtype::fp16;
  problem_.batch = from_to(random, 1, 3);
  problem_.seqlen = from_to(random, 1, 40);
  problem_.heads_q = from_to(random, 1, 5);
  problem_.heads_kv = from_to(random, 0, 3);
  problem_.head_dim = head_dims[random.below(head_dims.size())];
  problem_.rotary = random.below(2) == 0 ? Rotary::halves : Rotary::interleaved;
  problem_.rotary_dim = 16 * from_to(random, 1, problem_.head_dim / 16);
  problem_.rotations = from_to(random, 1, 60);
  const std::size_t angles = static_cast<std::size_t>(problem_.rotations) * problem_.rotary_dim / 2;
  const Angles tables = random_angles(problem_.dtype, angles, random());
  has_positions_ = random.below(2) == 0;
  has_offsets_ = random.below(2) == 0;
  for (int i = 0; i < problem_.batch * (problem_.seqlen + 1); ++i) {
    positions_.push_back(from_to(random, -3, problem_.rotations + 3));
  }
  Places places;
  q_ = place(random, places, problem_.heads_q);
  k_ = place(random, places, problem_.heads_kv);
  cos_ = places.add(tables.cos);
  sin_ = places.add(tables.sin);
  positions_place_ = places.add(positions_);
  memory_ = random_values(problem_.dtype, places.memory().size(), random());
  put(memory_, cos_, tables.cos);
  put(memory_, sin_, tables.sin);
  put(memory_, positions_place_, positions_);
}

attune_rotary_embedding_args RotaryCall::args(void* memory) const {
  const auto* const all_positions = at<const std::int32_t>(memory, positions_place_);
  attune_rotary_embedding_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem_.dtype);
  args.q = q_.at(memory);
  if (problem_.heads_kv > 0) args.k = k_.at(memory);
  if (has_positions_) args.positions = all_positions;
  if (has_offsets_) args.offsets = all_positions + static_cast<std::ptrdiff_t>(problem_.batch) * problem_.seqlen;
  args.rotary_cos = at<void>(memory, cos_);
  args.rotary_sin = at<void>(memory, sin_);
  args.batch = problem_.batch;
  args.seqlen = problem_.seqlen;
  args.heads_q = problem_.heads_q;
  args.heads_kv = problem_.heads_kv;
  args.head_dim = problem_.head_dim;
  args.rotary = static_cast<attune_rotary>(problem_.rotary);
  args.rotary_dim = problem_.rotary_dim;
  args.rotations = problem_.rotations;
  return args;
}

std::int64_t RotaryCall::position_of(int sequence, int row) const {
  if (has_positions_) return positions_[static_cast<std::size_t>(sequence) * problem_.seqlen + row];
  const std::size_t offset = static_cast<std::size_t>(problem_.batch) * problem_.seqlen + sequence;
  return (has_offsets_ ? positions_[offset] : 0) + row;
}

Memory RotaryCall::expected() const {
  Memory result = memory_;
  const HostRotation rotation{problem_.dtype,     problem_.rotary,           problem_.rotary_dim,
                              problem_.rotations, memory_.data() + cos_ / 2, memory_.data() + sin_ / 2};
  for (const PlacedTensor& at : {q_, k_}) {
    for (int sequence = 0; sequence < problem_.batch; ++sequence) {
      for (int row = 0; row < problem_.seqlen; ++row) {
        for (int head = 0; head < at.heads; ++head) {
          const auto first = result.begin() + static_cast<std::ptrdiff_t>(at.of(sequence, row, head));
          std::ranges::copy(rotated_row(rotation, {first, first + problem_.head_dim}, position_of(sequence, row)),
                            first);
        }
      }
    }
  }
  return result;
}

}  // namespace attune::testing
