#include "tests/harness/call_image.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/trial.hpp"

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
  return static_cast<std::size_t>(problem_.stored_sequences()) * problem_.heads_q * problem_.stored_rows();
}

/// Places one tensor from `cursor` on, which moves past it and a guard. `gap`: elements that are unused after a row,
/// where there are any.
CallImage::Placement CallImage::place(Layout layout, int batch, int seqlen, int heads, int head_dim,
                                      std::size_t& cursor, int gap) {
  const std::int64_t dim = head_dim;
  Placement at{.head_dim = head_dim, .first = cursor};
  switch (layout) {
    case Layout::bhsd:
      at.stride_seq = dim;
      at.stride_head = dim * seqlen;
      at.stride_batch = dim * seqlen * heads;
      break;
    case Layout::gaps:
      at.stride_head = dim + gap;
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
  cursor += static_cast<std::size_t>(at.stride_batch) * batch + guard;
  return at;
}

template <class Function>
void CallImage::for_each_element(const Placement& at, int batch, int seqlen, int heads, const Function& visit) {
  std::size_t index = 0;
  for (int b = 0; b < batch; ++b) {
    for (int s = 0; s < seqlen; ++s) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t row = at.first + b * at.stride_batch + s * at.stride_seq + h * at.stride_head;
        for (int d = 0; d < at.head_dim; ++d) visit(row + d, index++);
      }
    }
  }
}

CallImage::CallImage(const Problem& problem, Layout layout, std::uint64_t seed, Sequences sequences)
    : problem_(problem), sequences_(std::move(sequences)) {
  const int dim = problem.head_dim;
  const int dim_v = problem.head_dim_of_v();
  const int sequences_of_rows = problem.stored_sequences();
  const int sequences_of_keys = problem.stored_key_sequences();
  const int rows = problem.stored_rows();
  const int keys = problem.stored_keys();
  std::size_t cursor = guard;
  if (layout == Layout::packed) {
    REQUIRE(rows == keys);
    const int Q_row = problem.heads_q * dim;
    const int K_row = problem.heads_kv * dim;
    q_ = place(layout, sequences_of_rows, rows, 1, Q_row + K_row + problem.heads_kv * dim_v, cursor);
    q_.stride_head = q_.head_dim = dim;
    k_ = v_ = q_;
    k_.first += static_cast<std::size_t>(Q_row);
    v_.first = k_.first + static_cast<std::size_t>(K_row);
    v_.stride_head = v_.head_dim = dim_v;
  } else {
    q_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim, cursor);
    k_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim, cursor);
    v_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim_v, cursor, 16);
  }
  in_.assign(cursor, poison_bits);
  const auto fill = [&](const Placement& at, int batch, int seqlen, int heads, std::uint64_t own_seed) {
    const std::size_t count = std::size_t{1} * batch * seqlen * heads * at.head_dim;
    const std::vector<std::uint16_t> values = random_values(problem.dtype, count, own_seed);
    for_each_element(at, batch, seqlen, heads, [&](std::size_t to, std::size_t i) { in_[to] = values[i]; });
  };
  fill(q_, sequences_of_rows, rows, problem.heads_q, 3 * seed);
  fill(k_, sequences_of_keys, keys, problem.heads_kv, 3 * seed + 1);
  fill(v_, sequences_of_keys, keys, problem.heads_kv, 3 * seed + 2);
  out_elements_ = guard;
  o_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim_v, out_elements_);
  if (problem.paged) poison_unused_keys();
  if (!problem.ragged) return;

  const auto poison_gaps = [&](const Placement& at, int heads, const std::vector<std::int32_t>& cu_seqlens, int end) {
    poison_rows(at, heads, 0, cu_seqlens.front());
    poison_rows(at, heads, cu_seqlens.back(), end);
  };
  poison_gaps(q_, problem.heads_q, sequences_.cu_seqlens_q, rows);
  for (std::size_t i = 0; i < sequences_.seqused_q.size(); ++i) {
    poison_rows(q_, problem.heads_q, sequences_.queries_of(i).second, sequences_.cu_seqlens_q[i + 1]);
  }
  if (problem.paged) return;
  for (const Placement& at : {k_, v_}) {
    poison_gaps(at, problem.heads_kv, sequences_.cu_seqlens_k, keys);
    for (std::size_t i = 0; i < sequences_.seqused_k.size(); ++i) {
      const std::int32_t first = sequences_.cu_seqlens_k[i];
      poison_rows(at, problem.heads_kv, first + sequences_.seqused_k[i], sequences_.cu_seqlens_k[i + 1]);
    }
  }
}

