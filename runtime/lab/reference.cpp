#include "runtime/lab/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "generator/parallel.hpp"

namespace attune {
namespace {

constexpr int rows_per_unit = 64;

/// K and V of one head as floats (which hold every storage value exactly), K transposed so that the loop over
/// keys is the contiguous one.
struct KeysAndValues {
  int count = 0;
  int head_dim = 0;
  int head_dim_v = 0;
  std::vector<float> k;  ///< head_dim x count
  std::vector<float> v;  ///< count x head_dim_v
};

/// One query row and where its result goes.
struct Row {
  int head = 0;  ///< among those of all sequences
  int index = 0;
  std::span<const float> q;
  Problem::Keys keys{};  ///< that it sees
  std::span<double> o;
  double* lse = nullptr;
};

using RowFunction = std::function<void(const Row&, const KeysAndValues&)>;

const std::uint16_t* element(const HostTensor& tensor, int batch, int position, int head) {
  return tensor.data + batch * tensor.stride_batch + position * tensor.stride_seq + head * tensor.stride_head;
}

/// The first `count` keys and values of one head.
KeysAndValues load_head(const Problem& problem, const HostTensor& k, const HostTensor& v, int batch, int head,
                        int count) {
  const std::size_t dim = problem.head_dim;
  const std::size_t dim_v = problem.head_dim_of_v();
  KeysAndValues loaded{.count = count,
                       .head_dim = problem.head_dim,
                       .head_dim_v = problem.head_dim_of_v(),
                       .k = std::vector<float>(dim * count),
                       .v = std::vector<float>(dim_v * count)};
  for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
    const std::uint16_t* key = element(k, batch, static_cast<int>(j), head);
    const std::uint16_t* value = element(v, batch, static_cast<int>(j), head);
    for (std::size_t d = 0; d < dim; ++d) loaded.k[d * count + j] = from_storage(problem.dtype, key[d]);
    for (std::size_t d = 0; d < dim_v; ++d) loaded.v[j * dim_v + d] = from_storage(problem.dtype, value[d]);
  }
  return loaded;
}

/// Walks over batch, heads and rows in parallel. Rows that see no key are settled here, O = 0 and LSE = -infinity.
ReferenceOutput for_each_row(const Problem& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                             int threads, const RowFunction& compute) {
  const std::size_t dim = problem.head_dim;
  const std::size_t dim_v = problem.head_dim_of_v();
  const std::size_t rows = static_cast<std::size_t>(problem.batch) * problem.heads_q * problem.seqlen_q;
  ReferenceOutput output{.o = std::vector<double>(rows * dim_v, 0.0),
                         .lse = std::vector<double>(rows, -std::numeric_limits<double>::infinity())};
  const int units_per_head = (problem.seqlen_q + rows_per_unit - 1) / rows_per_unit;
  const long long units = static_cast<long long>(problem.batch) * problem.heads_q * units_per_head;

  parallel_for(units, threads, [&](long long unit) {
    const int first = static_cast<int>(unit % units_per_head) * rows_per_unit;
    const int head = static_cast<int>(unit / units_per_head % problem.heads_q);
    const int batch = static_cast<int>(unit / units_per_head / problem.heads_q);
    const int end = std::min(first + rows_per_unit, problem.seqlen_q);
    const int head_kv = head / (problem.heads_q / problem.heads_kv);
    const KeysAndValues kv = load_head(problem, k, v, batch, head_kv, problem.visible_keys(end - 1).end);
    std::vector<float> query(dim);
    for (int row = first; row < end; ++row) {
      const Problem::Keys keys = problem.visible_keys(row);
      if (keys.end <= keys.first) continue;
      std::transform(element(q, batch, row, head), element(q, batch, row, head) + dim, query.begin(),
                     [&](std::uint16_t bits) { return from_storage(problem.dtype, bits); });
      const std::size_t o_row = (static_cast<std::size_t>(batch) * problem.seqlen_q + row) * problem.heads_q + head;
      const std::size_t lse_row = (static_cast<std::size_t>(batch) * problem.heads_q + head) * problem.seqlen_q + row;
      compute({.head = batch * problem.heads_q + head,
               .index = row,
               .q = query,
               .keys = keys,
               .o = {&output.o[o_row * dim_v], dim_v},
               .lse = &output.lse[lse_row]},
              kv);
    }
  });
  return output;
}

/// q . k for every key that the row sees, summed in T over head_dim.
template <class T>
std::vector<T> scores(const Row& row, const KeysAndValues& kv) {
  std::vector<T> sums(row.keys.end - row.keys.first, T(0));
  for (int d = 0; d < kv.head_dim; ++d) {
    const T query = row.q[d];
    const float* keys = kv.k.data() + static_cast<std::size_t>(d) * kv.count + row.keys.first;
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += query * static_cast<T>(keys[j]);
  }
  return sums;
}

template <class T>
T capped(T score, T softcap) {
  return softcap > 0 ? softcap * std::tanh(score / softcap) : score;
}

/// Weights without those that are dropped, the others multiplied for it.
template <class T>
void drop(std::vector<T>& weights, const Row& row, const DropoutMask& mask) {
  if (mask.kept == 256) return;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const bool kept = mask.keeps(row.head, row.index, row.keys.first + static_cast<int>(j));
    weights[j] = kept ? weights[j] * static_cast<T>(mask.scale()) : T(0);
  }
}

