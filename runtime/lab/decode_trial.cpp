// Trials of decode. New keys are in the cache already: what would store them is not launched.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/random.hpp"
#include "runtime/call/page_counts.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/lab/lengths.hpp"
#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference_rotation.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/decode/launch.hpp"

namespace attune {
namespace {

/// The same as a problem of prefill over the cache's pages, or over packed keys.
Problem prefill_of(const DecodeProblem& problem) {
  Problem result{.dtype = problem.dtype,
                 .batch = problem.batch,
                 .heads_q = problem.heads_q,
                 .heads_kv = problem.heads_kv,
                 .seqlen_q = problem.seqlen_q,
                 .seqlen_k = problem.max_seqlen_k,
                 .head_dim = problem.head_dim,
                 .softcap = problem.softcap,
                 .ragged = problem.ragged,
                 .total_q = problem.total_q,
                 .total_k = problem.total_k,
                 .paged = !problem.packed_keys,
                 .page_size = problem.page_size,
                 .pages = problem.pages,
                 .table_width = problem.table_width};
  result.expressions = problem.expressions;
  set_window(result, problem.window_left, problem.window_right);
  return result;
}

/// Pages that no two sequences share; entries beyond a sequence's keys name none.
std::vector<std::int32_t> block_table(const DecodeProblem& problem, const std::vector<std::int32_t>& lengths,
                                      std::uint64_t seed) {
  // In any order, as in a cache that has served for a while: pages that lie one after the other are read faster.
  std::vector<std::int32_t> pages(static_cast<std::size_t>(problem.pages));
  std::iota(pages.begin(), pages.end(), 0);
  Random random(seed);
  pages = shuffled(std::move(pages), random);
  auto page = pages.begin();
  std::vector<std::int32_t> table;
  for (const std::int32_t length : lengths) {
    for (int i = 0; i < problem.table_width; ++i) {
      const bool used = static_cast<long long>(i) * problem.page_size < length;
      table.push_back(used ? *page++ : std::numeric_limits<std::int32_t>::min());
    }
  }
  return table;
}

/// Of a ragged batch the longest sequence has seqlen_q queries, and the others fewer. Of packed keys the last sequence
/// has the rows that are left, unused.
Sequences sequences_of(const DecodeProblem& problem, const std::vector<std::int32_t>& lengths, std::uint64_t seed) {
  Sequences result;
  result.seqused_k = lengths;
  if (problem.ragged) result.cu_seqlens_q = cumulative_lengths(problem.batch, problem.seqlen_q, problem.total_q);
  if (problem.packed_keys) {
    result.cu_seqlens_k.push_back(0);
    for (const std::int32_t length : lengths) result.cu_seqlens_k.push_back(result.cu_seqlens_k.back() + length);
    result.cu_seqlens_k.back() = problem.total_k;
  } else {
    result.block_table = block_table(problem, lengths, seed);
  }
  return result;
}

class DecodeTrial final : public Trial {
 public:
  /// `lengths` count new keys.
  DecodeTrial(const DecodeProblem& problem, const std::vector<std::int32_t>& lengths, std::uint64_t seed)
      : Trial(prefill_of(problem), sequences_of(problem, lengths, seed), seed, problem.seqlen_new),
        problem_(problem),
        cos_(add_input(angles() * sizeof(std::uint16_t))),
        sin_(add_input(angles() * sizeof(std::uint16_t))) {}

  [[nodiscard]] ProblemView problem() const override { return problem_; }

  [[nodiscard]] TrialPlan plan_with(FixedKernels kernels) const override {
    const ServingKernel& kernel = kernels.kernel_for(problem_);
    const DecodePlan launch = plan(kernel.variant, problem_, kernel.device);
    const auto launch_it = [this, &kernel, launch, kernels](void* memory, Executor& executor) mutable {
      run(args(memory, launch.workspace_bytes), problem_, kernel, launch, {kernels, executor, nullptr},
          NewKeys::already_there);
    };
    return {.workspace_bytes = launch.workspace_bytes, .one_kernel = !launch.combines(), .run = launch_it};
  }

