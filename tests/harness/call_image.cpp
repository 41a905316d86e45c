#include "tests/harness/call_image.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "tests/harness/check_outputs.hpp"

namespace attune::testing {

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

CallImage::Placement CallImage::place(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap) {
  Placement at{.head_dim = head_dim};
  set_strides(at, layout, seqlen, heads, padded_head_dim(head_dim), gap);
  // Pages that begin whole rows apart, fewer of K than of V.
  if (layout == Layout::gaps && problem_.paged && problem_.mappable_pages) {
    at.stride_batch = at.stride_seq * (seqlen + gap / 8);
  }
  at.first =
      places_.add(static_cast<std::size_t>(at.stride_batch) * batch * sizeof(std::uint16_t)) / sizeof(std::uint16_t);
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

/// What rows have beyond their columns where head_dim is no multiple of 8.
template <class Function>
void CallImage::for_each_padding(const Placement& at, int batch, int seqlen, int heads, const Function& visit) {
  Placement padding = at;
  padding.first += static_cast<std::size_t>(at.head_dim);
  padding.head_dim = padded_head_dim(at.head_dim) - at.head_dim;
  for_each_element(padding, batch, seqlen, heads, [&](std::size_t to, std::size_t) { visit(to); });
}

CallImage::CallImage(const Problem& problem, Layout layout, std::uint64_t seed, Sequences sequences)
    : problem_(problem), sequences_(std::move(sequences)) {
  const int dim = problem.head_dim;
  const int dim_v = problem.head_dim_of_v();
  const int sequences_of_rows = problem.stored_sequences();
  const int sequences_of_keys = problem.stored_key_sequences();
  const int rows = problem.stored_rows();
  const int keys = problem.stored_keys();
  if (layout == Layout::packed) {
    REQUIRE(rows == keys);
    const int Q_row = problem.heads_q * padded_head_dim(dim);
    const int K_row = problem.heads_kv * padded_head_dim(dim);
    q_ = place(layout, sequences_of_rows, rows, 1, Q_row + K_row + problem.heads_kv * padded_head_dim(dim_v));
    q_.head_dim = dim;
    q_.stride_head = padded_head_dim(dim);
    k_ = v_ = q_;
    k_.first += static_cast<std::size_t>(Q_row);
    v_.first = k_.first + static_cast<std::size_t>(K_row);
    v_.head_dim = dim_v;
    v_.stride_head = padded_head_dim(dim_v);
  } else {
    q_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim);
    k_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim);
    v_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim_v, 16);
  }
  o_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim_v);
  lse_ = places_.add(query_rows(problem) * sizeof(float));
  cu_seqlens_q_ = places_.add(sequences_.cu_seqlens_q);
  cu_seqlens_k_ = places_.add(sequences_.cu_seqlens_k);
  seqused_q_ = places_.add(sequences_.seqused_q);
  seqused_k_ = places_.add(sequences_.seqused_k);
  block_table_ = places_.add(sequences_.block_table);
  memory_ = places_.memory();
  put(memory_, cu_seqlens_q_, sequences_.cu_seqlens_q);
  put(memory_, cu_seqlens_k_, sequences_.cu_seqlens_k);
  put(memory_, seqused_q_, sequences_.seqused_q);
  put(memory_, seqused_k_, sequences_.seqused_k);
  put(memory_, block_table_, sequences_.block_table);
  const auto fill = [&](const Placement& at, int batch, int seqlen, int heads, std::uint64_t own_seed) {
    const std::size_t count = std::size_t{1} * batch * seqlen * heads * at.head_dim;
    const std::vector<std::uint16_t> values = random_values(problem.dtype, count, own_seed);
    for_each_element(at, batch, seqlen, heads, [&](std::size_t to, std::size_t i) { memory_[to] = values[i]; });
  };
  fill(q_, sequences_of_rows, rows, problem.heads_q, 3 * seed);
  for_each_padding(q_, sequences_of_rows, rows, problem.heads_q, [&](std::size_t to) { memory_[to] = 0; });
  fill(k_, sequences_of_keys, keys, problem.heads_kv, 3 * seed + 1);
  fill(v_, sequences_of_keys, keys, problem.heads_kv, 3 * seed + 2);
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

