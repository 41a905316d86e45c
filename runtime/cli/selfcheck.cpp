#include "runtime/cli/selfcheck.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/lab/random_values.hpp"
#include "runtime/lab/trial.hpp"

namespace attune::cli {
namespace {

constexpr double allowed = 1e-12;

struct Inputs {
  std::vector<std::uint16_t> q;
  std::vector<std::uint16_t> k;
  std::vector<std::uint16_t> v;

  Inputs(const Problem& problem, std::uint64_t seed) {
    const auto draw = [&](int seqlen, int heads, int head_dim, std::uint64_t of) {
      return random_values(problem.dtype, std::size_t{1} * problem.batch * seqlen * heads * head_dim, 3 * seed + of);
    };
    q = draw(problem.seqlen_q, problem.heads_q, problem.head_dim, 0);
    k = draw(problem.seqlen_k, problem.heads_kv, problem.head_dim, 1);
    v = draw(problem.seqlen_k, problem.heads_kv, problem.head_dim_of_v(), 2);
  }
};

struct Tensors {
  HostTensor q;
  HostTensor k;
  HostTensor v;
};

Tensors tensors(const Problem& problem, const Inputs& inputs) {
  return {.q = contiguous(inputs.q.data(), problem.seqlen_q, problem.heads_q, problem.head_dim),
          .k = contiguous(inputs.k.data(), problem.seqlen_k, problem.heads_kv, problem.head_dim),
          .v = contiguous(inputs.v.data(), problem.seqlen_k, problem.heads_kv, problem.head_dim_of_v())};
}

ReferenceOutput reference_of(const Problem& problem, const Inputs& inputs) {
  const auto [q, k, v] = tensors(problem, inputs);
  return reference_attention(problem, q, k, v, usual_scale(problem.head_dim));
}

/// One row by online softmax (arXiv 1805.02867), one key at a time from the last to the first.
struct OnlineRow {
  std::vector<long double> o;
  long double lse = -std::numeric_limits<long double>::infinity();
};

OnlineRow online_row(const Problem& problem, const Inputs& inputs, int batch, int head, int row) {
  const int dim_v = problem.head_dim_of_v();
  const Tensors of = tensors(problem, inputs);
  const auto value = [&](const HostTensor& from, int position, int h, int d) {
    const auto index = batch * from.stride_batch + position * from.stride_seq + h * from.stride_head + d;
    return static_cast<long double>(from_storage(problem.dtype, from.data[index]));
  };
  const int head_kv = head * problem.heads_kv / problem.heads_q;
  OnlineRow result{.o = std::vector<long double>(dim_v, 0), .lse = -std::numeric_limits<long double>::infinity()};
  long double largest = -std::numeric_limits<long double>::infinity();
  long double sum = 0;
  for (int j = problem.seqlen_k - 1; j >= 0; --j) {
    if (problem.causal && j - row > problem.seqlen_k - problem.seqlen_q) continue;
    long double score = 0;
    for (int d = 0; d < problem.head_dim; ++d) {
      score += value(of.q, row, head, d) * value(of.k, j, head_kv, d);
    }
    score *= usual_scale(problem.head_dim);
    const long double larger = std::max(largest, score);
    const long double kept = std::exp(largest - larger);
    const long double weight = std::exp(score - larger);
    for (int d = 0; d < dim_v; ++d) result.o[d] = result.o[d] * kept + weight * value(of.v, j, head_kv, d);
    sum = sum * kept + weight;
    largest = larger;
  }
  if (sum > 0) {
    for (long double& x : result.o) x /= sum;
    result.lse = largest + std::log(sum);
  }
  return result;
}

/// Equal infinities do not differ; a NaN differs from everything.
double difference(double a, double b) {
  if (a == b) return 0;
  const double distance = std::abs(a - b);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

double largest_difference(const Problem& problem, const Inputs& inputs) {
  const ReferenceOutput reference = reference_of(problem, inputs);
  const int dim_v = problem.head_dim_of_v();
  double largest = 0;
  for (int batch = 0; batch < problem.batch; ++batch) {
    for (int head = 0; head < problem.heads_q; ++head) {
      for (int row = 0; row < problem.seqlen_q; ++row) {
        const OnlineRow online = online_row(problem, inputs, batch, head, row);
        const std::size_t o_row = (static_cast<std::size_t>(batch) * problem.seqlen_q + row) * problem.heads_q + head;
        const std::size_t lse_row = (static_cast<std::size_t>(batch) * problem.heads_q + head) * problem.seqlen_q + row;
        for (int d = 0; d < dim_v; ++d) {
          largest = std::max(largest, difference(reference.o[o_row * dim_v + d], static_cast<double>(online.o[d])));
        }
        largest = std::max(largest, difference(reference.lse[lse_row], static_cast<double>(online.lse)));
      }
    }
  }
  return largest;
}

/// Softmax weights sum to one, so values of 1 come back as 1 in every row that sees a key.
double distance_from_one(const Problem& problem, Inputs inputs) {
  std::ranges::fill(inputs.v, to_storage(problem.dtype, 1.0F));
  const ReferenceOutput reference = reference_of(problem, inputs);
  double largest = 0;
  for (const double x : reference.o) {
    if (x != 0) largest = std::max(largest, difference(x, 1));
  }
  return largest;
}

}  // namespace

SelfCheck check_reference(std::uint64_t seed) {
  constexpr std::array<std::array<int, 5>, 4> sizes{
      {{4, 2, 37, 37, 0}, {3, 1, 20, 53, 24}, {4, 4, 41, 18, 56}, {6, 2, 1, 29, 0}}};
  SelfCheck check;
  for (const auto& [heads_q, heads_kv, seqlen_q, seqlen_k, head_dim_v] : sizes) {
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
      for (const bool causal : {false, true}) {
        const Problem problem{.dtype = dtype,
                              .batch = 2,
                              .heads_q = heads_q,
                              .heads_kv = heads_kv,
                              .seqlen_q = seqlen_q,
                              .seqlen_k = seqlen_k,
                              .head_dim = 40,
                              .head_dim_v = head_dim_v,
                              .causal = causal};
        const Inputs inputs(problem, seed);
        check.max_error =
            std::max({check.max_error, largest_difference(problem, inputs), distance_from_one(problem, inputs)});
        ++check.cases;
      }
    }
  }
  check.ok = check.max_error <= allowed;
  return check;
}

}  // namespace attune::cli
