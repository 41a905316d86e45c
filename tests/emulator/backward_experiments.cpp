// The mutation test's calls of the backward pass, of which one kernel has the bug.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "generator/check.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "tests/emulator/experiment.hpp"
#include "tests/emulator/mutate.hpp"
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
};

/// Runs the launches of a call, that of the variant with the kernel that it is given.
class BackwardExperiment : public Experiment, private EmulatorExecutor {
 public:
  BackwardExperiment(const Variant& variant, Setup setup, std::shared_ptr<HostKernels> others)
      : EmulatorExecutor({.jobs = 1}),
        setup_(std::move(setup)),
        image_(setup_.one, 23),
        memory_(image_.memory()),
        args_(image_.args(memory_.data())),
        own_{variant, emulator::device()},
        others_(std::move(others)) {
    if (!setup_.told.cu_seqlens_q.empty()) {
      args_.cu_seqlens_q = setup_.told.cu_seqlens_q.data();
      args_.cu_seqlens_k = setup_.told.cu_seqlens_k.data();
      args_.seqused_q = setup_.told.seqused_q.empty() ? nullptr : setup_.told.seqused_q.data();
      args_.seqused_k = setup_.told.seqused_k.empty() ? nullptr : setup_.told.seqused_k.data();
    }
    const BackwardProblem problem = image_.problem();
    for (const ProblemView& part :
         {ProblemView(problem), ProblemView(rows_), ProblemView(queries_), ProblemView(conversion_)}) {
      const auto family = std::ranges::find(families(), part.operation(), &Family::operation);
      if (family->operation == family_of(variant).operation) {
        kernels_.add(own_);
      } else {
        kernels_.add((*others_)[default_variant(family->defaults.family, part.need(), own_.device.shared_per_block)]);
      }
    }
  }

  std::string run_unmutated(const emulator::Kernel& kernel) override {
    const Notice notice = run(kernel);
    wavefronts_ = setup_.count_banks ? found_wavefronts_ : -1;
    if (notice == Notice::none) return "";
    return fmt::format("{}: {}", setup_.one.text(), notice == Notice::fault ? fault_ : image_.wrong(memory_));
  }

  Notice run(const emulator::Kernel& kernel) override {
    kernel_ = &kernel;
    std::ranges::copy(before_.empty() ? image_.memory() : before_, memory_.begin());
    *static_cast<long long*>(kernel.symbol(steps_symbol)) = 0;
    fault_.clear();
    attune::run(args_, image_.problem(), Backend{kernels_, *this, nullptr});
    if (!fault_.empty()) return Notice::fault;
    if (!image_.wrong(memory_).empty()) return Notice::numbers;
    return wavefronts_ >= 0 && found_wavefronts_ > wavefronts_ ? Notice::banks : Notice::none;
  }

 private:
  void run(const Plan& plan, void* /*stream*/) override {
    bool is_behind = before_.empty();  // what comes before the kernel with the bug has left its results
    for (std::size_t i = 0; i < plan.size() && fault_.empty(); ++i) {
      const bool is_own = plan[i].kernel == &own_;
      if (is_own && before_.empty()) before_ = memory_;
      is_behind = is_behind || is_own;
      if (is_behind) launch_step(plan[i], is_own);
    }
  }

  void launch_step(const Step& step, bool is_own) {
    emulator::Launch launch{.grid = step.grid,
                            .threads = step.threads,
                            .shared_bytes = step.shared_bytes,
                            .params = step.params,
                            .memory = buffers_of(step.operands),
                            .jobs = 1,
                            .count_banks = is_own && setup_.count_banks};
    const Operation operation = family_of(own_.variant).operation;
    const bool has_groups = operation == Operation::backward || operation == Operation::backward_queries;
    const bool grouped = is_own && has_groups && setup_.group > 0;
    if (grouped) {
      const unsigned heads = launch.grid.x * launch.grid.z;
      launch.grid.x = setup_.group;
      launch.grid.z = (heads + setup_.group - 1) / setup_.group;
    }
    const emulator::Kernel& kernel = is_own ? *kernel_ : static_cast<const EmulatedKernel&>(*step.kernel).kernel;
    const emulator::Report report = kernel.run(launch);
    // A launch behind the one with the bug may meet anything.
    fault_ = report.fault;
    if (!is_own) return;
    found_wavefronts_ = 0;
    for (const emulator::BankSite& site : report.sites) found_wavefronts_ += site.wavefronts;
  }

  Setup setup_;
  BackwardImage image_;
  BackwardPart<Operation::backward_rows> rows_{image_.problem()};
  BackwardPart<Operation::backward_queries> queries_{image_.problem()};
  BackwardPart<Operation::backward_convert> conversion_{image_.problem()};
  Memory memory_;
  attune_backward_args args_;
  ServingKernel own_;
  std::shared_ptr<HostKernels> others_;
  FixedKernels kernels_;
  const emulator::Kernel* kernel_ = nullptr;
  Memory before_;
  std::string fault_;
  long long wavefronts_ = -1;
  long long found_wavefronts_ = 0;
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
  // Told more than there is: a sequence that begins before the first row and ends behind the last, ...
  Setup& beyond = add({40}, {50}, 9, -1);
  Problem& all = beyond.one.prefill.problem;
  beyond.one.prefill.sequences.cu_seqlens_q = {0, all.total_q};
  beyond.one.prefill.sequences.cu_seqlens_k = {0, all.total_k};
  all.seqlen_q = all.total_q + 50;
  all.seqlen_k = all.total_k + 50;
  beyond.told.cu_seqlens_q = {-3, all.total_q + 7};
  beyond.told.cu_seqlens_k = {-2, all.total_k + 9};
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
  std::vector<Setup> setups = variant.ragged != 0 ? ragged_setups(one) : dense_setups(one);
  if (variant.family == backward_sm90) setups.push_back(long_setup(one, variant.ragged != 0));
  for (Setup& setup : setups) {
    // Rows begin with sums in every other problem.
    if (operation == Operation::backward_rows) setup.one.any_order = result.size() % 2 == 0;
    result.push_back(std::make_unique<BackwardExperiment>(variant, std::move(setup), others));
  }
  return result;
}

}  // namespace attune::mutation_tests
