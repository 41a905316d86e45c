// The mutation test's calls of the backward pass, of which one kernel has the bug.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "generator/expression/pool.hpp"
#include "runtime/operations/backward/launch.hpp"
#include "tests/emulator/plan_experiment.hpp"
#include "tests/harness/backward_image.hpp"

namespace attune::mutation_tests {
namespace {

using testing::BackwardCase;
using testing::BackwardImage;

/// What a case is about, beyond its problem.
struct Setup {
  BackwardCase one;
  Sequences told = {};       ///< what the kernels are told of a ragged batch, where that is more than there is
  unsigned group = 0;        ///< heads whose tiles run together; 0: as planned
  bool count_banks = false;  ///< and compare them with the unmutated run
  bool parts_heads = false;  ///< on a GPU so large that query heads that share keys are in parts
};

/// The emulator's GPU, or one that a block of keys for all heads keeps busy.
Device device_of(const Setup& setup) {
  Device device = emulator::device();
  if (!setup.parts_heads) device.multiprocessors = 0;
  return device;
}

/// A call of the backward pass.
class BackwardExperiment : public PlanExperiment {
 public:
  BackwardExperiment(const Variant& variant, const Setup& setup, std::shared_ptr<HostKernels> others)
      : BackwardExperiment(variant, setup, BackwardImage(setup.one, 23), std::move(others)) {}

 private:
  BackwardExperiment(const Variant& variant, const Setup& setup, BackwardImage image,
                     std::shared_ptr<HostKernels> others)
      : PlanExperiment(variant, device_of(setup), image.memory(),
                       {.group = setup.group, .count_banks = setup.count_banks}, std::move(others)),
        told_(setup.told),
        image_(std::move(image)) {
    const BackwardProblem problem = image_.problem();
    for (const ProblemView& part :
         {ProblemView(problem), ProblemView(rows_), ProblemView(queries_), ProblemView(conversion_)}) {
      serve(part);
    }
  }

  void call(const Backend& backend) override {
    attune_backward_args args = image_.args(memory().data());
    if (!told_.cu_seqlens_q.empty()) {
      args.cu_seqlens_q = told_.cu_seqlens_q.data();
      args.cu_seqlens_k = told_.cu_seqlens_k.data();
      args.seqused_q = told_.seqused_q.empty() ? nullptr : told_.seqused_q.data();
      args.seqused_k = told_.seqused_k.empty() ? nullptr : told_.seqused_k.data();
    }
    attune::run(args, image_.problem(), backend);
  }

  [[nodiscard]] std::string wrong(const Memory& after) const override { return image_.wrong(after); }
  [[nodiscard]] std::string text() const override { return image_.origin().text(); }