 private:
  [[nodiscard]] std::size_t angles() const {
    return static_cast<std::size_t>(problem_.rotations) * problem_.rotary_dim / 2;
  }

  [[nodiscard]] attune_decode_args args(void* memory, std::size_t workspace_bytes) const {
    attune_decode_args args = arguments_of(problem_);
    place(args, memory, workspace_bytes);
    args.seqlens_k = problem_.equal_lengths ? nullptr : told_lengths(memory);
    if (!problem_.appends()) return args;
    const long long dim = padded_head_dim(problem_.head_dim);  // of tensors that are not read
    args.k_new =
        args.v_new = {args.q.data, dim * problem_.heads_kv * problem_.seqlen_new, dim * problem_.heads_kv, dim};
    args.rotary_cos = at<std::byte>(memory, cos_);
    args.rotary_sin = at<std::byte>(memory, sin_);
    return args;
  }

  /// Adds the angles, and poisons keys that no sequence has.
  void complete(Memory& inputs) const override {
    const Angles drawn = random_angles(problem_.dtype, angles(), seed());
    put(inputs, cos_, drawn.cos);
    put(inputs, sin_, drawn.sin);
    const Problem& stored = attention();
    std::vector<bool> used(static_cast<std::size_t>(stored.stored_key_sequences()) * stored.stored_keys());
    for (std::size_t sequence = 0; sequence < sequences().seqused_k.size(); ++sequence) {
      for (int key = 0; key < sequences().seqused_k[sequence]; ++key) used[token_of(sequence, key)] = true;
    }
    const std::size_t row = std::size_t{1} * problem_.heads_kv * padded_head_dim(problem_.head_dim);
    for (std::size_t token = 0; token < used.size(); ++token) {
      if (used[token]) continue;
      for (const std::size_t place : {places().k, places().v}) {
        std::fill_n(at<std::uint16_t>(inputs.data(), place) + token * row, row, poison);
      }
    }
  }

  /// Where among the tokens of K a key of a sequence is.
  [[nodiscard]] std::size_t token_of(std::size_t sequence, int key) const {
    if (problem_.packed_keys) return static_cast<std::size_t>(sequences().cu_seqlens_k[sequence]) + key;
    const std::size_t entry = sequence * problem_.table_width + key / problem_.page_size;
    return static_cast<std::size_t>(sequences().block_table[entry]) * problem_.page_size + key % problem_.page_size;
  }

  void rotate(std::vector<std::uint16_t>& queries, const Memory& inputs) const override {
    if (!problem_.rotates()) return;
    const HostRotation rotation{problem_.dtype,     problem_.rotary,          problem_.rotary_dim,
                                problem_.rotations, inputs.data() + cos_ / 2, inputs.data() + sin_ / 2};
    const bool in_order = problem_.window_left >= 0 || problem_.window_right >= 0;
    auto first = queries.begin();
    for (const std::int64_t length : sequences().seqused_k) {
      for (int query = 0; query < problem_.seqlen_q; ++query) {
        const std::int64_t position = length - problem_.seqlen_new + (in_order ? query : 0);
        for (int head = 0; head < problem_.heads_q; ++head) {
          first = std::ranges::copy(
                      rotated_row(rotation, {first, first + padded_head_dim(problem_.head_dim)}, position), first)
                      .out;
        }
      }
    }
  }

