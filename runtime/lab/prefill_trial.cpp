// Trials of prefill.
#include <algorithm>
#include <array>
#include <utility>

#include "runtime/lab/lengths.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/prefill/launch.hpp"

namespace attune {
namespace {

class PrefillTrial final : public Trial {
 public:
  PrefillTrial(const Problem& problem, std::uint64_t seed) : Trial(problem, sequences_of(problem), seed) {}

  [[nodiscard]] ProblemView problem() const override { return attention(); }

  [[nodiscard]] TrialPlan plan_with(FixedKernels kernels) const override {
    const ServingKernel& kernel = kernels.kernel_for(attention());
    const PrefillPlan launch = plan(kernel.variant, attention(), kernel.device);
    const auto launch_it = [this, &kernel, launch](void* memory, Executor& executor) {
      if (launch.grid.blocks() == 0) return;
      attune_prefill_args args = arguments_of(attention());
      place(args, memory, launch.workspace_bytes);
      args.seqused_k = told_lengths(memory);
      run(args, attention(), kernel, launch, executor, nullptr);
    };
    return {.workspace_bytes = launch.workspace_bytes, .one_kernel = true, .run = launch_it};
  }
};

/// Gives the i-th of a variant's problems what the variant is for.
void add_prefill_features(Problem& problem, const Variant& variant, std::size_t i) {
  // Narrow and wide, one side alone, both, and one that most rows see nothing through.
  constexpr std::array<std::pair<int, int>, 5> windows{{{20, 0}, {-1, 5}, {130, 70}, {3, -1}, {0, 0}}};
  if (variant.window != 0) set_window(problem, windows[i % windows.size()].first, windows[i % windows.size()].second);
  if (variant.softcap != 0) problem.softcap = i % 2 == 0 ? 20.0F : 2.0F;
  problem.dropout = variant.dropout != 0;
  if (variant.ragged != 0) make_ragged(problem);
  if (variant.ragged != 0 && variant.tile_list != 0) {  // no others are served
    problem.total_q = problem.batch * problem.seqlen_q;
    problem.total_k = problem.batch * problem.seqlen_k;
  }
  if (variant.paged != 0) make_paged(problem);
  problem.expressions = CallExpressions::of(variant);
}

}  // namespace

std::unique_ptr<const Trial> make_trial(const Problem& problem, std::uint64_t seed) {
  return std::make_unique<PrefillTrial>(problem, seed);
}

Trials small_prefill_trials(const Variant& variant, std::uint64_t seed) {
  struct Shape {
    int batch, ratio, heads_kv, seqlen_q, seqlen_k, less_dim;
  };
  std::vector<Shape> shapes{{{2, 1, 3, 128, 128, 0},
                             {1, 4, 1, 113, 203, 8},
                             {2, 2, 2, 257, 61, 0},
                             {1, 1, 1, 1, 1, 0},
                             {1, 8, 1, 1, 331, 0},
                             {1, 3, 2, 200, 512, 24},
                             {1, 1, 2, 67, 0, 0},
                             {1, 6, 1, 383, 383, 0}}};
  // A few more tiles than the largest GPU has multiprocessors: those are shared.
  if (variant.stream_k != 0) shapes.push_back({3, 1, 53, 60, 700, 8});
  const int cut = variant.cut_rows != 0 ? cut_columns : 0;
  Trials trials;
  for (const Shape& shape : shapes) {
    if (shape.seqlen_k == 0 && family_of(variant).tensor_maps) continue;
    const int ratio = variant.gqa_ratio > 0 ? variant.gqa_ratio : shape.ratio;
    Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                    .batch = shape.batch,
                    .heads_q = ratio * shape.heads_kv,
                    .heads_kv = shape.heads_kv,
                    .seqlen_q = shape.seqlen_q,
                    .seqlen_k = shape.seqlen_k,
                    .head_dim = std::max(8, variant.head_dim - shape.less_dim) - cut,
                    .head_dim_v = variant.head_dim_v == 0 ? 0 : variant.head_dim_v - shape.less_dim,
                    .causal = variant.causal != 0};
    add_prefill_features(problem, variant, trials.size() + 1);
    trials.push_back(make_trial(problem, seed));
  }
  return trials;
}

}  // namespace attune