/// Keys in pages that no sequence has, and behind the last of each.
void CallImage::poison_unused_keys() {
  std::vector<bool> used(static_cast<std::size_t>(problem_.pages) * problem_.page_size);
  for (std::size_t i = 0; i < sequences_.seqused_k.size(); ++i) {
    for (int key = 0; key < sequences_.seqused_k[i]; ++key) {
      const std::int32_t page = sequences_.block_table[i * problem_.table_width + key / problem_.page_size];
      used[static_cast<std::size_t>(page) * problem_.page_size + key % problem_.page_size] = true;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const auto page = static_cast<int>(i) / problem_.page_size;
    const auto token = static_cast<int>(i) % problem_.page_size;
    for (const Placement& at : {k_, v_}) {
      if (!used[i]) poison_rows(at, problem_.heads_kv, token, token + 1, page);
    }
  }
}

void CallImage::poison_rows(const Placement& at, int heads, int first, int end, int batch) {
  for (int row = first; row < end; ++row) {
    for (int head = 0; head < heads; ++head) {
      const auto from = in_.begin() + static_cast<std::ptrdiff_t>(at.first) + batch * at.stride_batch +
                        row * at.stride_seq + head * at.stride_head;
      std::fill(from, from + at.head_dim, poison_bits);
    }
  }
}

void CallImage::poison_sequence(int sequence) {
  poisoned_ = sequence;
  const auto i = static_cast<std::size_t>(sequence);
  poison_rows(q_, problem_.heads_q, sequences_.cu_seqlens_q[i], sequences_.cu_seqlens_q[i + 1]);
  for (const Placement& at : {k_, v_}) {
    if (!problem_.paged) {
      poison_rows(at, problem_.heads_kv, sequences_.cu_seqlens_k[i], sequences_.cu_seqlens_k[i + 1]);
      continue;
    }
    for (int key = 0; key < sequences_.seqused_k[i]; ++key) {
      const int token = key % problem_.page_size;
      poison_rows(at, problem_.heads_kv, token, token + 1,
                  sequences_.block_table[i * problem_.table_width + key / problem_.page_size]);
    }
  }
}

CallImage::Arrays CallImage::own_arrays() const {
  const auto data = [](const std::vector<std::int32_t>& values) { return values.empty() ? nullptr : values.data(); };
  return {data(sequences_.cu_seqlens_q), data(sequences_.cu_seqlens_k), data(sequences_.seqused_k),
          data(sequences_.block_table), data(sequences_.seqused_q)};
}

std::vector<std::uint16_t> CallImage::poisoned_out() const {
  return std::vector<std::uint16_t>(out_elements_, poison_bits);
}

std::vector<float> CallImage::poisoned_lse() const { return std::vector<float>(rows() + 2 * guard, poison_float); }

attune_prefill_args CallImage::args(void* in, void* out, void* lse, const Arrays& arrays) const {
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
  args.softmax_scale = static_cast<float>(usual_scale(problem_.head_dim));
  args.causal = problem_.causal ? 1 : 0;
  args.head_dim_v = problem_.head_dim_v;
  args.cu_seqlens_q = arrays.cu_seqlens_q;
  args.cu_seqlens_k = arrays.cu_seqlens_k;
  args.seqused_k = arrays.seqused_k;
  args.seqused_q = arrays.seqused_q;
  args.total_q = problem_.total_q;
  args.total_k = problem_.total_k;
  args.window = 1;
  args.window_left = problem_.window_left;
  args.window_right = problem_.window_right;
  args.softcap = problem_.softcap;
  args.block_table = arrays.block_table;
  args.table_width = problem_.table_width;
  args.pages = problem_.pages;
  args.page_size = problem_.page_size;
  return args;
}

CallImage::Output CallImage::output(std::vector<std::uint16_t> out, std::vector<float> lse,
                                    const std::vector<std::uint16_t>& in_after) const {
  Output output;
  output.o.resize(rows() * problem_.head_dim_of_v());
  for_each_element(o_, problem_.stored_sequences(), problem_.stored_rows(), problem_.heads_q,
                   [&](std::size_t from, std::size_t i) {
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
  const auto expected = [&](AttentionFunction& attention) {
    ReferenceOutput result = attention_of(attention, problem_, sequences_, q, k, v, scale);
    if (poisoned_ < 0) return result;
    // A weight of 0 times NaN is NaN, in rows that see none of the keys too.
    const auto sequence = static_cast<std::size_t>(poisoned_);
    const std::ptrdiff_t row_elements = static_cast<std::ptrdiff_t>(problem_.heads_q) * problem_.head_dim_of_v();
    const auto fill = [](std::vector<double>& values, std::ptrdiff_t first, std::ptrdiff_t count) {
      std::fill_n(values.begin() + first, count, std::numeric_limits<double>::quiet_NaN());
    };
    const auto [first, end] = sequences_.queries_of(sequence);
    const std::ptrdiff_t count = end - first;
    fill(result.o, first * row_elements, count * row_elements);
    for (std::ptrdiff_t head = 0; head < problem_.heads_q; ++head) {
      fill(result.lse, head * problem_.total_q + first, count);
    }
    return result;
  };
  return compare(problem_, output.o.data(), output.lse.data(), expected(reference_attention),
                 expected(naive_attention));
}

/// Whether nothing was written to the rows that no sequence of a ragged batch has or uses.
bool CallImage::unowned_rows_intact(const Output& output) const {
  if (!problem_.ragged) return true;
  const std::size_t row_elements = static_cast<std::size_t>(problem_.heads_q) * problem_.head_dim_of_v();
  std::vector<bool> used(static_cast<std::size_t>(problem_.total_q));
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem_.batch); ++i) {
    const auto [first, end] = sequences_.queries_of(i);
    std::fill(used.begin() + first, used.begin() + end, true);
  }
  for (int row = 0; row < problem_.total_q; ++row) {
    if (used[static_cast<std::size_t>(row)]) continue;
    const auto first = output.o.begin() + static_cast<std::ptrdiff_t>(row * row_elements);
    if (!std::all_of(first, first + static_cast<std::ptrdiff_t>(row_elements),
                     [](std::uint16_t bits) { return bits == poison_bits; })) {
      return false;
    }
    for (int head = 0; head < problem_.heads_q; ++head) {
      const float lse = output.lse[static_cast<std::size_t>(head) * problem_.total_q + row];
      if (lse == lse) return false;
    }
  }
  return true;
}

void CallImage::check(const Output& output, double scale) const {
  const Comparison comparison = compare_with_reference(output, scale);
  CAPTURE(comparison.max_error);
  CAPTURE(comparison.tolerance);
  CAPTURE(comparison.lse_error);
  CAPTURE(comparison.unwritten);
  CHECK(comparison.agrees);
  CHECK(output.surroundings_intact);
  CHECK(unowned_rows_intact(output));
}

}  // namespace attune::testing
