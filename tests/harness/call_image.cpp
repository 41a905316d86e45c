#include "tests/harness/call_image.hpp"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "tests/harness/check_outputs.hpp"

namespace attune::testing {

PlacedTensor CallImage::place(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap) {
  PlacedTensor tensor = PlacedTensor::laid_out(layout, batch, seqlen, heads, head_dim, gap);
  // Pages that begin whole rows apart, fewer of K than of V.
  if (layout == Layout::gaps && problem_.paged && problem_.mappable_pages) {
    tensor.stride_batch = tensor.stride_seq * (seqlen + gap / 8);
  }
  return tensor.in(places_);
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
    std::tie(q_, k_, v_) = place_packed(places_, problem);
  } else {
    q_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim);
    k_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim);
    v_ = place(layout, sequences_of_keys, keys, problem.heads_kv, dim_v, 16);
  }
  o_ = place(layout, sequences_of_rows, rows, problem.heads_q, dim_v);
  lse_ = places_.add(query_rows(problem) * sizeof(float));
  arrays_ = PlacedSequences(sequences_, places_);
  memory_ = places_.memory();
  arrays_.put(memory_, sequences_);
  for (std::uint64_t i = 0; const PlacedTensor& tensor : {q_, k_, v_}) {
    tensor.fill(memory_, random_values(problem.dtype, tensor.elements(), 3 * seed + i++));
  }
  q_.padding().for_each([&](std::size_t to, std::size_t) { memory_[to] = 0; });
  if (problem.paged) poison_unused_keys();
  if (!problem.ragged) return;

  const auto poison_gaps = [&](const PlacedTensor& at, const std::vector<std::int32_t>& cu_seqlens) {
    at.poison_rows(memory_, 0, cu_seqlens.front());
    at.poison_rows(memory_, cu_seqlens.back(), at.seqlen);
  };
  poison_gaps(q_, sequences_.cu_seqlens_q);
  for (std::size_t i = 0; i < sequences_.seqused_q.size(); ++i) {
    q_.poison_rows(memory_, sequences_.queries_of(i).second, sequences_.cu_seqlens_q[i + 1]);
  }
  if (problem.paged) return;
  for (const PlacedTensor& at : {k_, v_}) {
    poison_gaps(at, sequences_.cu_seqlens_k);
    for (std::size_t i = 0; i < sequences_.seqused_k.size(); ++i) {
      const std::int32_t first = sequences_.cu_seqlens_k[i];
      at.poison_rows(memory_, first + sequences_.seqused_k[i], sequences_.cu_seqlens_k[i + 1]);
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
    for (const PlacedTensor& at : {k_, v_}) {
      if (!used[i]) at.poison_rows(memory_, token, token + 1, page);
    }
  }
}

void CallImage::poison_sequence(int sequence) {
  poisoned_ = sequence;
  const auto i = static_cast<std::size_t>(sequence);
  q_.poison_rows(memory_, sequences_.cu_seqlens_q[i], sequences_.cu_seqlens_q[i + 1]);
  for (const PlacedTensor& at : {k_, v_}) {
    if (!problem_.paged) {
      at.poison_rows(memory_, sequences_.cu_seqlens_k[i], sequences_.cu_seqlens_k[i + 1]);
      continue;
    }
    for (int key = 0; key < sequences_.seqused_k[i]; ++key) {
      const int token = key % problem_.page_size;
      at.poison_rows(memory_, token, token + 1,
                     sequences_.block_table[i * problem_.table_width + key / problem_.page_size]);
    }
  }
}

attune_prefill_args CallImage::args(void* memory) const {
  attune_prefill_args args = arguments_of(problem_);
  args.q = q_.at(memory);
  args.k = k_.at(memory);
  args.v = v_.at(memory);
  args.o = o_.at(memory);
  args.lse = at<float>(memory, lse_);
  arrays_.say(args, memory, sequences_);
  return args;
}

Outputs CallImage::outputs(Memory after) const {
  Outputs outputs{.o = std::vector<std::uint16_t>(output_elements(problem_)),
                  .lse = take<float>(after, lse_, query_rows(problem_))};
  o_.for_each([&](std::size_t from, std::size_t i) { outputs.o[i] = std::exchange(after[from], poison); });
  o_.padding().for_each([&](std::size_t from, std::size_t) { after[from] = poison; });
  outputs.guards_intact = after == memory_;
  return outputs;
}

Expected CallImage::expected(double scale) const {
  const auto by = [&](AttentionFunction& attention) {
    ReferenceOutput result =
        attention_of(attention, problem_, sequences_, q_.at(memory_), k_.at(memory_), v_.at(memory_), scale);
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
