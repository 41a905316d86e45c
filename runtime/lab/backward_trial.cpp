// Trials of the backward pass: any one of its kernels, with those that it needs beside it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "runtime/choice/choice.hpp"
#include "runtime/lab/arguments.hpp"
#include "runtime/lab/dropout_mask.hpp"
#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/lengths.hpp"
#include "runtime/lab/random_values.hpp"
#include "runtime/lab/reference_gradient.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/backward/launch.hpp"
#include "runtime/operations/backward/plan.hpp"

namespace attune {
namespace {

/// Whether calls of a variant sum in any order.
bool has_any_order(const Variant& variant) {
  const Operation operation = family_of(variant).operation;
  return operation == Operation::backward_convert || (operation == Operation::backward && variant.deterministic == 0);
}

/// Where the results of the forward pass come from.
enum class Forward {
  reference,
  likely,  ///< made up: of large problems the reference takes minutes
};

/// Its outputs are dQ, dK and dV, one after the other.
class BackwardTrial final : public Trial {
 public:
  /// Of the kernel of one of the launches.
  BackwardTrial(const BackwardProblem& problem, Operation front, Forward forward, std::uint64_t seed)
      : Trial(problem.attention(), sequences_of(problem.attention()), seed),
        front_(front),
        forward_(forward),
        problem_(problem),
        rows_(problem_.rows()),
        queries_(problem_.queries()),
        conversion_(problem_.conversion()) {
    out_ = add_input(output_elements(attention()) * sizeof(std::uint16_t));
    dout_ = add_input(output_elements(attention()) * sizeof(std::uint16_t));
    lse_ = add_input(query_rows(attention()) * sizeof(float));
    for (std::size_t i = 0; i < sizes().size(); ++i) gradients_[i] = add_result(sizes()[i] * sizeof(std::uint16_t));
  }

  [[nodiscard]] ProblemView problem() const override {
    switch (front_) {
      case Operation::backward_rows:
        return rows_;
      case Operation::backward_queries:
        return queries_;
      case Operation::backward_convert:
        return conversion_;
      default:
        return problem_;
    }
  }

  [[nodiscard]] TrialPlan plan_with(FixedKernels kernels) const override {
    const ServingKernel& keys = kernels.kernel_for(problem_);
    const std::size_t bytes = workspace_of(keys.variant, problem_, keys.device).bytes();
    const auto launch_it = [this, kernels, bytes](void* memory, Executor& executor) mutable {
      attune::run(arguments(memory, bytes), problem_, Backend{kernels, executor, nullptr});
    };
    return {.workspace_bytes = bytes, .one_kernel = false, .run = launch_it};
  }

  [[nodiscard]] Outputs outputs(Memory results) const override {
    Outputs outputs;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const auto one = take<std::uint16_t>(results, gradients_[i], sizes()[i]);
      outputs.o.insert(outputs.o.end(), one.begin(), one.end());
    }
    outputs.guards_intact = is_untouched(std::move(results));
    return outputs;
  }

  [[nodiscard]] Expected expected(const Memory& inputs) const override {
    const auto by = [&](GradientFunction& gradients) {
      const Gradients found = gradients_of(gradients, attention(), sequences(),
                                           {.q = queries_at(inputs, places().q, problem_.head_dim),
                                            .k = keys_at(inputs, places().k, problem_.head_dim),
                                            .v = keys_at(inputs, places().v, problem_.head_dim_of_v()),
                                            .dout = queries_at(inputs, dout_, problem_.head_dim_of_v()),
                                            .dlse = {},
                                            .scale = usual_scale(problem_.head_dim),
                                            .dropout = usual_mask(problem_.dropout),
                                            .values = &values()});
      ReferenceOutput all;
      for (const auto* one : {&found.dq, &found.dk, &found.dv}) all.o.insert(all.o.end(), one->begin(), one->end());
      return all;
    };
    return {.reference = by(reference_gradients), .naive = by(naive_gradients)};
  }

  [[nodiscard]] Comparison compare(const Outputs& outputs, const Expected& expected) const override {
    Comparison worst{.agrees = true};
    std::size_t first = 0;
    for (const std::size_t size : sizes()) {
      const auto part = [&](const auto& all) { return std::span(all).subspan(first, size); };
      const GradientComparison one =
          compare_gradient(problem_.dtype, part(outputs.o), part(expected.reference.o), part(expected.naive.o));
      worst.unwritten += one.unwritten;
      worst.agrees = worst.agrees && one.agrees;
      if (first == 0 || one.max_error * worst.tolerance > worst.max_error * one.tolerance) {
        worst.max_error = one.max_error;
        worst.naive_error = one.naive_error;
        worst.tolerance = one.tolerance;
      }
      first += size;
    }
    return worst;
  }

  [[nodiscard]] const char* measured() const override { return "a gradient"; }

  [[nodiscard]] std::vector<ResultRows> result_rows() const override {
    const auto [queries, keys, values] = sizes();
    const int dim = problem_.head_dim;
    const int dim_v = problem_.head_dim_of_v();
    return {{queries / dim, dim}, {keys / dim, dim}, {values / dim_v, dim_v}};
  }

