// The mutation test's calls of kernels with expressions as scores and masks, of prefill and of what tells its blocks.
#include <algorithm>
#include <functional>
#include <utility>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "tests/emulator/plan_experiment.hpp"
#include "tests/harness/expressed_image.hpp"

namespace attune::mutation_tests {
namespace {

using testing::ExpressedCase;
using testing::ExpressedImage;

/// A call of prefill; where its mask looks things up, a launch before it tells which blocks there are, if `tells`.
class ExpressedExperiment : public PlanExperiment {
 public:
  /// `attention`: the family of the kernel that is told, where the bug is in the one that tells.
  ExpressedExperiment(const Variant& variant, const Device& device, ExpressedImage image, bool tells, int attention,
                      std::shared_ptr<HostKernels> others)
      : PlanExperiment(variant, device, image.memory(), {}, std::move(others)),
        image_(std::move(image)),
        is_telling_(family_of(variant).operation == Operation::mask_blocks) {
    const Problem& problem = image_.problem();
    serve(problem, attention);
    if (variant.mask == 0 && !is_telling_) return;
    serve(blocks_);
    if (!tells) return;
    const Variant told =
        is_telling_ ? default_variant(attention, ProblemView(problem).need(), device.shared_per_block) : variant;
    const PrefillPlan planned = plan(told, problem, device);
    words_.resize(planned.workspace_bytes / sizeof(unsigned));
    count_ = planned.mask_blocks.drawn ? 2 * static_cast<std::size_t>(planned.mask_blocks.pairs()) : words_.size();
  }

 private:
  void call(const Backend& backend) override {
    attune_prefill_args args = image_.prefill_args(memory().data());
    if (!words_.empty()) args.workspace = words_.data();
    args.workspace_bytes = words_.size() * sizeof(unsigned);
    // The launch that tells comes once, unless it has the bug: what it told is put back.
    if (is_telling_ || told_.empty()) {
      std::ranges::fill(words_, ~0U);
    } else {
      words_ = told_;
    }
    attune::run(args, image_.problem(), backend);
    // What attention has counted since then is taken back.
    std::fill(words_.begin() + static_cast<std::ptrdiff_t>(count_), words_.end(), 0U);
    if (told_.empty()) told_ = words_;
  }

  [[nodiscard]] std::string wrong(const Memory& after) const override {
    if (is_telling_ && words_ != told_) return "other blocks are told";
    return image_.wrong(after);
  }
  [[nodiscard]] std::string text() const override { return image_.problem().text(); }

  ExpressedImage image_;
  bool is_telling_;  ///< whether the bug is in the launch that tells
  MaskBlocksProblem blocks_{image_.problem().expressions.mask};
  std::vector<unsigned> words_;
  std::size_t count_ = 0;       ///< where the count of tiles stands in them
  std::vector<unsigned> told_;  ///< without a bug
};

}  // namespace

std::vector<std::unique_ptr<Experiment>> expressed_experiments(const Variant& variant) {
  const auto others = std::make_shared<HostKernels>();
  Device device = emulator::device();
  device.multiprocessors = 3;  // so few that blocks that stay have several tiles
  std::vector<std::unique_ptr<Experiment>> result;
  const auto add = [&](int batch, int heads_q, int seqlen_q, int seqlen_k, const std::function<int(int)>& document,
                       bool tells = true, int attention = prefill_sm80) {
    ExpressedCase one;
    one.problem = {.dtype = static_cast<Dtype>(variant.dtype),
                   .batch = batch,
                   .heads_q = heads_q,
                   .heads_kv = 1,
                   .seqlen_q = seqlen_q,
                   .seqlen_k = seqlen_k,
                   .head_dim = variant.head_dim,
                   .causal = variant.causal != 0,
                   .window_left = variant.window != 0 ? variant.B_r + 20 : -1,
                   .window_right = variant.window != 0 ? 0 : -1};
    if (variant.score != 0) one.texts.score = expression::text_of_number(variant.score);
    if (variant.mask != 0) one.texts.mask = expression::text_of_number(variant.mask);
    ExpressedImage image(one, 29);
    // Of each sequence and head its own.
    image.set_array("document", [&](int i) { return document(i % seqlen_k - variant.B_c * (i / seqlen_k)); });
    result.push_back(
        std::make_unique<ExpressedExperiment>(variant, device, std::move(image), tells, attention, others));
  };
  const bool is_telling = family_of(variant).operation == Operation::mask_blocks;
  const auto short_documents = [](int position) { return position / 4; };
  // Queries before the first key are of no document.
  add(1, 2, variant.B_r + 9, 20, short_documents);
  add(1, 2, 9, 3 * variant.B_c + 5, short_documents, is_telling);
  // Tiles that are counted.
  if (is_telling) add(1, 2, 150, 150, short_documents, true, prefill_sm90);
  // Edges of what a mask shows before, at and after those of blocks.
  for (const int beyond : {-1, 0, 1}) {
    const int seqlen_q = 2 * variant.B_r;
    const int seqlen_k = seqlen_q + 3 * variant.B_c + beyond;
    add(1, 2, seqlen_q, seqlen_k, [&](int position) { return position < 2 * variant.B_c ? 1 : 2; });
  }
  // Words of blocks that are all dead, between others.
  const int far = 70 * variant.B_c;
  add(2, 2, 40, far,
      [&](int position) { return position > 2 * variant.B_c && position < far - 3 * variant.B_c ? 1 : 2; });
  return result;
}

}  // namespace attune::mutation_tests
