#include "runtime/lab/reference_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "generator/expression/pool.hpp"
#include "generator/parallel.hpp"

namespace attune {
namespace {

/// Rows of one head as numbers: rows x columns.
template <class T>
struct Rows {
  int columns = 0;
  std::vector<T> values;

  Rows(int rows, int columns) : columns(columns), values(static_cast<std::size_t>(rows) * columns, T(0)) {}

  /// Those of a tensor.
  Rows(Dtype dtype, const HostTensor& tensor, int batch, int head, int rows, int columns) : Rows(rows, columns) {
    for (int row = 0; row < rows; ++row) {
      const std::uint16_t* const from =
          tensor.data + batch * tensor.stride_batch + row * tensor.stride_seq + head * tensor.stride_head;
      std::transform(from, from + columns, of(row), [&](std::uint16_t bits) { return T(from_storage(dtype, bits)); });
    }
  }

  T* of(int row) { return values.data() + static_cast<std::ptrdiff_t>(row) * columns; }
  const T* of(int row) const { return values.data() + static_cast<std::ptrdiff_t>(row) * columns; }
};

template <class T>
T dot(const T* x, const T* y, int count) {
  T sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

template <class T>
void add_scaled(T* to, T factor, const T* from, int count) {
  for (int i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// The gradients of the heads that share one head of K and V; or of each the sum of its terms' magnitudes.
template <class T, class Round, bool magnitudes>
class HeadGradients {
 public:
  HeadGradients(const Problem& problem, const GradientInputs& inputs, const Round& round, int batch, int kv_head)
      : problem_(problem),
        inputs_(inputs),
        round_(round),
        batch_(batch),
        kv_head_(kv_head),
        k_(problem.dtype, inputs.k, batch, kv_head, problem.seqlen_k, problem.head_dim),
        v_(problem.dtype, inputs.v, batch, kv_head, problem.seqlen_k, problem.head_dim_of_v()),
        dk_(problem.seqlen_k, problem.head_dim),
        dv_(problem.seqlen_k, problem.head_dim_of_v()) {}

  void add_to(Gradients& gradients) {
    const int ratio = problem_.heads_q / problem_.heads_kv;
    for (int head = kv_head_ * ratio; head < (kv_head_ + 1) * ratio; ++head) add_head(head, gradients.dq);
    write(dk_, problem_.heads_kv, kv_head_, problem_.seqlen_k, gradients.dk);
    write(dv_, problem_.heads_kv, kv_head_, problem_.seqlen_k, gradients.dv);
  }

 private:
  void add_head(int head, std::vector<double>& all_dq) {
    const Rows<T> q(problem_.dtype, inputs_.q, batch_, head, problem_.seqlen_q, problem_.head_dim);
    const Rows<T> dout(problem_.dtype, inputs_.dout, batch_, head, problem_.seqlen_q, problem_.head_dim_of_v());
    Rows<T> dq(problem_.seqlen_q, problem_.head_dim);
    for (int row = 0; row < problem_.seqlen_q; ++row) {
      const Problem::Keys keys = problem_.visible_keys(row);
      if (keys.end <= keys.first) continue;
      const std::size_t lse = (static_cast<std::size_t>(batch_) * problem_.heads_q + head) * problem_.seqlen_q + row;
      const auto keeps = [&](int key) { return inputs_.dropout.keeps(batch_ * problem_.heads_q + head, row, key); };
      add_row(head, row, q.of(row), dout.of(row), inputs_.dlse.empty() ? T(0) : T(inputs_.dlse[lse]), keys, keeps,
              dq.of(row));
    }
    write(dq, problem_.heads_q, head, problem_.seqlen_q, all_dq);
  }

  /// S = scale Q K^T, capped; P = softmax(S); dP = dO V^T; dS = P (dP - D + dLSE) with D the row's sum of P dP. With
  /// dropout dP is 0 or grows as weights do, and dV gets those.
  template <class Keeps>
  void add_row(int head, int row, const T* q, const T* dout, T dlse, const Problem::Keys& keys, const Keeps& keeps,
               T* dq) {
    const T grown(inputs_.dropout.scale());
    const auto count = static_cast<std::size_t>(keys.end - keys.first);
    const T scale(inputs_.scale);
    const T softcap(problem_.softcap);
    std::vector<T> p(count);
    std::vector<T> slope(count, T(1));  // of the cap
    std::vector<T> dp(count);
    for (std::size_t j = 0; j < count; ++j) {
      const int key = keys.first + static_cast<int>(j);
      p[j] = round_(round_(dot(q, k_.of(key), problem_.head_dim)) * scale);
      if (problem_.softcap > 0) {
        const T tanh = round_(std::tanh(round_(p[j] / softcap)));
        slope[j] = round_(T(1) - tanh * tanh);
        p[j] = round_(tanh * softcap);
      }
      p[j] = expressed(p[j], head, row, key);
      dp[j] = keeps(key) ? round_(round_(product(dout, v_.of(key), problem_.head_dim_of_v())) * grown) : T(0);
    }
    const T largest = *std::ranges::max_element(p);
    if (largest == -std::numeric_limits<T>::infinity()) return;
    T sum = 0;
    for (T& x : p) sum += x = std::exp(x - largest);
    for (T& x : p) x = round_(x / sum);
    const T own = magnitudes ? -std::abs(dlse) : dlse;
    const T D = dot(p.data(), dp.data(), static_cast<int>(count)) - own;
    for (std::size_t j = 0; j < count; ++j) {
      const int key = keys.first + static_cast<int>(j);
      T ds = round_(p[j] * (magnitudes ? dp[j] + D : dp[j] - D));
      if (problem_.softcap > 0) ds = round_(ds * slope[j]);
      ds = round_(ds * scale);
      add(dq, ds, k_.of(key), problem_.head_dim);
      add(dk_.of(key), ds, q, problem_.head_dim);
      if (keeps(key)) add(dv_.of(key), round_(p[j] * grown), dout, problem_.head_dim_of_v());
    }
  }

  /// A score as expressions leave it: -infinity where the mask hides it.
  T expressed(T s, int head, int row, int key) const {
    const CallExpressions& own = problem_.expressions;
    if (!own.any()) return s;
    const expression::Place place{.s = s,
                                  .q = row,
                                  .p = row + problem_.seqlen_k - problem_.seqlen_q,
                                  .k = key,
                                  .h = head,
                                  .hk = kv_head_,
                                  .b = inputs_.first_sequence + batch_};
    if (own.mask != 0 && value_of(expression::expression_of(own.mask), inputs_.values->of_mask, place) == 0) {
      return -std::numeric_limits<T>::infinity();
    }
    if (own.score == 0) return s;
    return round_(T(value_of(expression::expression_of(own.score), inputs_.values->of_score, place)));
  }

  static T product(const T* x, const T* y, int count) {
    if constexpr (!magnitudes) return dot(x, y, count);
    T sum = 0;
    for (int i = 0; i < count; ++i) sum += std::abs(x[i] * y[i]);
    return sum;
  }

  static void add(T* to, T factor, const T* from, int count) {
    if constexpr (!magnitudes) return add_scaled(to, factor, from, count);
    for (int i = 0; i < count; ++i) to[i] += std::abs(factor * from[i]);
  }

  /// To their place in batch x seqlen x heads x columns.
  void write(const Rows<T>& rows, int heads, int head, int seqlen, std::vector<double>& all) const {
    for (int row = 0; row < seqlen; ++row) {
      const std::size_t to = ((static_cast<std::size_t>(batch_) * seqlen + row) * heads + head) * rows.columns;
      std::transform(rows.of(row), rows.of(row) + rows.columns, all.begin() + static_cast<std::ptrdiff_t>(to),
                     [&](T x) { return double(round_(x)); });
    }
  }

  const Problem& problem_;
  const GradientInputs& inputs_;
  const Round& round_;
  int batch_;
  int kv_head_;
  Rows<T> k_;
  Rows<T> v_;
  Rows<T> dk_;
  Rows<T> dv_;
};

/// NaN or zeros of the tensors' sizes.
Gradients filled(const Problem& problem, double value) {
  const auto size = [&](int sequences, int rows, int heads, int columns) {
    return static_cast<std::size_t>(sequences) * rows * heads * columns;
  };
  const int sequences = problem.stored_sequences();
  const int keys = problem.stored_keys();
  const std::size_t dv = size(sequences, keys, problem.heads_kv, problem.head_dim_of_v());
  return {.dq = std::vector<double>(size(sequences, problem.stored_rows(), problem.heads_q, problem.head_dim), value),
          .dk = std::vector<double>(size(sequences, keys, problem.heads_kv, problem.head_dim), value),
          .dv = std::vector<double>(dv, value)};
}

template <class T, bool magnitudes = false, class Round>
Gradients gradients_in(const Problem& problem, const GradientInputs& inputs, int threads, const Round& round) {
  Gradients result = filled(problem, 0);
  parallel_for(static_cast<long long>(problem.batch) * problem.heads_kv, threads, [&](long long i) {
    const int batch = static_cast<int>(i / problem.heads_kv);
    HeadGradients<T, Round, magnitudes>(problem, inputs, round, batch, static_cast<int>(i % problem.heads_kv))
        .add_to(result);
  });
  return result;
}

/// What sums in fp32 of up to some hundred terms may be off by, of the sum of their magnitudes.
constexpr double fp32_error = 0x1p-20;

}  // namespace

Gradients reference_gradients(const Problem& problem, const GradientInputs& inputs, int threads) {
  return gradients_in<double>(problem, inputs, threads, [](double x) { return x; });
}

Gradients naive_gradients(const Problem& problem, const GradientInputs& inputs, int threads) {
  return gradients_in<float>(problem, inputs, threads,
                             [dtype = problem.dtype](float x) { return from_storage(dtype, to_storage(dtype, x)); });
}

Gradients gradient_terms(const Problem& problem, const GradientInputs& inputs, int threads) {
  return gradients_in<double, true>(problem, inputs, threads, [](double x) { return x; });
}

Gradients ragged_gradients(GradientFunction& gradients, const Problem& problem, const Sequences& sequences,
                           const GradientInputs& inputs) {
  Gradients result = filled(problem, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem.batch); ++i) {
    const auto [first, end] = sequences.queries_of(i);
    const int first_key = sequences.cu_seqlens_k[i];
    Problem one = problem;
    one.ragged = false;
    one.batch = 1;
    one.seqlen_q = end - first;
    one.seqlen_k = sequences.cu_seqlens_k[i + 1] - first_key;
    if (!sequences.seqused_k.empty()) one.seqlen_k = std::min(one.seqlen_k, sequences.seqused_k[i]);
    std::vector<float> dlse;
    for (int head = 0; !inputs.dlse.empty() && head < problem.heads_q; ++head) {
      const auto row = inputs.dlse.begin() + static_cast<std::ptrdiff_t>(head) * problem.total_q;
      dlse.insert(dlse.end(), row + first, row + end);
    }
    const Gradients own = gradients(one,
                                    {.q = inputs.q.from_row(first),
                                     .k = inputs.k.from_row(first_key),
                                     .v = inputs.v.from_row(first_key),
                                     .dout = inputs.dout.from_row(first),
                                     .dlse = dlse,
                                     .scale = inputs.scale,
                                     .dropout = inputs.dropout.from(static_cast<int>(i), problem.heads_q),
                                     .values = inputs.values,
                                     .first_sequence = static_cast<int>(i)},
                                    0);
    const auto place = [](const std::vector<double>& from, std::vector<double>& to, int row, int heads, int columns) {
      std::ranges::copy(from, to.begin() + static_cast<std::ptrdiff_t>(row) * heads * columns);
    };
    place(own.dq, result.dq, first, problem.heads_q, problem.head_dim);
    place(own.dk, result.dk, first_key, problem.heads_kv, problem.head_dim);
    place(own.dv, result.dv, first_key, problem.heads_kv, problem.head_dim_of_v());
  }
  return result;
}

Gradients gradients_of(GradientFunction& gradients, const Problem& problem, const Sequences& sequences,
                       const GradientInputs& inputs) {
  if (problem.ragged) return ragged_gradients(gradients, problem, sequences, inputs);
  return gradients(problem, inputs, 0);
}

GradientComparison compare_gradient(Dtype dtype, std::span<const std::uint16_t> found,
                                    std::span<const double> reference, std::span<const double> naive,
                                    std::span<const double> terms) {
  GradientComparison result;
  double largest = 0;
  double largest_terms = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    if (!std::isfinite(reference[i])) continue;
    largest = std::max(largest, std::abs(reference[i]));
    result.naive_error = std::max(result.naive_error, std::abs(naive[i] - reference[i]));
    if (!terms.empty()) largest_terms = std::max(largest_terms, terms[i]);
    const float out = from_storage(dtype, found[i]);
    if (std::isnan(out)) {
      ++result.unwritten;
    } else {
      result.max_error = std::max(result.max_error, std::abs(out - reference[i]));
    }
  }
  result.tolerance = std::max({3 * result.naive_error, storage_ulp(dtype, largest), largest_terms * fp32_error});
  result.agrees = result.unwritten == 0 && result.max_error <= result.tolerance;
  return result;
}

}  // namespace attune