 protected:
  /// Adds the gradient of O, and what the forward pass leaves.
  void complete(Memory& inputs) const override {
    put(inputs, dout_, random_values(problem_.dtype, output_elements(attention()), 3 * seed() + 7));
    if (forward_ == Forward::likely) {
      put(inputs, out_, std::vector<std::uint16_t>(output_elements(attention())));
      return put(inputs, lse_, likely_lse());
    }
    const HostOperands operands{.q = queries_at(inputs, places().q, problem_.head_dim),
                                .k = keys_at(inputs, places().k, problem_.head_dim),
                                .v = keys_at(inputs, places().v, problem_.head_dim_of_v())};
    const double scale = usual_scale(problem_.head_dim);
    const ReferenceOutput forward =
        attention().expressions.any()
            ? expressed_attention(attention(), sequences(), values(), operands, scale).reference
            : attention_of(reference_attention, attention(), sequences(), operands.q, operands.k, operands.v, scale);
    std::vector<std::uint16_t> out(forward.o.size());
    std::ranges::transform(forward.o, out.begin(),
                           [&](double x) { return to_storage(problem_.dtype, static_cast<float>(x)); });
    put(inputs, out_, out);
    put(inputs, lse_, std::vector<float>(forward.lse.begin(), forward.lse.end()));
  }

 private:
  /// What the LSE of each row is near, of normally distributed inputs, beside an O of zeros, which values then average
  /// to: scores have a variance of 1, and their exponentials a mean of sqrt(e).
  [[nodiscard]] std::vector<float> likely_lse() const {
    const Problem& of = attention();
    const auto rows = static_cast<std::size_t>(of.stored_rows());
    std::vector<float> lse(query_rows(of), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < static_cast<std::size_t>(of.batch); ++i) {
      Problem sequence = of;
      std::size_t first = i * of.heads_q * rows;
      if (of.ragged) {
        sequence.seqlen_q = sequences().cu_seqlens_q[i + 1] - sequences().cu_seqlens_q[i];
        sequence.seqlen_k = sequences().cu_seqlens_k[i + 1] - sequences().cu_seqlens_k[i];
        first = static_cast<std::size_t>(sequences().cu_seqlens_q[i]);
      }
      for (int row = 0; row < sequence.seqlen_q; ++row) {
        const Problem::Keys keys = sequence.visible_keys(row);
        const float near = std::log(static_cast<float>(std::max(0, keys.end - keys.first))) + 0.5F;
        for (int head = 0; head < of.heads_q; ++head) lse[first + head * rows + row] = near;
      }
    }
    return lse;
  }

  /// Elements of dQ, dK and dV.
  [[nodiscard]] std::array<std::size_t, 3> sizes() const {
    const Problem& of = attention();
    const auto keys = static_cast<std::size_t>(of.stored_sequences()) * of.stored_keys() * of.heads_kv;
    return {query_rows(of) * of.head_dim, keys * of.head_dim, keys * of.head_dim_of_v()};
  }

  [[nodiscard]] static const std::uint16_t* words(const Memory& memory, std::size_t place) {
    const std::size_t words_before = place / sizeof(std::uint16_t);
    return memory.data() + words_before;
  }
  [[nodiscard]] HostTensor queries_at(const Memory& memory, std::size_t place, int head_dim) const {
    return contiguous(words(memory, place), attention().stored_rows(), problem_.heads_q, head_dim);
  }
  [[nodiscard]] HostTensor keys_at(const Memory& memory, std::size_t place, int head_dim) const {
    return contiguous(words(memory, place), attention().stored_keys(), problem_.heads_kv, head_dim);
  }

  [[nodiscard]] attune_backward_args arguments(void* memory, std::size_t workspace_bytes) const {
    const auto tensor = [](void* data, const HostTensor& like) {
      return attune_tensor{data, like.stride_batch, like.stride_seq, like.stride_head};
    };
    const int rows = attention().stored_rows();
    const int keys = attention().stored_keys();
    const int dim = problem_.head_dim;
    const int dim_v = problem_.head_dim_of_v();
    attune_backward_args args = arguments_of(problem_);
    args.q = tensor(at<void>(memory, places().q), contiguous(nullptr, rows, problem_.heads_q, dim));
    args.k = tensor(at<void>(memory, places().k), contiguous(nullptr, keys, problem_.heads_kv, dim));
    args.v = tensor(at<void>(memory, places().v), contiguous(nullptr, keys, problem_.heads_kv, dim_v));
    args.o = tensor(at<void>(memory, out_), contiguous(nullptr, rows, problem_.heads_q, dim_v));
    args.dout = tensor(at<void>(memory, dout_), contiguous(nullptr, rows, problem_.heads_q, dim_v));
    args.dq = tensor(result_at<void>(memory, gradients_[0]), contiguous(nullptr, rows, problem_.heads_q, dim));
    args.dk = tensor(result_at<void>(memory, gradients_[1]), contiguous(nullptr, keys, problem_.heads_kv, dim));
    args.dv = tensor(result_at<void>(memory, gradients_[2]), contiguous(nullptr, keys, problem_.heads_kv, dim_v));
    args.lse = at<float>(memory, lse_);
    args.cu_seqlens_q = array_at(memory, places().cu_seqlens_q, sequences().cu_seqlens_q);
    args.cu_seqlens_k = array_at(memory, places().cu_seqlens_k, sequences().cu_seqlens_k);
    place_expressions(args, memory);
    args.workspace = workspace_at(memory);
    args.workspace_bytes = workspace_bytes;
    return args;
  }

