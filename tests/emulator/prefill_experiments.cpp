// The mutation test's launches of kernels of prefill without expressions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "runtime/lab/reference.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "tests/emulator/experiment.hpp"
#include "tests/harness/call_image.hpp"
#include "tests/harness/check_outputs.hpp"

namespace attune::mutation_tests {
namespace {

/// What an experiment is about, beyond its problem.
struct Setup {
  Problem problem;
  unsigned group = 1;        ///< heads whose tiles run together
  int multiprocessors = 3;   ///< so few that blocks that stay have several tiles
  bool lse = true;           ///< whether it is asked for
  float sharpness = 1;       ///< by which the usual scale of the scores is multiplied
  bool count_banks = false;  ///< and compare them with the unmutated run
  int fewest_queries = 0;    ///< of a sequence; one with fewer is another kernel's
  Sequences sequences = {};  ///< of a ragged or paged problem
  Sequences told = {};       ///< and what the kernel is told, which may be more than there is
};

/// Of a kernel that attends.
class PrefillExperiment : public Experiment {
 public:
  PrefillExperiment(const Variant& variant, const Setup& setup)
      : setup_(setup), call_(setup.problem, testing::Layout::gaps, 17, setup.sequences), memory_(call_.memory()) {
    const Problem& problem = setup_.problem;
    attune_prefill_args args = call_.args(memory_.data());
    args.cu_seqlens_q = setup_.told.cu_seqlens_q.data();
    args.cu_seqlens_k = setup_.told.cu_seqlens_k.data();
    args.seqused_k = setup_.told.seqused_k.data();
    args.block_table = setup_.told.block_table.data();
    args.seqused_q = setup_.told.seqused_q.data();
    if (!setup.lse) args.lse = nullptr;
    args.softmax_scale *= setup.sharpness;
    Device device = emulator::device();
    device.multiprocessors = setup.multiprocessors;
    PrefillPlan planned = plan(variant, problem, device);
    planned.fewest_queries = setup.fewest_queries;
    if (family_of(variant).tensor_maps) {
      planned.group_heads = static_cast<int>(setup.group);
      planned.grid.x = static_cast<unsigned>(device.multiprocessors);  // where that is more than there are tiles, too
    } else {
      const auto heads = static_cast<unsigned>(problem.batch * problem.heads_q);
      planned.grid = {.x = setup.group, .y = planned.grid.y, .z = (heads + setup.group - 1) / setup.group};
    }
    workspace_.resize(planned.workspace_bytes / sizeof(std::uint64_t));
    args.workspace = workspace_.data();
    args.workspace_bytes = planned.workspace_bytes;
    EmulatorExecutor executor;
    params_ = std::make_unique<PrefillParams>(args, problem, planned, executor);
    launch_.grid = planned.grid;
    launch_.threads = planned.threads;
    launch_.shared_bytes = planned.shared_bytes;
    launch_.params = params_->get();
    launch_.memory = buffers_of([&](VisitOperand visit) {
      visit_operands(args, problem, visit);
      params_->visit_workspace(visit);
    });
    words_ = static_cast<std::size_t>(workspace_.empty() ? 0 : planned.sharing_warps());
    launch_.jobs = 1;
    launch_.count_banks = setup.count_banks;

    const auto host = [](const attune_tensor& tensor) {
      return HostTensor{static_cast<const std::uint16_t*>(tensor.data), tensor.stride_batch, tensor.stride_seq,
                        tensor.stride_head};
    };
    const auto expected = [&](AttentionFunction& attention) {
      const HostTensor q = host(args.q);
      const HostTensor k = host(args.k);
      const HostTensor v = host(args.v);
      const double scale = args.softmax_scale;
      return attention_of(attention, problem, setup_.sequences, q, k, v, scale);
    };
    reference_ = expected(reference_attention);
    naive_ = expected(naive_attention);
  }

 private:
  Seen launch(const emulator::Kernel& kernel) override {
    std::ranges::copy(call_.memory(), memory_.begin());  // the launch knows where it is
    std::ranges::fill(workspace_, poison);
    const emulator::Report report = kernel.run(launch_);
    fault_ = report.fault;
    if (!report.ok()) return {Notice::fault};
    const Outputs output = call_.outputs(memory_);
    const Comparison comparison =
        compare(setup_.problem, output.o.data(), setup_.lse ? output.lse.data() : nullptr, reference_, naive_);
    if (!comparison.agrees || !output.guards_intact) return {Notice::numbers};
    if (!testing::unowned_rows_intact(output, reference_)) return {Notice::numbers};
    // The next launch may bear the same number, as one of a graph that is replayed does.
    const bool words_left = std::ranges::any_of(std::span(workspace_).last(words_),
                                                [](std::uint64_t word) { return word != 0 && word != poison; });
    if (words_left) return {Notice::numbers};
    Seen seen;
    for (const emulator::BankSite& site : report.sites) seen.wavefronts += site.wavefronts;
    return seen;
  }

