#include "runtime/lab/expressed_attention.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "generator/expression/pool.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/storage.hpp"
#include "runtime/lab/dropout_mask.hpp"

namespace attune {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One sequence of the problem: its own lengths, and where its rows are.
struct OneSequence {
  int number;
  int first_row;  ///< among those of all
  Problem lengths;
};

OneSequence sequence_of(const Problem& problem, const Sequences& sequences, int number) {
  const auto i = static_cast<std::size_t>(number);
  OneSequence one{.number = number, .first_row = number * problem.seqlen_q, .lengths = problem};
  if (problem.ragged) {
    const auto [first, end] = sequences.queries_of(i);
    one.first_row = first;
    one.lengths.seqlen_q = end - first;
    if (!problem.paged) one.lengths.seqlen_k = sequences.cu_seqlens_k[i + 1] - sequences.cu_seqlens_k[i];
  }
  if (!sequences.seqused_k.empty()) {
    one.lengths.seqlen_k =
        problem.paged ? sequences.seqused_k[i] : std::min(one.lengths.seqlen_k, sequences.seqused_k[i]);
  }
  return one;
}

class Attention {
 public:
  Attention(const Problem& problem, const Sequences& sequences, const ExpressionValues& values,
            const HostOperands& operands, double scale, bool naive)
      : problem_(problem), sequences_(sequences), values_(values), operands_(operands), scale_(scale), naive_(naive) {}

  ReferenceOutput run() {
    const std::size_t rows =
        static_cast<std::size_t>(problem_.stored_sequences()) * problem_.heads_q * problem_.stored_rows();
    constexpr double nobodys = std::numeric_limits<double>::quiet_NaN();
    output_.o.assign(rows * static_cast<std::size_t>(problem_.head_dim_of_v()), nobodys);
    output_.lse.assign(rows, nobodys);
    for (int i = 0; i < problem_.batch; ++i) {
      const OneSequence one = sequence_of(problem_, sequences_, i);
      for (int head = 0; head < problem_.heads_q; ++head) {
        for (int row = 0; row < one.lengths.seqlen_q; ++row) attend(one, head, row);
      }
    }
    return std::move(output_);
  }

 private:
  [[nodiscard]] double rounded(double x) const {
    return naive_ ? from_storage(problem_.dtype, to_storage(problem_.dtype, static_cast<float>(x))) : x;
  }

  /// An element of K or V of a sequence.
  [[nodiscard]] double element(const HostTensor& tensor, const OneSequence& one, int key, int head, int column) const {
    long long at = 0;
    if (problem_.paged) {
      const std::size_t entry = static_cast<std::size_t>(one.number) * static_cast<std::size_t>(problem_.table_width) +
                                static_cast<std::size_t>(key / problem_.page_size);
      at = sequences_.block_table[entry] * tensor.stride_batch + key % problem_.page_size * tensor.stride_seq;
    } else if (problem_.ragged) {
      at = (sequences_.cu_seqlens_k[static_cast<std::size_t>(one.number)] + key) * tensor.stride_seq;
    } else {
      at = one.number * tensor.stride_batch + key * tensor.stride_seq;
    }
    return from_storage(problem_.dtype, tensor.data[at + head * tensor.stride_head + column]);
  }

  [[nodiscard]] double query(const OneSequence& one, int row, int head, int column) const {
    const HostTensor& q = operands_.q;
    const long long at =
        problem_.ragged ? (one.first_row + row) * q.stride_seq : one.number * q.stride_batch + row * q.stride_seq;
    return from_storage(problem_.dtype, q.data[at + head * q.stride_head + column]);
  }

  /// The score of a key, -infinity where it is not seen. LSE's naive version takes scores that were never rounded.
  [[nodiscard]] double score(const OneSequence& one, int head, int row, int key, bool rounds) const {
    const int kv_head = head / (problem_.heads_q / problem_.heads_kv);
    double sum = 0;
    for (int d = 0; d < problem_.head_dim; ++d) {
      sum += query(one, row, head, d) * element(operands_.k, one, key, kv_head, d);
    }
    const auto round = [&](double x) { return rounds ? rounded(x) : x; };
    double s = round(round(sum) * scale_);
    if (problem_.softcap > 0) s = round(std::tanh(s / problem_.softcap) * problem_.softcap);
    const expression::Place place{.s = s,
                                  .q = row,
                                  .p = row + one.lengths.seqlen_k - one.lengths.seqlen_q,
                                  .k = key,
                                  .h = head,
                                  .hk = kv_head,
                                  .b = one.number};
    const CallExpressions& own = problem_.expressions;
    if (own.mask != 0 && value_of(expression::expression_of(own.mask), values_.of_mask, place) == 0) return -infinity;
    if (own.score == 0) return s;
    return round(value_of(expression::expression_of(own.score), values_.of_score, place));
  }