  Operation front_;
  Forward forward_;
  BackwardProblem problem_;
  BackwardPart<Operation::backward_rows> rows_;
  BackwardPart<Operation::backward_queries> queries_;
  BackwardPart<Operation::backward_convert> conversion_;
  std::size_t out_ = 0;  ///< in the inputs
  std::size_t dout_ = 0;
  std::size_t lse_ = 0;
  std::array<std::size_t, 3> gradients_{};  ///< in the results
};

/// Gives the i-th of a variant's problems what the variant is for. No window leaves most queries one key: their
/// gradients would be what fp32 leaves of zeros.
void add_backward_features(Problem& problem, const Variant& variant, std::size_t i) {
  constexpr std::array<std::pair<int, int>, 4> windows{{{20, 0}, {-1, 5}, {130, 70}, {3, -1}}};
  if (variant.window != 0) set_window(problem, windows[i % windows.size()].first, windows[i % windows.size()].second);
  if (variant.softcap != 0) problem.softcap = i % 2 == 0 ? 20.0F : 2.0F;
  problem.dropout = variant.dropout != 0;
  if (variant.ragged != 0) make_ragged(problem);
}

}  // namespace

std::unique_ptr<const Trial> make_backward_trial(const Problem& problem, const Variant& variant, std::uint64_t seed) {
  BackwardProblem gradients = BackwardProblem::of(problem, has_any_order(variant));
  gradients.expressions = CallExpressions::of(variant);
  return std::make_unique<BackwardTrial>(gradients, family_of(variant).operation, Forward::reference, seed);
}

std::unique_ptr<const Trial> make_trial(const BackwardProblem& problem, std::uint64_t seed) {
  return std::make_unique<BackwardTrial>(problem, Operation::backward, Forward::likely, seed);
}

Trials small_backward_trials(const Variant& variant, std::uint64_t seed) {
  struct Shape {
    int batch, ratio, heads_kv, seqlen_q, seqlen_k, less_dim;
  };
  constexpr std::array<Shape, 6> shapes{{{2, 1, 3, 128, 128, 0},
                                         {1, 4, 1, 113, 203, 8},
                                         {2, 2, 2, 257, 61, 0},
                                         {1, 8, 1, 1, 331, 0},
                                         {1, 3, 2, 200, 300, 24},
                                         {1, 2, 1, 190, 190, 0}}};
  Trials trials;
  for (const Shape& shape : shapes) {
    Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                    .batch = shape.batch,
                    .heads_q = shape.ratio * shape.heads_kv,
                    .heads_kv = shape.heads_kv,
                    .seqlen_q = shape.seqlen_q,
                    .seqlen_k = shape.seqlen_k,
                    .head_dim = std::max(8, variant.head_dim - shape.less_dim),
                    .causal = variant.causal != 0};
    add_backward_features(problem, variant, trials.size() + 1);
    trials.push_back(make_backward_trial(problem, variant, seed));
  }
  return trials;
}

/// A kernel for dK and dV that leaves dQ to one of its own.
Variant keys_without_sums(const BackwardProblem& problem, const Device& device) {
  const auto family = std::ranges::find_if(
      families(), [](const Family& one) { return one.operation == Operation::backward && !one.tensor_maps; });
  return own_variant(family->defaults.family, problem.ask(), device);
}

std::vector<Variant> backward_companions(const Variant& variant, const Device& device) {
  Problem problem{.dtype = static_cast<Dtype>(variant.dtype), .head_dim = variant.head_dim};
  problem.seqlen_q = problem.seqlen_k = 300;
  problem.causal = variant.causal != 0;
  add_backward_features(problem, variant, 0);
  problem.expressions = CallExpressions::of(variant);
  const BackwardProblem whole = BackwardProblem::of(problem, has_any_order(variant));
  const auto rows = whole.rows();
  const auto queries = whole.queries();
  const auto conversion = whole.conversion();
  const Operation own = family_of(variant).operation;
  const Variant keys = own == Operation::backward           ? variant
                       : own == Operation::backward_queries ? keys_without_sums(whole, device)
                                                            : choose_own(whole, device).variant;
  const bool adds = workspace_of(keys, whole, device).dq_bytes != 0;
  const ProblemView last = adds ? ProblemView(conversion) : ProblemView(queries);
  std::vector<Variant> result;
  if (own != Operation::backward) result.push_back(keys);
  for (const ProblemView& one : {ProblemView(rows), last}) {
    if (one.operation() != own) result.push_back(choose_own(one, device).variant);
  }
  return result;
}

}  // namespace attune