  [[nodiscard]] std::string complaint() const override {
    return fmt::format("{}: {}", setup_.problem.text(), fault_.empty() ? "numbers disagree" : fault_);
  }

  Setup setup_;
  testing::CallImage call_;
  Memory memory_;
  static constexpr std::uint64_t poison = ~std::uint64_t{0};  // NaN as floats
  std::vector<std::uint64_t> workspace_;
  std::size_t words_ = 0;  // at its end, of warps that leave a tile
  std::unique_ptr<PrefillParams> params_;
  emulator::Launch launch_;
  ReferenceOutput reference_;
  ReferenceOutput naive_;
  std::string fault_;
};

/// Sequences one after the other, with gaps around them, and windows that have both ends inside them.
Setup ragged_setup(Problem problem, const std::vector<int>& seqlens_q, const std::vector<int>& seqlens_k) {
  constexpr int gap = 5;
  const auto lay_out = [&](const std::vector<int>& seqlens, int& longest, int& total) {
    std::vector<std::int32_t> cu_seqlens{gap};
    for (const int seqlen : seqlens) cu_seqlens.push_back(cu_seqlens.back() + seqlen);
    longest = std::ranges::max(seqlens);
    total = cu_seqlens.back() + gap;
    return cu_seqlens;
  };
  problem.ragged = true;
  problem.batch = static_cast<int>(seqlens_q.size());
  Setup setup;
  setup.sequences.cu_seqlens_q = lay_out(seqlens_q, problem.seqlen_q, problem.total_q);
  setup.sequences.cu_seqlens_k = lay_out(seqlens_k, problem.seqlen_k, problem.total_k);
  setup.told = setup.sequences;
  setup.problem = problem;
  return setup;
}

/// Of a kernel with windows for ragged batches.
std::vector<Setup> ragged_setups(const Problem& problem, const Variant& variant) {
  std::vector<Setup> result;
  const auto add = [&](const std::vector<int>& seqlens_q, const std::vector<int>& seqlens_k, int left,
                       int right) -> Setup& {
    Setup& setup = result.emplace_back(ragged_setup(problem, seqlens_q, seqlens_k));
    setup.problem.window_left = left;
    setup.problem.window_right = right;
    return setup;
  };
  add({3, 0}, {0, 2}, 1, 1).lse = false;
  // Grouped heads in two groups, the second not full, of two sequences, one with fewer keys than queries.
  // Blocks that stay have more such tiles than places for Q.
  const bool stays = family_of(variant).tensor_maps;
  Setup& heads = add({stays ? variant.B_r + 9 : 9, 20}, {6, 40}, 3, 2);
  heads.problem.heads_q = stays ? 4 : 2;
  heads.group = 3;
  // Fewer columns than the tile's, enough blocks to use every buffer twice, keys that do not count.
  // Three heads share keys and are stacked: each may have a quarter of 64 rows, and the second sequence has as many.
  const int few = stays ? 16 : 7;
  Setup& odd = add({variant.B_r + 5, few}, {(variant.stages + 2) * variant.B_c + 3, variant.B_c + 9}, 37, 21);
  odd.problem.head_dim -= 8;
  if (stays) odd.problem.heads_q = 3;
  odd.sequences.seqused_k = odd.told.seqused_k = {(variant.stages + 2) * variant.B_c, variant.B_c + 2};
  odd.sequences.seqused_q = odd.told.seqused_q = {variant.B_r + 3, few};
  // Told more than there is: a sequence that begins before the first row and ends behind the last, ...
  Setup& beyond = add({variant.B_r}, {variant.B_c}, 4, -1);
  beyond.sequences.cu_seqlens_q = {0, beyond.problem.total_q};
  beyond.sequences.cu_seqlens_k = {0, beyond.problem.total_k};
  beyond.problem.seqlen_q = beyond.problem.total_q + 50;
  beyond.problem.seqlen_k = beyond.problem.total_k + 50;
  beyond.told.cu_seqlens_q = {-3, beyond.problem.total_q + 7};
  beyond.told.cu_seqlens_k = {-2, beyond.problem.total_k + 9};
  // ... longer ones than the longest, lengths that decrease, and fewer keys than none.
  Setup& longer = add({variant.B_r - 9, 0, 6}, {variant.B_c + 7, 0, 20}, 30, 0);
  longer.told.cu_seqlens_q[1] += 4;
  longer.told.cu_seqlens_k[1] += 3;
  longer.told.seqused_k = {variant.B_c + 90, 0, std::numeric_limits<std::int32_t>::min()};
  longer.sequences.seqused_k = {variant.B_c + 7, 0, 0};
  Setup& decreasing = add({30, 10}, {0, 35}, 4, 4);
  decreasing.sequences.cu_seqlens_k = {0, 0, 35};
  decreasing.told.cu_seqlens_k = {30, std::numeric_limits<std::int32_t>::min(), 35};
  // Sequences of fewer queries than the second one are another kernel's.
  Setup& mixed = add({4, 5, variant.B_r + 2}, {9, 30, 20}, 9, 9);
  mixed.fewest_queries = 5;
  mixed.sequences.seqused_q = {0, 5, variant.B_r + 2};
  mixed.told.seqused_q = {4, 5, variant.B_r + 2};
  if (stays) {
    // Groups that begin and end inside a sequence, before and behind ones whose heads are stacked, or not.
    Setup& groups = add({9, variant.B_r + 3, 16, 3, 70, 21, 80, 2}, {20, 30, 16, 9, 200, 25, 90, 8}, 9, 2);
    groups.problem.heads_q = 3;
    groups.group = 4;
  }
  // Lengths that fill tiles, so that a block too many or a bank conflict shows in what shared memory delivers.
  add({variant.B_r + variant.B_c, variant.B_r}, {(variant.B_r / variant.B_c + 2) * variant.B_c, 3 * variant.B_c},
      variant.B_c, 0)
      .count_banks = true;
  return result;
}

/// Of a kernel with windows for keys in pages, which lie in no order.
std::vector<Setup> paged_setups(const Problem& problem, const Variant& variant) {
  std::vector<Setup> result;
  const auto add = [&](int seqlen_q, const std::vector<std::int32_t>& seqlens_k, int page_size, int left,
                       int right) -> Setup& {
    Setup& setup = result.emplace_back(Setup{.problem = problem});
    Problem& own = setup.problem;
    own.paged = true;
    own.batch = static_cast<int>(seqlens_k.size());
    own.seqlen_q = seqlen_q;
    own.seqlen_k = std::ranges::max(seqlens_k);
    own.window_left = left;
    own.window_right = right;
    own.page_size = (page_size + variant.page_multiple - 1) / variant.page_multiple * variant.page_multiple;
    own.table_width = std::max(1, (own.seqlen_k + own.page_size - 1) / own.page_size);  // nothing is read beyond
    own.pages = own.batch * own.table_width + 1;
    setup.sequences.seqused_k = seqlens_k;
    for (int page = own.pages - 1; page > 0; --page) setup.sequences.block_table.push_back(page);
    setup.told = setup.sequences;
    return setup;
  };
  // Tensor maps have keys.
  const bool stays = family_of(variant).tensor_maps;
  add(3, stays ? std::vector<std::int32_t>{0, 2} : std::vector<std::int32_t>{0}, 4, 1, 1).lse = false;
  // Grouped heads in two groups, the second not full, of two sequences, one with fewer keys than queries.
  Setup& heads = add(stays ? variant.B_r + 9 : 9, {6, 30}, 4, 5, 2);
  heads.problem.heads_q = stays ? 4 : 2;
  heads.group = 3;
  // The page behind the last is another sequence's, or behind the table.
  add(4, {variant.B_c + 16}, 16, 9, 2);
  // Fewer columns than the tile's, and blocks that use every buffer twice. The window begins inside a block for the
  // later rows of a warp alone, and in the second sequence more than a block before the first key.
  Setup& odd = add(variant.B_r + 5, {3 * variant.B_c + 50, variant.B_c + 9}, 5, 183, 20);
  odd.problem.head_dim -= 8;
  if (stays) odd.problem.heads_q = 4;
  // Told more keys than the most, or fewer than none, and of no page for keys that no query sees.
  Setup& wild = add(4, {variant.B_c + 70, 0, 40}, 7, 9, 2);
  wild.told.seqused_k = {std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min(), 40};
  // The third one's rows, in pages 17 rows apart, would wrap around to page 0, which is no sequence's.
  const std::array nowhere{-1, wild.problem.pages, static_cast<std::int32_t>(0xf0f0f0f1U),
                           std::numeric_limits<std::int32_t>::min()};
  const int page_size = wild.problem.page_size;
  const int first_seen = wild.problem.seqlen_k - 4 - 9;
  for (int entry = variant.B_c / page_size + 1; entry < first_seen / page_size; ++entry) {
    wild.told.block_table[static_cast<std::size_t>(entry)] = nowhere[static_cast<std::size_t>(entry) % nowhere.size()];
  }
  for (int entry = (40 + page_size - 1) / page_size, last = entry + 1; entry <= last; ++entry) {
    wild.told.block_table[static_cast<std::size_t>(2 * wild.problem.table_width + entry)] =
        nowhere[static_cast<std::size_t>(entry) % nowhere.size()];
  }
  // Lengths that fill tiles, so that a block too many or a bank conflict shows in what shared memory delivers.
  add(variant.B_r + variant.B_c, {3 * variant.B_c, 2 * variant.B_c}, variant.B_c, variant.B_c, 0).count_banks = true;
  return result;
}

/// Cheap ones first: a mutant runs until it is noticed.
std::vector<Setup> setups(const Variant& variant) {
  Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                  .head_dim = variant.head_dim - (variant.cut_rows != 0 ? cut_columns : 0),
                  .head_dim_v = variant.head_dim_v,
                  .causal = variant.causal != 0};
  const auto set_heads = [&](Problem& of, int heads) {
    of.heads_q = heads;
    if (variant.pack_gqa == 0) return;
    of.heads_kv = heads;
    of.heads_q = heads * variant.gqa_ratio;
  };
  set_heads(problem, 1);
  if (variant.ragged != 0) return ragged_setups(problem, variant);
  if (variant.paged != 0) return paged_setups(problem, variant);
  std::vector<Setup> result;
  const auto add = [&](int seqlen_q, int seqlen_k) -> Setup& {
    problem.seqlen_q = seqlen_q;
    problem.seqlen_k = seqlen_k;
    return result.emplace_back(Setup{.problem = problem});
  };
  // No keys at all, where the family has that, and nobody asks for LSE.
  const bool tensor_maps = family_of(variant).tensor_maps;
  add(3, tensor_maps ? 1 : 0).lse = false;
  // Grouped heads in two groups, the second not full, of two sequences; when causal some rows see no key.
  Setup& heads = add(tensor_maps ? variant.B_r + 9 : 9, 6);
  heads.problem.batch = 2;
  set_heads(heads.problem, 2);
  heads.group = 3;
  // Scores so far apart that exponentials overflow unless they are relative to the largest; when causal the first rows
  // see no key of either block. A block that stays has more such tiles than places for Q.
  Setup& sharp = add(2 * variant.B_c + 15, 2 * variant.B_c - 5);
  sharp.sharpness = 100;
  if (tensor_maps) {
    set_heads(sharp.problem, 2);
    sharp.multiprocessors = 1;
  }
  // Lengths that fill no tile, enough blocks to use every buffer twice, fewer columns than the tile's.
  Setup& odd = add(variant.B_r + 5, (variant.stages + 1) * variant.B_c + variant.B_c / 2 + 3);
  odd.problem.head_dim -= 8;
  if (odd.problem.head_dim_v != 0) odd.problem.head_dim_v -= 8;
  if (tensor_maps) set_heads(odd.problem, 2);  // so that a block goes from one such tile to the next
  // Tiles that blocks share, without a round of whole ones before and behind one.
  for (const auto& [heads_q, seqlen_k] : {std::pair{4, 451}, std::pair{7, 600}}) {
    if (variant.stream_k == 0) continue;
    Setup& shared = add(variant.B_r - 7, seqlen_k);
    set_heads(shared.problem, heads_q);
  }
  // Lengths that fill tiles, so that a block too many or a bank conflict shows in what shared memory delivers.
  add(variant.B_r + variant.B_c, (variant.B_r / variant.B_c + 2) * variant.B_c).count_banks = !tensor_maps;
  return result;
}

}  // namespace

std::vector<std::unique_ptr<Experiment>> prefill_experiments(const Variant& variant) {
  std::vector<std::unique_ptr<Experiment>> result;
  for (const Setup& setup : setups(variant)) result.push_back(std::make_unique<PrefillExperiment>(variant, setup));
  return result;
}

}  // namespace attune::mutation_tests
