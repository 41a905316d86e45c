#include "runtime/cli/decode_trial.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/random.hpp"
#include "runtime/lab/reference_rotation.hpp"

namespace attune::cli {
namespace {

constexpr std::uint16_t no_key = 0x7fff;  // a NaN in fp16 and in bf16

std::size_t row_elements(const DecodeProblem& problem) {
  return static_cast<std::size_t>(problem.heads_kv) * problem.head_dim;
}

/// Where among the tokens of K a key of a sequence is.
std::size_t token_of(const DecodeProblem& problem, const CacheInputs& inputs, int sequence, int key) {
  if (problem.packed_keys) {
    return static_cast<std::size_t>(inputs.cu_seqlens_k[static_cast<std::size_t>(sequence)]) + key;
  }
  const std::size_t entry = static_cast<std::size_t>(sequence) * problem.table_width + key / problem.page_size;
  return static_cast<std::size_t>(inputs.table[entry]) * problem.page_size + key % problem.page_size;
}

/// Queries as their keys are met by them; in order, whether they are a ragged batch or not.
std::vector<std::uint16_t> rotated_queries(const DecodeProblem& problem, const CacheInputs& inputs) {
  if (!problem.rotates()) return inputs.q;
  const HostRotation rotation{problem.dtype,     problem.rotary,           problem.rotary_dim,
                              problem.rotations, inputs.angles.cos.data(), inputs.angles.sin.data()};
  const bool in_order = problem.window_left >= 0 || problem.window_right >= 0;
  std::vector<std::uint16_t> result;
  auto first = inputs.q.begin();
  for (const std::int64_t before : inputs.lengths) {
    for (int query = 0; query < problem.seqlen_q; ++query) {
      for (int head = 0; head < problem.heads_q; ++head, first += problem.head_dim) {
        const auto row = rotated_row(rotation, {first, first + problem.head_dim}, before + (in_order ? query : 0));
        result.insert(result.end(), row.begin(), row.end());
      }
    }
  }
  return result;
}

/// The same as a problem of prefill over the cache's pages, or over packed keys.
Problem prefill_of(const DecodeProblem& problem) {
  Problem result = outputs_of(problem);
  result.total_k = problem.total_k;
  result.paged = !problem.packed_keys;
  result.page_size = problem.page_size;
  result.pages = problem.pages;
  result.table_width = problem.table_width;
  result.softcap = problem.softcap;
  result.set_window(problem.window_left, problem.window_right);
  return result;
}

/// The same with keys one sequence after the other, and rows behind them that nobody uses.
DecodeProblem with_packed_keys(DecodeProblem problem, const std::vector<std::int32_t>& lengths) {
  constexpr int unused_rows = 3;
  problem.packed_keys = true;
  problem.total_k = std::accumulate(lengths.begin(), lengths.end(), unused_rows);
  problem.page_size = problem.pages = problem.table_width = 1;
  return problem;
}

ReferenceOutput attention_of_all(const DecodeTrial& trial, const CacheInputs& inputs, AttentionFunction& attention) {
  const Problem problem = prefill_of(trial.problem);
  const std::vector<std::uint16_t> q = rotated_queries(trial.problem, inputs);
  const auto cache = [&](const std::vector<std::uint16_t>& values) {
    return contiguous(values, problem.page_size, problem.heads_kv, problem.head_dim);
  };
  return attention_of(attention, problem,
                      {.cu_seqlens_q = inputs.cu_seqlens_q,
                       .cu_seqlens_k = inputs.cu_seqlens_k,
                       .seqused_k = trial.lengths,
                       .block_table = inputs.table},
                      contiguous(q, problem.stored_rows(), problem.heads_q, problem.head_dim), cache(inputs.k),
                      cache(inputs.v), usual_scale(problem));
}

}  // namespace

std::size_t tokens_of(const DecodeProblem& problem) {
  if (problem.packed_keys) return static_cast<std::size_t>(problem.total_k);
  return static_cast<std::size_t>(problem.pages) * problem.page_size;
}

void set_rotation(DecodeProblem& problem, const Variant& variant) {
  constexpr int rotary_dim_step = 16;
  problem.rotary = static_cast<Rotary>(variant.rotary);
  if (!problem.rotates()) return;
  problem.seqlen_new = 1;
  problem.rotary_dim = std::max(rotary_dim_step, problem.head_dim / 2 / rotary_dim_step * rotary_dim_step);
  problem.rotations = std::max(1, problem.max_seqlen_k - 20);  // the last positions have none
}

std::vector<DecodeTrial> small_trials(const Variant& variant) {
  struct Shape {
    int seqlen_q, ratio, heads_kv, less_dim, page_size, splits, window_left, window_right;
    std::vector<std::int32_t> lengths;
  };
  const std::array<Shape, 5> shapes{{{1, 4, 2, 0, 16, 0, -1, -1, {0, 1, 130, 300}},
                                     {1, 1, 3, 8, 1, 3, -1, 0, {65, 257}},
                                     {5, 8, 1, 0, 64, 1, -1, 0, {4, 64, 201}},
                                     {16, 2, 1, 24, 7, 0, 40, 0, {128, 33}},
                                     {3, 6, 1, 0, 100, 2, 20, 5, {300, 2}}}};
  const int fewest_columns = variant.rotary != 0 ? 16 : 8;
  std::vector<DecodeTrial> trials;
  for (Shape shape : shapes) {
    // Nothing else than these is served.
    if (variant.gqa_ratio != 0) shape.ratio = variant.gqa_ratio;
    if (variant.one_query != 0) {
      shape.seqlen_q = 1;
      shape.less_dim = 0;
    }
    DecodeProblem problem{.dtype = static_cast<Dtype>(variant.dtype),
                          .batch = static_cast<int>(shape.lengths.size()),
                          .seqlen_q = shape.seqlen_q,
                          .heads_q = shape.ratio * shape.heads_kv,
                          .heads_kv = shape.heads_kv,
                          .head_dim = std::max(fewest_columns, variant.head_dim - shape.less_dim),
                          .max_seqlen_k = std::ranges::max(shape.lengths)};
    const int multiple = variant.page_multiple;
    const int page_size = (shape.page_size + multiple - 1) / multiple * multiple;
    problem.page_size = variant.paged != 0 ? page_size : problem.max_seqlen_k;
    problem.table_width = (problem.max_seqlen_k + problem.page_size - 1) / problem.page_size;
    problem.pages = problem.batch * problem.table_width + 1;
    problem.splits = shape.splits;
    problem.window_left = shape.window_left;
    problem.window_right = shape.window_right;
    problem.ragged = variant.ragged != 0;
    if (problem.ragged) problem.total_q = usual_total(problem.batch, problem.seqlen_q) + 1;
    if (variant.softcap != 0) problem.softcap = trials.size() % 2 == 0 ? 20.0F : 2.0F;
    set_rotation(problem, variant);
    trials.push_back({problem, shape.lengths});
    if (problem.ragged && variant.paged == 0) {
      trials.push_back({with_packed_keys(problem, shape.lengths), shape.lengths});
    }
  }
  return trials;
}

DecodeTrial full_trial(const DecodeProblem& problem) {
  DecodeTrial trial{problem, {}};
  if (problem.packed_keys) {
    const std::vector<std::int32_t> cu_seqlens_k =
        cumulative_lengths(problem.batch, problem.max_seqlen_k, problem.total_k);
    for (std::size_t i = 1; i < cu_seqlens_k.size(); ++i) {
      trial.lengths.push_back(cu_seqlens_k[i] - cu_seqlens_k[i - 1]);
    }
  } else {
    trial.lengths.assign(static_cast<std::size_t>(problem.batch), problem.max_seqlen_k);
  }
  return trial;
}

CacheInputs::CacheInputs(const DecodeTrial& trial, std::uint64_t seed)
    : q(random_values(trial.problem.dtype, output_elements(outputs_of(trial.problem)), 3 * seed)),
      lengths(trial.lengths),
      angles(random_angles(trial.problem.dtype,
                           static_cast<std::size_t>(trial.problem.rotations) * trial.problem.rotary_dim / 2, seed)) {
  const DecodeProblem& problem = trial.problem;
  for (std::int32_t& length : lengths) length -= problem.seqlen_new;
  if (problem.ragged) cu_seqlens_q = cumulative_lengths(problem.batch, problem.seqlen_q, problem.total_q);
  const std::size_t row = row_elements(problem);
  const std::size_t elements = tokens_of(problem) * row;
  k.assign(elements, no_key);
  v.assign(elements, no_key);
  const std::vector<std::uint16_t> keys = random_values(problem.dtype, elements, 3 * seed + 1);
  const std::vector<std::uint16_t> values = random_values(problem.dtype, elements, 3 * seed + 2);
  if (problem.packed_keys) {
    cu_seqlens_k.push_back(0);
    for (const std::int32_t length : trial.lengths) cu_seqlens_k.push_back(cu_seqlens_k.back() + length);
    cu_seqlens_k.back() = problem.total_k;
  } else {
    place_pages(trial, seed);
  }
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int key = 0; key < trial.lengths[static_cast<std::size_t>(sequence)]; ++key) {
      const auto first = static_cast<std::ptrdiff_t>(token_of(problem, *this, sequence, key) * row);
      std::copy_n(keys.begin() + first, row, k.begin() + first);
      std::copy_n(values.begin() + first, row, v.begin() + first);
    }
  }
}