  void attend(const OneSequence& one, int head, int row) {
    const int rows_of_all = problem_.stored_rows();
    const int dim = problem_.head_dim_of_v();
    const int kv_head = head / (problem_.heads_q / problem_.heads_kv);
    const long long o_row = (static_cast<long long>(one.first_row) + row) * problem_.heads_q + head;
    const long long lse_row = problem_.ragged
                                  ? static_cast<long long>(head) * rows_of_all + one.first_row + row
                                  : (static_cast<long long>(one.number) * problem_.heads_q + head) * rows_of_all + row;
    double* const o = &output_.o[static_cast<std::size_t>(o_row * dim)];
    double& lse = output_.lse[static_cast<std::size_t>(lse_row)];
    std::fill_n(o, dim, 0.0);
    lse = -infinity;
    const Problem::Keys keys = one.lengths.visible_keys(row);
    std::vector<double> s;
    std::vector<double> exact;
    for (int key = keys.first; key < keys.end; ++key) {
      s.push_back(score(one, head, row, key, naive_));
      exact.push_back(naive_ ? score(one, head, row, key, false) : s.back());
    }
    const double sink = values_.sink.empty() ? -infinity : values_.sink[static_cast<std::size_t>(head)];
    const double largest = s.empty() ? sink : std::max(sink, *std::max_element(s.begin(), s.end()));
    if (largest == -infinity) return;
    const double largest_exact = s.empty() ? sink : std::max(sink, *std::max_element(exact.begin(), exact.end()));
    double sum = std::exp(sink - largest);
    double sum_exact = std::exp(sink - largest_exact);
    for (std::size_t j = 0; j < s.size(); ++j) {
      sum_exact += std::exp(exact[j] - largest_exact);
      s[j] = std::exp(s[j] - largest);
      sum += s[j];
    }
    lse = naive_ ? static_cast<float>(largest_exact) + std::log(static_cast<float>(sum_exact))
                 : largest_exact + std::log(sum_exact);
    const DropoutMask dropped = usual_mask(problem_.dropout);
    for (std::size_t j = 0; j < s.size(); ++j) {
      const int key = keys.first + static_cast<int>(j);
      if (!dropped.keeps(one.number * problem_.heads_q + head, row, key)) continue;
      const double weight = rounded(s[j] / sum * dropped.scale());
      for (int d = 0; d < dim; ++d) o[d] += weight * element(operands_.v, one, key, kv_head, d);
    }
    std::transform(o, o + dim, o, [&](double x) { return rounded(x); });
  }

  const Problem& problem_;
  const Sequences& sequences_;
  const ExpressionValues& values_;
  const HostOperands& operands_;
  double scale_;
  bool naive_;
  ReferenceOutput output_;
};

}  // namespace

expression::Array random_array(std::uint64_t seed, const expression::Parameter& parameter,
                               const ExpressionExtents& extents) {
  using expression::Per;
  Random random(seed);
  expression::Array array;
  std::size_t elements = 1;
  for (const expression::Dimension& dimension : parameter.per) {
    const int extent = dimension.per == Per::head       ? extents.heads_q
                       : dimension.per == Per::kv_head  ? extents.heads_kv
                       : dimension.per == Per::batch    ? extents.batch
                       : dimension.per == Per::query    ? extents.queries
                       : dimension.per == Per::position ? extents.positions
                                                        : dimension.extent;
    array.extents.push_back(extent);
    elements *= static_cast<std::size_t>(extent);
  }
  for (std::size_t i = 0; i < elements; ++i) {
    const auto drawn = static_cast<int>(random.below(1 << 10));
    const int whole = random.below(16) == 0 ? drawn % 90 : static_cast<int>(i) / 37;
    array.values.push_back(parameter.type == expression::Type::real ? static_cast<float>(drawn) / 2048.0F : whole);
  }
  return array;
}

ExpressionValues random_values(std::uint64_t seed, const Problem& problem) {
  const ExpressionExtents extents{.heads_q = problem.heads_q,
                                  .heads_kv = problem.heads_kv,
                                  .batch = problem.batch,
                                  .queries = problem.seqlen_q,
                                  .positions = problem.seqlen_k};
  const auto of = [&](int number) {
    std::vector<expression::Array> arrays;
    if (number == 0) return arrays;
    for (const expression::Parameter& parameter : expression::expression_of(number).parameters) {
      arrays.push_back(random_array(seed + parameter.name.size(), parameter, extents));
    }
    return arrays;
  };
  ExpressionValues values{
      .of_score = of(problem.expressions.score), .of_mask = of(problem.expressions.mask), .sink = {}};
  Random random(seed);
  for (int head = 0; head < problem.heads_q * problem.expressions.sink; ++head) {
    // Near the scores, which are around 0; fp16 and bf16 hold them exactly.
    values.sink.push_back(static_cast<float>(random.below(1 << 7)) / 16.0F - 4.0F);
  }
  return values;
}

std::vector<std::uint32_t> stored(const expression::Parameter& parameter, const expression::Array& array) {
  std::vector<std::uint32_t> words;
  for (const double value : array.values) {
    words.push_back(parameter.type == expression::Type::real
                        ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                        : static_cast<std::uint32_t>(static_cast<std::int32_t>(value)));
  }
  return words;
}

ExpressedOutput expressed_attention(const Problem& problem, const Sequences& sequences, const ExpressionValues& values,
                                    const HostOperands& operands, double scale) {
  const auto by = [&](bool naive) { return Attention(problem, sequences, values, operands, scale, naive).run(); };
  return {.reference = by(false), .naive = by(true)};
}

}  // namespace attune