  DecodeProblem problem_;
  std::size_t cos_;  ///< in the inputs
  std::size_t sin_;
};

/// The same with keys one sequence after the other, and rows after them that nobody uses.
DecodeProblem with_packed_keys(DecodeProblem problem, const std::vector<std::int32_t>& lengths) {
  constexpr int unused_rows = 3;
  problem.packed_keys = true;
  problem.total_k = std::accumulate(lengths.begin(), lengths.end(), unused_rows);
  problem.page_size = problem.pages = problem.table_width = 1;
  return problem;
}

}  // namespace

std::unique_ptr<const Trial> make_trial(const DecodeProblem& problem, std::uint64_t seed) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(problem.batch), problem.max_seqlen_k);
  if (problem.packed_keys) {
    const std::vector<std::int32_t> ends = cumulative_lengths(problem.batch, problem.max_seqlen_k, problem.total_k);
    std::adjacent_difference(ends.begin() + 1, ends.end(), lengths.begin());
  }
  return std::make_unique<DecodeTrial>(problem, lengths, seed);
}

std::vector<Variant> companions_of(const Variant& variant, const Device& device) {
  if (is_backward(variant)) return backward_companions(variant, device);
  if (family_of(variant).operation != Operation::decode) return {};
  const CombineProblem merge{
      .dtype = static_cast<Dtype>(variant.dtype), .head_dim = variant.head_dim, .ragged = variant.ragged != 0};
  return {choose_own(merge, device).variant};
}

void set_rotation(DecodeProblem& problem, const Variant& variant) {
  constexpr int rotary_dim_step = 16;
  problem.rotary = static_cast<Rotary>(variant.rotary);
  if (!problem.rotates()) return;
  problem.seqlen_new = 1;
  problem.rotary_dim = std::max(rotary_dim_step, problem.head_dim / 2 / rotary_dim_step * rotary_dim_step);
  problem.rotations = std::max(1, problem.max_seqlen_k - 20);  // the last positions have none
}

Trials small_decode_trials(const Variant& variant, std::uint64_t seed) {
  struct Shape {
    int seqlen_q, ratio, heads_kv, less_dim, page_size, splits, window_left, window_right;
    std::vector<std::int32_t> lengths;
  };
  const std::array<Shape, 5> shapes{{{1, 4, 2, 0, 16, 0, -1, -1, {0, 1, 130, 300}},
                                     {1, 1, 3, 8, 1, 3, -1, 0, {65, 257}},
                                     {5, 8, 1, 0, 64, 1, -1, 0, {4, 64, 201}},
                                     {16, 2, 1, 24, 7, 0, 40, 0, {128, 33}},
                                     {3, 6, 1, 0, 100, 2, 20, 5, {300, 2}}}};
  const int cut = variant.cut_rows != 0 ? cut_columns : 0;
  const int fewest_columns = (variant.rotary != 0 ? 16 : 8) + (cut != 0 ? head_dim_step : 0);
  Trials trials;
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
                          .head_dim = std::max(fewest_columns, variant.head_dim - shape.less_dim) - cut,
                          .max_seqlen_k = std::ranges::max(shape.lengths)};
    const int multiple = variant.page_multiple;
    const int page_size = (shape.page_size + multiple - 1) / multiple * multiple;
    problem.page_size = variant.paged != 0 ? page_size : problem.max_seqlen_k;
    problem.table_width = pages_of(problem.max_seqlen_k, problem.page_size);
    problem.pages = problem.batch * problem.table_width + 1;
    problem.splits = shape.splits;
    problem.window_left = shape.window_left;
    problem.window_right = shape.window_right;
    problem.ragged = variant.ragged != 0;
    if (problem.ragged) problem.total_q = usual_total(problem.batch, problem.seqlen_q) + 1;
    problem.expressions = CallExpressions::of(variant);
    if (variant.softcap != 0) problem.softcap = trials.size() % 2 == 0 ? 20.0F : 2.0F;
    set_rotation(problem, variant);
    trials.push_back(std::make_unique<DecodeTrial>(problem, shape.lengths, seed));
    if (problem.ragged && variant.paged == 0) {
      trials.push_back(std::make_unique<DecodeTrial>(with_packed_keys(problem, shape.lengths), shape.lengths, seed));
    }
  }
  return trials;
}

}  // namespace attune
