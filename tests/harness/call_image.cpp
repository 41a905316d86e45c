#include "tests/harness/call_image.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "runtime/cli/problems.hpp"

namespace attune::testing {
namespace {

constexpr std::uint16_t poison_bits = 0x7fff;  // a NaN in fp16 and in bf16
constexpr float poison_float = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t guard = 512;  // elements around each tensor

}  // namespace

std::string name_of(Layout layout) {
  switch (layout) {
    case Layout::bshd:
      return "BSHD";
    case Layout::bhsd:
      return "BHSD";
    case Layout::packed:
      return "packed QKV";
    case Layout::gaps:
      return "BSHD with gaps";
  }
  return "?";
}

std::size_t CallImage::rows() const {
  return static_cast<std::size_t>(problem_.batch) * problem_.heads_q * problem_.seqlen_q;
}

/// Places one tensor from `cursor` on, which moves past it and a guard.
CallImage::Placement CallImage::place(Layout layout, int seqlen, int heads, int head_dim, std::size_t& cursor) const {
  const std::int64_t dim = head_dim;
  Placement at{.head_dim = head_dim, .first = cursor};
  switch (layout) {
    case Layout::bhsd:
      at.stride_seq = dim;
      at.stride_head = dim * seqlen;
      at.stride_batch = dim * seqlen * heads;
      break;
    case Layout::gaps:
      at.stride_head = dim + 8;
      at.stride_seq = at.stride_head * heads + 24;
      at.stride_batch = at.stride_seq * seqlen + 64;
      break;
    case Layout::bshd:
    case Layout::packed:
      at.stride_head = dim;
      at.stride_seq = dim * heads;
      at.stride_batch = dim * heads * seqlen;
      break;
  }
  cursor += static_cast<std::size_t>(at.stride_batch) * problem_.batch + guard;
  return at;
}

template <class Function>
void CallImage::for_each_element(const Placement& at, int seqlen, int heads, const Function& visit) const {
  std::size_t index = 0;
  for (int b = 0; b < problem_.batch; ++b) {
    for (int s = 0; s < seqlen; ++s) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t row = at.first + b * at.stride_batch + s * at.stride_seq + h * at.stride_head;
        for (int d = 0; d < at.head_dim; ++d) visit(row + d, index++);
      }
    }
  }
}

CallImage::CallImage(const Problem& problem, Layout layout, std::uint64_t seed) : problem_(problem) {
  const int dim = problem.head_dim;
  const int dim_v = problem.head_dim_of_v();
  std::size_t cursor = guard;
  if (layout == Layout::packed) {
    REQUIRE(problem.seqlen_q == problem.seqlen_k);
    const int Q_row = problem.heads_q * dim;
    const int K_row = problem.heads_kv * dim;
    q_ = place(layout, problem.seqlen_q, 1, Q_row + K_row + problem.heads_kv * dim_v, cursor);
    q_.stride_head = q_.head_dim = dim;
    k_ = v_ = q_;
    k_.first += static_cast<std::size_t>(Q_row);
    v_.first = k_.first + static_cast<std::size_t>(K_row);
    v_.stride_head = v_.head_dim = dim_v;
  } else {
    q_ = place(layout, problem.seqlen_q, problem.heads_q, dim, cursor);
    k_ = place(layout, problem.seqlen_k, problem.heads_kv, dim, cursor);
    v_ = place(layout, problem.seqlen_k, problem.heads_kv, dim_v, cursor);
  }
  in_.assign(cursor, poison_bits);
  const cli::HostInputs inputs(problem, seed);
  const auto fill = [&](const Placement& at, int seqlen, int heads, const std::vector<std::uint16_t>& values) {
    for_each_element(at, seqlen, heads, [&](std::size_t to, std::size_t i) { in_[to] = values[i]; });
  };
  fill(q_, problem.seqlen_q, problem.heads_q, inputs.q);
  fill(k_, problem.seqlen_k, problem.heads_kv, inputs.k);
  fill(v_, problem.seqlen_k, problem.heads_kv, inputs.v);
  out_elements_ = guard;
  o_ = place(layout, problem.seqlen_q, problem.heads_q, dim_v, out_elements_);
}

std::vector<std::uint16_t> CallImage::poisoned_out() const {
  return std::vector<std::uint16_t>(out_elements_, poison_bits);
}

std::vector<float> CallImage::poisoned_lse() const { return std::vector<float>(rows() + 2 * guard, poison_float); }

attune_prefill_args CallImage::args(void* in, void* out, void* lse) const {
  const auto tensor = [](void* memory, const Placement& at) {
    return attune_tensor{static_cast<std::uint16_t*>(memory) + at.first, at.stride_batch, at.stride_seq,
                         at.stride_head};
  };
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = problem_.dtype == Dtype::fp16 ? ATTUNE_FP16 : ATTUNE_BF16;
  args.q = tensor(in, q_);
  args.k = tensor(in, k_);
  args.v = tensor(in, v_);
  args.o = tensor(out, o_);
  args.lse = static_cast<float*>(lse) + guard;
  args.batch = problem_.batch;
  args.seqlen_q = problem_.seqlen_q;
  args.seqlen_k = problem_.seqlen_k;
  args.heads_q = problem_.heads_q;
  args.heads_kv = problem_.heads_kv;
  args.head_dim = problem_.head_dim;
  args.softmax_scale = static_cast<float>(cli::usual_scale(problem_));
  args.causal = problem_.causal ? 1 : 0;
  args.head_dim_v = problem_.head_dim_v;
  return args;
}

CallImage::Output CallImage::output(std::vector<std::uint16_t> out, std::vector<float> lse,
                                    const std::vector<std::uint16_t>& in_after) const {
  Output output;
  output.o.resize(rows() * problem_.head_dim_of_v());
  for_each_element(o_, problem_.seqlen_q, problem_.heads_q, [&](std::size_t from, std::size_t i) {
    output.o[i] = out[from];
    out[from] = poison_bits;
  });
  const auto begin = lse.begin() + guard;
  const auto end = begin + static_cast<std::ptrdiff_t>(rows());
  output.lse.assign(begin, end);
  std::fill(begin, end, poison_float);
  for (const std::uint16_t bits : out) output.surroundings_intact = output.surroundings_intact && bits == poison_bits;
  for (const float value : lse) output.surroundings_intact = output.surroundings_intact && value != value;
  output.surroundings_intact = output.surroundings_intact && in_after == in_;
  return output;
}

bool CallImage::Output::operator==(const Output& other) const {
  return o == other.o && lse.size() == other.lse.size() &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

HostTensor CallImage::host_tensor(const Placement& at) const {
  return {in_.data() + at.first, at.stride_batch, at.stride_seq, at.stride_head};
}

Comparison CallImage::compare_with_reference(const Output& output, double scale) const {
  const HostTensor q = host_tensor(q_);
  const HostTensor k = host_tensor(k_);
  const HostTensor v = host_tensor(v_);
  return compare(problem_, output.o.data(), output.lse.data(), reference_attention(problem_, q, k, v, scale),
                 naive_attention(problem_, q, k, v, scale));
}

void CallImage::check(const Output& output, double scale) const {
  const Comparison comparison = compare_with_reference(output, scale);
  CAPTURE(comparison.max_error);
  CAPTURE(comparison.tolerance);
  CAPTURE(comparison.lse_error);
  CAPTURE(comparison.unwritten);
  CHECK(comparison.agrees);
  CHECK(output.surroundings_intact);
}

}  // namespace attune::testing