/// sum_j weight_j * v_j over the keys that the row sees, summed in T.
template <class T>
std::vector<T> weighted_values(const std::vector<T>& weights, const Row& row, const KeysAndValues& kv) {
  std::vector<T> sums(kv.head_dim_v, T(0));
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const float* value = kv.v.data() + (row.keys.first + j) * kv.head_dim_v;
    for (int d = 0; d < kv.head_dim_v; ++d) sums[d] += weights[j] * static_cast<T>(value[d]);
  }
  return sums;
}

/// exp(s - max s), their sum and the logarithm of the sum of exp(s).
template <class T>
struct Softmax {
  std::vector<T> weights;
  T sum = 0;
  T lse = 0;
};

template <class T>
Softmax<T> softmax(std::vector<T> s) {
  Softmax<T> result;
  const T largest = *std::max_element(s.begin(), s.end());
  for (T& x : s) {
    x = std::exp(x - largest);
    result.sum += x;
  }
  result.lse = largest + std::log(result.sum);
  result.weights = std::move(s);
  return result;
}

/// The rows of one sequence in the pages that its table names, seqlen_k x heads_kv x head_dim.
std::vector<std::uint16_t> gathered(const Problem& one, const HostTensor& cache, int head_dim,
                                    const std::int32_t* table) {
  std::vector<std::uint16_t> rows;
  for (int key = 0; key < one.seqlen_k; ++key) {
    for (int head = 0; head < one.heads_kv; ++head) {
      const std::uint16_t* row = element(cache, table[key / one.page_size], key % one.page_size, head);
      rows.insert(rows.end(), row, row + head_dim);
    }
  }
  return rows;
}

/// Computes each sequence as a problem of its own, whose seqlen_k is left to `compute`, and puts its rows where they
/// are among those of all.
template <class Compute>
ReferenceOutput by_sequence(const Problem& problem, const Sequences& sequences, const Compute& compute) {
  const auto heads = static_cast<std::size_t>(problem.heads_q);
  const std::size_t rows = static_cast<std::size_t>(problem.stored_sequences()) * problem.stored_rows();
  const std::size_t row_elements = heads * problem.head_dim_of_v();
  constexpr double nobodys = std::numeric_limits<double>::quiet_NaN();
  ReferenceOutput output{.o = std::vector<double>(rows * row_elements, nobodys),
                         .lse = std::vector<double>(rows * heads, nobodys)};
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem.batch); ++i) {
    int first = static_cast<int>(i) * problem.seqlen_q;
    Problem one = problem;
    if (problem.ragged) {
      const auto [begin, end] = sequences.queries_of(i);
      first = begin;
      one.seqlen_q = end - begin;
    }
    one.ragged = one.paged = false;
    one.batch = 1;
    const ReferenceOutput own = compute(i, first, one);
    std::ranges::copy(own.o, output.o.begin() + static_cast<std::ptrdiff_t>(first * row_elements));
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t to = problem.ragged ? head * rows + first : (i * heads + head) * problem.seqlen_q;
      std::copy_n(own.lse.begin() + static_cast<std::ptrdiff_t>(head * one.seqlen_q), one.seqlen_q,
                  output.lse.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
  return output;
}

}  // namespace

ReferenceOutput reference_attention(const Problem& problem, const HostTensor& q, const HostTensor& k,
                                    const HostTensor& v, double scale, int threads, const DropoutMask& mask) {
  return for_each_row(problem, q, k, v, threads, [&](const Row& row, const KeysAndValues& kv) {
    std::vector<double> s = scores<double>(row, kv);
    for (double& x : s) x = capped(x * scale, static_cast<double>(problem.softcap));
    Softmax<double> p = softmax(std::move(s));
    drop(p.weights, row, mask);
    const std::vector<double> o = weighted_values(p.weights, row, kv);
    std::transform(o.begin(), o.end(), row.o.begin(), [&](double x) { return x / p.sum; });
    *row.lse = p.lse;
  });
}

ReferenceOutput naive_attention(const Problem& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                                double scale, int threads, const DropoutMask& mask) {
  const auto rounded = [&](float x) { return from_storage(problem.dtype, to_storage(problem.dtype, x)); };
  const auto factor = static_cast<float>(scale);
  return for_each_row(problem, q, k, v, threads, [&](const Row& row, const KeysAndValues& kv) {
    std::vector<float> s = scores<float>(row, kv);
    // LSE is stored as fp32, so its naive version takes scores that were never rounded to less.
    std::vector<float> s_fp32 = s;
    for (float& x : s_fp32) x = capped(x * factor, problem.softcap);
    *row.lse = softmax(std::move(s_fp32)).lse;

    for (float& x : s) {
      x = rounded(rounded(x) * factor);
      if (problem.softcap > 0) x = rounded(rounded(std::tanh(rounded(x / problem.softcap))) * problem.softcap);
    }
    Softmax<float> p = softmax(std::move(s));
    for (float& x : p.weights) x = rounded(x / p.sum);
    drop(p.weights, row, mask);
    for (float& x : p.weights) x = rounded(x);
    const std::vector<float> o = weighted_values(p.weights, row, kv);
    std::transform(o.begin(), o.end(), row.o.begin(), rounded);
  });
}