/// Keys in pages that no sequence has, and after the last of each.
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
      const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(at.first) + batch * at.stride_batch +
                        row * at.stride_seq + head * at.stride_head;
      std::fill(from, from + at.head_dim, poison);
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

attune_prefill_args CallImage::args(void* memory) const {
  const auto tensor = [&](const Placement& at) {
    return attune_tensor{static_cast<std::uint16_t*>(memory) + at.first, at.stride_batch, at.stride_seq,
                         at.stride_head};
  };
  attune_prefill_args args = arguments_of(problem_);
  args.q = tensor(q_);
  args.k = tensor(k_);
  args.v = tensor(v_);
  args.o = tensor(o_);
  args.lse = at<float>(memory, lse_);
  args.cu_seqlens_q = array_at(memory, cu_seqlens_q_, sequences_.cu_seqlens_q);
  args.cu_seqlens_k = array_at(memory, cu_seqlens_k_, sequences_.cu_seqlens_k);
  args.seqused_k = array_at(memory, seqused_k_, sequences_.seqused_k);
  args.seqused_q = array_at(memory, seqused_q_, sequences_.seqused_q);
  args.block_table = array_at(memory, block_table_, sequences_.block_table);
  return args;
}

Outputs CallImage::outputs(Memory after) const {
  Outputs outputs{.o = std::vector<std::uint16_t>(output_elements(problem_)),
                  .lse = take<float>(after, lse_, query_rows(problem_))};
  for_each_element(o_, problem_.stored_sequences(), problem_.stored_rows(), problem_.heads_q,
                   [&](std::size_t from, std::size_t i) { outputs.o[i] = std::exchange(after[from], poison); });
  for_each_padding(o_, problem_.stored_sequences(), problem_.stored_rows(), problem_.heads_q,
                   [&](std::size_t from) { after[from] = poison; });
  outputs.guards_intact = after == memory_;
  return outputs;
}

HostTensor CallImage::host_tensor(const Placement& at) const {
  return {memory_.data() + at.first, at.stride_batch, at.stride_seq, at.stride_head};
}

Expected CallImage::expected(double scale) const {
  const auto by = [&](AttentionFunction& attention) {
    ReferenceOutput result =
        attention_of(attention, problem_, sequences_, host_tensor(q_), host_tensor(k_), host_tensor(v_), scale);
    fill_poisoned_rows(result.o, result.lse, std::numeric_limits<double>::quiet_NaN());
    return result;
  };
  return {.reference = by(reference_attention), .naive = by(naive_attention)};
}

/// A weight of 0 times NaN is NaN, in rows that see none of the keys too.
template <class O, class Lse>
void CallImage::fill_poisoned_rows(O& o, Lse& lse, typename O::value_type nan) const {
  if (poisoned_ < 0) return;
  const std::ptrdiff_t row_elements = static_cast<std::ptrdiff_t>(problem_.heads_q) * problem_.head_dim_of_v();
  const auto [first, end] = sequences_.queries_of(static_cast<std::size_t>(poisoned_));
  std::fill(o.begin() + first * row_elements, o.begin() + end * row_elements, nan);
  for (std::ptrdiff_t head = 0; head < problem_.heads_q; ++head) {
    const auto rows = lse.begin() + head * problem_.total_q;
    std::fill(rows + first, rows + end, std::numeric_limits<typename Lse::value_type>::quiet_NaN());
  }
}

Comparison CallImage::compare_with_reference(const Outputs& outputs, double scale) const {
  const auto [reference, naive] = expected(scale);
  return compare(problem_, outputs.o.data(), outputs.lse.data(), reference, naive);
}

void CallImage::check(Outputs outputs, double scale) const {
  fill_poisoned_rows(outputs.o, outputs.lse, poison);
  check_outputs(outputs, problem_.dtype, expected(scale));
}

}  // namespace attune::testing