void CacheInputs::place_pages(const DecodeTrial& trial, std::uint64_t seed) {
  // In any order, as in a cache that has served for a while: pages that lie one behind the other are read faster.
  std::vector<std::int32_t> pages(static_cast<std::size_t>(trial.problem.pages));
  std::iota(pages.begin(), pages.end(), 0);
  Random random(seed);
  pages = shuffled(std::move(pages), random);
  auto page = pages.begin();
  for (const std::int32_t length : trial.lengths) {
    for (int i = 0; i < trial.problem.table_width; ++i) {
      const bool used = static_cast<long long>(i) * trial.problem.page_size < length;
      table.push_back(used ? *page++ : std::numeric_limits<std::int32_t>::min());
    }
  }
}

Problem outputs_of(const DecodeProblem& problem) {
  return {.dtype = problem.dtype,
          .batch = problem.batch,
          .heads_q = problem.heads_q,
          .heads_kv = problem.heads_kv,
          .seqlen_q = problem.seqlen_q,
          .seqlen_k = problem.max_seqlen_k,
          .head_dim = problem.head_dim,
          .ragged = problem.ragged,
          .total_q = problem.total_q};
}

attune_decode_args decode_args(const DecodeProblem& problem, const CacheOperands& operands) {
  const auto tensor = [&](void* data, int seqlen, int heads) {
    const long long dim = problem.head_dim;
    return attune_tensor{data, dim * heads * seqlen, dim * heads, dim};
  };
  attune_decode_args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem.dtype);
  args.q = tensor(operands.q, problem.stored_queries(), problem.heads_q);
  args.k = tensor(operands.k, problem.page_size, problem.heads_kv);
  args.v = tensor(operands.v, problem.page_size, problem.heads_kv);
  args.o = tensor(operands.o, problem.stored_queries(), problem.heads_q);
  args.lse = static_cast<float*>(operands.lse);
  args.seqlens_k = static_cast<const std::int32_t*>(operands.lengths);
  args.block_table = static_cast<const std::int32_t*>(operands.table);
  args.workspace = operands.workspace;
  args.workspace_bytes = operands.workspace_bytes;
  args.batch = problem.batch;
  args.seqlen_q = problem.seqlen_q;
  args.heads_q = problem.heads_q;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.max_seqlen_k = problem.max_seqlen_k;
  args.page_size = problem.page_size;
  args.pages = problem.pages;
  args.table_width = problem.table_width;
  args.softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.head_dim)));
  args.window_left = problem.window_left;
  args.window_right = problem.window_right;
  args.splits = problem.splits;
  args.softcap = problem.softcap;
  if (problem.ragged) args.cu_seqlens_q = static_cast<const std::int32_t*>(operands.cu_seqlens_q);
  args.total_q = problem.total_q;
  if (problem.packed_keys) {
    args.cu_seqlens_k = static_cast<const std::int32_t*>(operands.cu_seqlens_k);
    args.total_k = problem.total_k;
    args.block_table = nullptr;
  }
  if (!problem.appends()) return args;
  // The cache has the new keys; what would store them is not launched.
  args.seqlen_new = problem.seqlen_new;
  args.k_new = args.v_new = tensor(operands.q, problem.seqlen_new, problem.heads_kv);
  args.rotary = static_cast<attune_rotary>(problem.rotary);
  args.rotary_dim = problem.rotary_dim;
  args.rotations = problem.rotations;
  args.rotary_cos = operands.cos;
  args.rotary_sin = operands.sin;
  return args;
}

Expected expected_output(const DecodeTrial& trial, const CacheInputs& inputs) {
  return {.reference = attention_of_all(trial, inputs, reference_attention),
          .naive = attention_of_all(trial, inputs, naive_attention)};
}

}  // namespace attune::cli
