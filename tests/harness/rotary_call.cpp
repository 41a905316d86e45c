#include "tests/harness/rotary_call.hpp"

#include <algorithm>
#include <array>

#include "runtime/cli/problems.hpp"
#include "runtime/lab/reference_rotation.hpp"

namespace attune::testing {
namespace {

constexpr std::size_t guard = 64;  // elements around each tensor

int from_to(Random& random, int least, int most) {
  return least + static_cast<int>(random.below(static_cast<std::uint64_t>(most - least) + 1));
}

}  // namespace

RotaryCall::Placement RotaryCall::place(Random& random, int heads) {
  const std::int64_t gap = 8LL * from_to(random, 0, 2);
  const std::int64_t dim = problem_.head_dim + gap;
  Placement at{.first = elements_.size() + guard, .heads = heads};
  const bool heads_outermost = random.below(2) == 0;
  at.stride_head = heads_outermost ? dim * problem_.seqlen : dim;
  at.stride_seq = heads_outermost ? dim : dim * heads;
  at.stride_batch = dim * problem_.seqlen * heads;
  const std::size_t size = static_cast<std::size_t>(at.stride_batch) * problem_.batch;
  const std::vector<std::uint16_t> values = cli::random_values(problem_.dtype, size + 2 * guard, random());
  elements_.insert(elements_.end(), values.begin(), values.end());
  return at;
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
  q_ = place(random, problem_.heads_q);
  k_ = place(random, problem_.heads_kv);
  const std::size_t angles = static_cast<std::size_t>(problem_.rotations) * problem_.rotary_dim / 2;
  const cli::Angles tables = cli::random_angles(problem_.dtype, angles, random());
  cos_ = elements_.size();
  elements_.insert(elements_.end(), tables.cos.begin(), tables.cos.end());
  elements_.resize((elements_.size() + guard - 1) / guard * guard);
  sin_ = elements_.size();
  elements_.insert(elements_.end(), tables.sin.begin(), tables.sin.end());
  has_positions_ = random.below(2) == 0;
  has_offsets_ = random.below(2) == 0;
  for (int i = 0; i < problem_.batch * (problem_.seqlen + 1); ++i) {
    positions_.push_back(from_to(random, -3, problem_.rotations + 3));
  }
}

attune_rotary_embedding_args RotaryCall::args(void* elements, void* positions) const {
  const auto at = [&](std::size_t index) { return static_cast<std::uint16_t*>(elements) + index; };
  const auto tensor = [&](const Placement& of) {
    return attune_tensor{at(of.first), of.stride_batch, of.stride_seq, of.stride_head};
  };
  auto* const all_positions = static_cast<std::int32_t*>(positions);
  attune_rotary_embedding_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem_.dtype);
  args.q = tensor(q_);
  if (problem_.heads_kv > 0) args.k = tensor(k_);
  if (has_positions_) args.positions = all_positions;
  if (has_offsets_) args.offsets = all_positions + static_cast<std::ptrdiff_t>(problem_.batch) * problem_.seqlen;
  args.rotary_cos = at(cos_);
  args.rotary_sin = at(sin_);
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

std::vector<std::uint16_t> RotaryCall::expected() const {
  std::vector<std::uint16_t> result = elements_;
  const HostRotation rotation{problem_.dtype,     problem_.rotary,         problem_.rotary_dim,
                              problem_.rotations, elements_.data() + cos_, elements_.data() + sin_};
  for (const Placement& at : {q_, k_}) {
    for (int sequence = 0; sequence < problem_.batch; ++sequence) {
      for (int row = 0; row < problem_.seqlen; ++row) {
        for (int head = 0; head < at.heads; ++head) {
          const auto first = result.begin() + static_cast<std::ptrdiff_t>(at.first) + sequence * at.stride_batch +
                             row * at.stride_seq + head * at.stride_head;
          std::ranges::copy(rotated_row(rotation, {first, first + problem_.head_dim}, position_of(sequence, row)),
                            first);
        }
      }
    }
  }
  return result;
}

}  // namespace attune::testing
