// attune explain: which kernels serve a problem, which were refused and why, and into how many parts a cache's keys
// fall.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "runtime/call/limits.hpp"
#include "runtime/call/problem_fields.hpp"
#include "runtime/choice/explain.hpp"
#include "runtime/choice/explanation_json.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/mask_blocks.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"

namespace attune::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  DecodeOptions decode;
  std::string gpu;
  std::string score;
  std::string mask;
  int total_q = left_out;
  int total_k = left_out;
  bool backward = false;
  bool any_order = false;
  bool all = false;
  bool json = false;

  /// Without --decode.
  [[nodiscard]] Problem prefill() const {
    ProblemOptions sizes = problem;
    sizes.named.ragged = total_q != left_out;
    sizes.named.total_q = total_q;
    sizes.named.total_k = total_k;
    return decode.prefill(sizes);
  }

  /// With --backward.
  [[nodiscard]] BackwardProblem gradients() const { return BackwardProblem::of(prefill(), any_order); }
};

/// What the blocks of keys are that a problem's mask leaves.
nlohmann::ordered_json json_of(const MaskBlocks& blocks) {
  using expression::Visibility;
  return {{"dead", blocks.share(Visibility::none)},
          {"full", blocks.share(Visibility::all)},
          {"partial", blocks.share(Visibility::some)},
          {"told", blocks.are_told}};
}

Exit explain(const ExplainOptions& options, auto problem) {
  require_sound(problem);
  express(problem, {.score = options.score.empty() ? nullptr : options.score.c_str(),
                    .mask = options.mask.empty() ? nullptr : options.mask.c_str()});
  const ReadyKernels ready;
  const Explanation said = attune::explain(problem, device_for(options.gpu), ready, default_tuned_tables(ready));
  std::optional<MaskBlocks> blocks;
  if constexpr (std::is_same_v<decltype(problem), Problem>) {
    const Variant& variant = said.serving.variant;
    if (problem.expressions.mask != 0) blocks = mask_blocks(problem, variant.B_r, variant.B_c);
  }
  if (options.json) {
    nlohmann::ordered_json json = explanation_json(said);
    if (blocks) json["blocks"] = json_of(*blocks);
    print_json(json);
  } else {
    fmt::print("{}{}", said.text(options.all ? "" : "--all shows them"), blocks ? blocks->text() : "");
  }
  return said.served() ? Exit::done : Exit::check_failed;
}

}  // namespace

Command explain_command(CLI::App& root) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* app = root.add_subcommand("explain", "Which kernel would serve a problem, and why not the others");
  options->problem.add_sizes(*app);
  options->problem.add_choices(*app);
  options->decode.add(*app);
  add_gpu_option(
      *app, options->gpu,
      fmt::format("Explain for this GPU, which need not be here [default: this machine's, else {}]", usual_gpu));
  CLI::Option* const total_q =
      app->add_option("--total-q", options->total_q,
                      "Queries of a ragged batch, whose sequences have up to --seqlen-q each, and --seqlen-k keys")
          ->type_name("INT")
          ->check(non_negative_number())
          ->excludes("--decode");
  app->add_option("--total-k", options->total_k, "Its keys, where they are in no pages [default: the most]")
      ->type_name("INT")
      ->check(non_negative_number())
      ->needs(total_q);
  CLI::Option* const backward =
      app->add_flag("--backward", options->backward, "Explain the gradients of such a problem, which has no pages")
          ->excludes("--decode")
          ->excludes("--page-size");
  app->add_flag("--any-order", options->any_order, "By the fastest kernels, whose sums may have any order")
      ->needs(backward);
  app->add_option("--score", options->score,
                  "What scores s become, as in 's + slope[h] * (k - p) where slope: fp32[head]'");
  app->add_option("--mask", options->mask, "Which keys a query sees, as in 'k <= p and (p - k < 1024 or k < 4)'");
  app->add_flag("--all", options->all, "Also list variants refused for several reasons");
  app->add_flag("--json", options->json, "Print the explanation as JSON");
  app->footer(R"(Examples:
  attune explain --dtype bf16 --head-dim 128 --heads-q 32 --heads-kv 8 --seqlen-q 4096 --causal
  attune explain --head-dim 128 --seqlen-q 4096 --mask 'k <= p and (p - k < 1024 or k < 4)'
  attune explain --head-dim 72 --seqlen-q 1000 --gpu l40s --all
  attune explain --head-dim 128 --heads-q 32 --heads-kv 8 --seqlen-q 512 --seqlen-k 8192 --page-size 64 --causal
  attune explain --batch 65 --heads-q 32 --heads-kv 8 --seqlen-q 2048 --total-q 2112 --seqlen-k 4096 --page-size 64
  attune explain --backward --any-order --head-dim 128 --batch 4 --seqlen-q 4096 --causal
  attune explain --decode --batch 8 --heads-q 32 --heads-kv 8 --seqlen-k 32768 --page-size 64 --lengths-on-device)");
  return {.app = app, .run = [options, app] {
            if (options->decode.decode) return explain(*options, options->decode.problem(options->problem, *app));
            return options->backward ? explain(*options, options->gradients()) : explain(*options, options->prefill());
          }};
}

}  // namespace attune::cli