std::pair<int, int> Sequences::queries_of(std::size_t sequence) const {
  const int first = cu_seqlens_q[sequence];
  const int rows = cu_seqlens_q[sequence + 1] - first;
  return {first, first + (seqused_q.empty() ? rows : std::clamp(seqused_q[sequence], 0, std::max(0, rows)))};
}

ReferenceOutput ragged_attention(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                                 const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale) {
  return by_sequence(problem, sequences, [&](std::size_t i, int first_row, Problem& one) {
    const int first_key = sequences.cu_seqlens_k[i];
    one.seqlen_k = sequences.cu_seqlens_k[i + 1] - first_key;
    if (!sequences.seqused_k.empty()) one.seqlen_k = std::min(one.seqlen_k, sequences.seqused_k[i]);
    return attention(one, q.from_row(first_row), k.from_row(first_key), v.from_row(first_key), scale, 0,
                     usual_mask(problem.dropout).from(static_cast<int>(i), problem.heads_q));
  });
}

ReferenceOutput paged_attention(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                                const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale) {
  return by_sequence(problem, sequences, [&](std::size_t i, int first_row, Problem& one) {
    one.seqlen_k = sequences.seqused_k[i];
    const std::int32_t* const table = sequences.block_table.data() + i * problem.table_width;
    const std::vector<std::uint16_t> keys = gathered(one, k, problem.head_dim, table);
    const std::vector<std::uint16_t> values = gathered(one, v, problem.head_dim_of_v(), table);
    const auto contiguous = [&](const std::vector<std::uint16_t>& rows, long long head_dim) {
      return HostTensor{rows.data(), 0, problem.heads_kv * head_dim, head_dim};
    };
    HostTensor queries = q;
    queries.data += problem.ragged ? first_row * q.stride_seq : static_cast<long long>(i) * q.stride_batch;
    return attention(one, queries, contiguous(keys, problem.head_dim), contiguous(values, problem.head_dim_of_v()),
                     scale, 0, usual_mask(problem.dropout).from(static_cast<int>(i), problem.heads_q));
  });
}

ReferenceOutput attention_of(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                             const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale) {
  if (problem.paged) return paged_attention(attention, problem, sequences, q, k, v, scale);
  if (problem.ragged) return ragged_attention(attention, problem, sequences, q, k, v, scale);
  return attention(problem, q, k, v, scale, 0, usual_mask(problem.dropout));
}

Comparison compare(const Problem& problem, const std::uint16_t* o, const float* lse, const ReferenceOutput& reference,
                   const ReferenceOutput& naive) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Comparison result;
  double largest = 0;
  for (std::size_t i = 0; i < reference.o.size(); ++i) {
    if (!std::isfinite(reference.o[i])) continue;
    largest = std::max(largest, std::abs(reference.o[i]));
    // std::max(x, NaN) is x: a naive result that overflowed to NaN does not widen the tolerance.
    result.naive_error = std::max(result.naive_error, std::abs(naive.o[i] - reference.o[i]));
    const float out = from_storage(problem.dtype, o[i]);
    if (std::isnan(out)) {
      ++result.unwritten;
    } else {
      result.max_error = std::max(result.max_error, std::abs(out - reference.o[i]));
    }
  }
  result.tolerance = std::max(2 * result.naive_error, storage_ulp(problem.dtype, largest));

  double naive_lse_error = 0;
  double largest_lse = 1;
  for (std::size_t i = 0; lse != nullptr && i < reference.lse.size(); ++i) {
    const double expected = reference.lse[i];
    if (std::isnan(expected)) continue;
    if (std::isnan(lse[i])) {
      ++result.unwritten;
    } else if (std::isfinite(expected)) {
      largest_lse = std::max(largest_lse, std::abs(expected));
      naive_lse_error = std::max(naive_lse_error, std::abs(naive.lse[i] - expected));
      result.lse_error = std::max(result.lse_error, std::abs(lse[i] - expected));
    } else if (lse[i] != expected) {
      result.lse_error = infinity;
    }
  }
  // A GPU's exp2 and log2 are good to about 2^-22; a few of them in a row make 2^-18 the least one can ask for.
  result.lse_tolerance = std::max(2 * naive_lse_error, std::ldexp(largest_lse, -18));
  result.agrees =
      result.unwritten == 0 && result.max_error <= result.tolerance && result.lse_error <= result.lse_tolerance;
  return result;
}

}  // namespace attune