  Sequences told_;
  BackwardImage image_;
  BackwardPart<Operation::backward_rows> rows_{image_.problem()};
  BackwardPart<Operation::backward_queries> queries_{image_.problem()};
  BackwardPart<Operation::backward_convert> conversion_{image_.problem()};
};

/// Sequences one after the other, with gaps around them.
Setup ragged_setup(BackwardCase one, const std::vector<int>& seqlens_q, const std::vector<int>& seqlens_k) {
  constexpr int gap = 5;
  const auto lay_out = [&](const std::vector<int>& seqlens, int& longest, int& total) {
    std::vector<std::int32_t> cu_seqlens{gap};
    for (const int seqlen : seqlens) cu_seqlens.push_back(cu_seqlens.back() + seqlen);
    longest = std::ranges::max(seqlens);
    total = cu_seqlens.back() + gap;
    return cu_seqlens;
  };
  Problem& problem = one.prefill.problem;
  problem.ragged = true;
  problem.batch = static_cast<int>(seqlens_q.size());
  one.prefill.sequences.cu_seqlens_q = lay_out(seqlens_q, problem.seqlen_q, problem.total_q);
  one.prefill.sequences.cu_seqlens_k = lay_out(seqlens_k, problem.seqlen_k, problem.total_k);
  return {.one = one, .told = one.prefill.sequences};
}

std::vector<Setup> ragged_setups(const BackwardCase& one) {
  std::vector<Setup> result;
  const auto add = [&](const std::vector<int>& seqlens_q, const std::vector<int>& seqlens_k, int left,
                       int right) -> Setup& {
    Setup& setup = result.emplace_back(ragged_setup(one, seqlens_q, seqlens_k));
    setup.one.prefill.problem.window_left = left;
    setup.one.prefill.problem.window_right = right;
    return setup;
  };
  add({3, 0}, {0, 2}, 1, 1);
  Setup& heads = add({9, 70}, {6, 90}, 7, 4);
  heads.one.prefill.problem.heads_q = 4;
  heads.one.prefill.problem.heads_kv = 2;
  heads.group = 3;
  Setup& odd = add({37, 7}, {101, 39}, 33, 21);
  odd.one.prefill.problem.head_dim -= 8;
  odd.one.prefill.sequences.seqused_k = {96, 39};
  odd.one.prefill.sequences.seqused_q = {35, 7};
  odd.told.seqused_k = {96, 90};
  odd.told.seqused_q = {35, 50};
  odd.one.has_dlse = true;
  Setup& none = add({20, 20}, {20, 20}, 9, 9);
  none.one.prefill.sequences.seqused_k = {0, 20};
  none.one.prefill.sequences.seqused_q = {20, 0};
  none.told.seqused_k = {-4, 20};
  none.told.seqused_q = {20, -5};
  // Far more rows than sequences have.
  Setup& rest = add({3, 5}, {6, 2}, 9, 9);
  rest.one.head_dim_v = one.prefill.problem.head_dim - 8;
  rest.one.prefill.problem.heads_q = 6;
  rest.one.prefill.problem.heads_kv = 2;
  rest.one.prefill.problem.total_q += 300;
  rest.one.prefill.problem.total_k += 500;
  // Told more than there is: a sequence that begins before the first row and ends behind the last, ...
  Setup& beyond = add({40}, {50}, 9, -1);
  Problem& all = beyond.one.prefill.problem;
  beyond.one.prefill.sequences.cu_seqlens_q = {0, all.total_q};
  beyond.one.prefill.sequences.cu_seqlens_k = {0, all.total_k};
  all.seqlen_q = all.total_q + 50;
  all.seqlen_k = all.total_k + 50;
  beyond.told.cu_seqlens_q = {-3, all.total_q + 7};
  beyond.told.cu_seqlens_k = {-2, all.total_k + 9};
  // ... longer ones than the longest, ...
  Setup& longer = add({30, 0, 6}, {40, 0, 20}, 30, 0);
  longer.told.cu_seqlens_q[1] += 4;
  longer.told.cu_seqlens_k[1] += 3;
  // ... and lengths that decrease.
  Setup& decreasing = add({30, 10}, {0, 35}, 4, 4);
  decreasing.one.prefill.sequences.cu_seqlens_k = {0, 0, 35};
  decreasing.told.cu_seqlens_k = {30, std::numeric_limits<std::int32_t>::min(), 35};
  add({64, 32}, {96, 64}, 40, 0).count_banks = true;
  return result;
}

std::vector<Setup> dense_setups(const BackwardCase& one) {
  std::vector<Setup> result;
  const auto add = [&](int seqlen_q, int seqlen_k) -> Setup& {
    Setup& setup = result.emplace_back(Setup{.one = one});
    setup.one.prefill.problem.seqlen_q = seqlen_q;
    setup.one.prefill.problem.seqlen_k = seqlen_k;
    return setup;
  };
  add(3, 2);
  Setup& heads = add(9, 6);
  heads.one.prefill.problem.batch = 2;
  heads.one.prefill.problem.heads_q = 4;
  heads.one.prefill.problem.heads_kv = 2;
  heads.group = 3;
  heads.one.has_dlse = true;
  Setup& odd = add(101, 83);
  odd.one.prefill.problem.head_dim -= 8;
  odd.one.prefill.problem.heads_q = 2;
  Setup& sharp = add(40, 140);
  sharp.one.sharpness = 30;
  sharp.one.head_dim_v = one.prefill.problem.head_dim - 16;
  // Rows whose scores are so low that beyond the last key exponentials overflow.
  add(60, 2).one.sharpness = 100;
  add(128, 128).count_banks = true;
  return result;
}

/// Where queries see tiles that are dead, full and partial, some by what a mask looks up.
std::vector<Setup> masked_setups(const BackwardCase& one, const Variant& variant) {
  std::vector<Setup> result;
  const auto add = [&](int seqlen_q, int seqlen_k) -> Problem& {
    Setup& setup = result.emplace_back(Setup{.one = one});
    Problem& problem = setup.one.prefill.problem;
    problem.seqlen_q = seqlen_q;
    problem.seqlen_k = seqlen_k;
    return problem;
  };
  add(9, 20).heads_q = 2;
  // Edges of what a mask shows before, at and after those of blocks.
  for (const int beyond : {-1, 0, 1}) {
    Problem& problem = add(3 * variant.B_r, 3 * variant.B_r + 3 * variant.B_c + beyond);
    problem.heads_q = 2;
    problem.heads_kv = 1;
  }
  return result;
}

/// So many queries and keys that large tiles follow each other, some of them masked and some not.
Setup long_setup(const BackwardCase& one, bool ragged) {
  Setup setup = ragged ? ragged_setup(one, {400, 5}, {390, 3}) : Setup{.one = one};
  Problem& problem = setup.one.prefill.problem;
  problem.heads_q = 2;
  problem.heads_kv = 1;
  if (ragged) {
    problem.window_left = 200;
    problem.window_right = 100;
  } else {
    problem.seqlen_q = 400;
    problem.seqlen_k = 390;
  }
  return setup;
}

}  // namespace

std::vector<std::unique_ptr<Experiment>> backward_experiments(const Variant& variant) {
  const Operation operation = family_of(variant).operation;
  BackwardCase one;
  one.any_order = operation == Operation::backward_convert || variant.deterministic == 0;
  one.prefill.layout = testing::Layout::gaps;
  one.prefill.problem = {.dtype = static_cast<Dtype>(variant.dtype),
                         .head_dim = variant.head_dim,
                         .causal = variant.causal != 0,
                         .softcap = variant.softcap != 0 ? 3.0F : 0.0F};
  const auto others = std::make_shared<HostKernels>();
  std::vector<std::unique_ptr<Experiment>> result;
  if (variant.score != 0) one.score = expression::text_of_number(variant.score);
  if (variant.mask != 0) one.mask = expression::text_of_number(variant.mask);
  const bool has_expressions = variant.score != 0 || variant.mask != 0;
  std::vector<Setup> setups = has_expressions       ? masked_setups(one, variant)
                              : variant.ragged != 0 ? ragged_setups(one)
                                                    : dense_setups(one);
  if (variant.family == backward_sm90) {
    setups.push_back(long_setup(one, variant.ragged != 0));
    Setup& parts = setups.emplace_back(setups.front());
    parts.parts_heads = true;
    parts.one.prefill.problem.batch = variant.ragged != 0 ? parts.one.prefill.problem.batch : 2;
    parts.one.prefill.problem.heads_q = 6;
    parts.one.prefill.problem.heads_kv = 2;
  }
  for (Setup& setup : setups) {
    // Rows begin with sums in every other problem.
    if (operation == Operation::backward_rows) setup.one.any_order = result.size() % 2 == 0;
    if (operation != Operation::backward && operation != Operation::backward_queries) setup.group = 0;
    result.push_back(std::make_unique<BackwardExperiment>(variant, setup, others));
  }
  return result;
}

}  // namespace attune::mutation_tests
