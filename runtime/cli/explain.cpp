// attune explain: which kernels serve a problem, which were refused and why, and into how many parts a cache's keys
// fall.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/text.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/call/problem_fields.hpp"
#include "runtime/call/window.hpp"
#include "runtime/choice/decision.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/mask_blocks.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/store/arguments.hpp"

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

/// What is said of a problem, for programs and for people.
struct Explanation {
  bool served;
  nlohmann::ordered_json json;
  std::string text;
};

/// Whether a row of a tuned table decides. If so, which row, its distance and its measurement; else the reason.
nlohmann::ordered_json tuned_json(const TunedVerdict& tuned) {
  nlohmann::ordered_json json{{"used", tuned.reason.empty() && tuned.row.has_value()}};
  if (!tuned.reason.empty()) json["reason"] = tuned.reason;
  if (!tuned.row) return json;
  const TunedResult& result = tuned.row->result;
  json["problem"] = std::visit([](const auto& problem) { return problem.text(); }, tuned.row->problem);
  json["distance"] = tuned.distance;
  json["variant"] = result.variant.name();
  json["microseconds"] = result.microseconds;
  json["default_microseconds"] = result.default_microseconds;
  json["confidence"] = result.confidence;
  json["gpu"] = tuned.gpu;
  json["date"] = result.date;
  return json;
}

nlohmann::ordered_json grid_json(const Grid& grid) { return {grid.x, grid.y, grid.z}; }

nlohmann::ordered_json json_of(const std::vector<Considered>& considered) {
  auto rows = nlohmann::ordered_json::array();
  for (const Considered& one : considered)
    rows.push_back({{"variant", one.variant.name()}, {"refusals", one.refusals}});
  return rows;
}

nlohmann::ordered_json json_of(const ShortDecision& few) {
  nlohmann::ordered_json json{{"most_queries", few.problem.seqlen_q},
                              {"variant", few.serving.variant.name()},
                              {"source", origin_text(few.serving.origin)},
                              {"grid", grid_json(few.launch.grid)},
                              {"workspace_bytes", few.launch.workspace_bytes}};
  if (few.launch.combines()) json["combine"] = few.merging.variant.name();
  return json;
}

/// `all`: also variants that are refused for several reasons.
Explanation explanation(const Problem& problem, const Device& device, bool all) {
  const ReadyKernels ready;
  const Decision decision = decide(problem, device, ready, default_tuned_tables(ready));
  nlohmann::ordered_json json{{"problem", problem.text()},
                              {"device", device.name},
                              {"served", decision.served()},
                              {"variant", decision.serving.variant.name()},
                              {"source", origin_text(decision.serving.origin)}};
  if (decision.launch) {
    json["grid"] = grid_json(decision.launch->grid);
    json["threads"] = decision.launch->threads;
    json["shared_bytes"] = decision.launch->shared_bytes;
    if (decision.few) json["short_sequences"] = json_of(*decision.few);
  } else {
    json["refusals"] = decision.refusals;
  }
  json["tuned"] = tuned_json(decision.serving.tuned);
  json["passed_over"] = json_of(decision.own.passed_over);
  json["considered"] = json_of(decision.considered);
  std::string text = decision_text(decision, all ? "" : "--all shows them");
  if (problem.expressions.mask != 0) {
    using expression::Visibility;
    const MaskBlocks blocks = mask_blocks(problem, decision.serving.variant.B_r, decision.serving.variant.B_c);
    json["blocks"] = {{"dead", blocks.share(Visibility::none)},
                      {"full", blocks.share(Visibility::all)},
                      {"partial", blocks.share(Visibility::some)},
                      {"told", blocks.are_told}};
    text += blocks.text();
  }
  return {.served = decision.served(), .json = json, .text = std::move(text)};
}

/// A kernel and where it comes from.
std::string kernel_text(const Served& kernel) {
  return fmt::format("{} {}",
                     kernel.origin == Origin::ready ? "the ready" : "NVRTC, at first use:", kernel.variant.name());
}

/// For what no table has rows of.
template <class AnyProblem>
Served untuned(const AnyProblem& problem, const Device& device) {
  return serve(ReadyKernels(), {}, problem, device);
}

std::string grid_text(const Grid& grid) { return fmt::format("grid {} x {} x {}", grid.x, grid.y, grid.z); }

/// Into how many parts the keys fall, and on whose word.
std::string parts_text(const DecodeProblem& problem, const DecodePlan& launch) {
  if (launch.splits > 0) {
    return fmt::format("{} of each sequence{}{}", counted(launch.splits, "part"),
                       problem.splits > 0 ? ", as asked for" : "",
                       launch.grid.cluster > 1 ? ", a cluster of thread blocks that merges them itself"
                       : problem.splits == 0 && !problem.one_length() ? ", which has too few keys for more"
                                                                      : "");
  }
  return fmt::format(
      "{} of the whole batch's keys, equally long whatever the sequences' lengths, which are known on the GPU alone",
      counted(launch.parts, "part"));
}

/// What a GPU holds, which automatic parts are to fill.
std::string room_text(const DecodeProblem& problem, const DecodePlan& launch, const Device& device) {
  const int each = blocks_per_multiprocessor(launch.variant, device);
  return fmt::format("{} for each sequence ({} of {}, {} to a tile); the GPU holds {} at a time, {} on each of {}",
                     counted(launch.grid.x, "tile"), counted(problem.heads_kv, "K/V head"),
                     counted(problem.rows(), "row"), launch.variant.B_r,
                     counted(1LL * each * device.multiprocessors, "thread block"), each,
                     counted(device.multiprocessors, "multiprocessor"));
}

std::string text_of(const DecodeProblem& problem, const Device& device, const Served& kernel,
                    const DecodePlan& launch) {
  std::string text = fmt::format("{} on {}\n  served by {}\n", problem.text(), device.name, kernel_text(kernel));
  text += kernel.tuned.text() + kernel.frozen_text();
  text += fmt::format("  {}, {} threads a block, {} of shared memory\n", grid_text(launch.grid), launch.threads,
                      bytes_text(launch.shared_bytes));
  text += fmt::format("  {}\n  {}\n", room_text(problem, launch, device), parts_text(problem, launch));
  if (launch.combines()) {
    const Served combine = untuned(problem.merge(), device);
    text += fmt::format("  merged by {}, {}, a {} for each row, through {} of workspace\n", kernel_text(combine),
                        grid_text(combine_grid(launch, combine.variant)), launch.warp_rows ? "warp" : "block",
                        bytes_text(static_cast<double>(launch.workspace_bytes)));
  }
  if (problem.appends()) {
    const Served store = untuned(problem.store(), device);
    text += fmt::format("  after {}, {}, which stores the new keys\n", kernel_text(store),
                        grid_text(plan(store.variant, problem.store()).grid));
  }
  if (problem.head_dim < launch.variant.head_dim) {
    text += fmt::format("  head_dim {} is padded to {} with zeros\n", problem.head_dim, launch.variant.head_dim);
  }
  return text;
}

nlohmann::ordered_json json_of(const DecodeProblem& problem, const Device& device, const Served& kernel,
                               const DecodePlan& launch) {
  nlohmann::ordered_json json{
      {"problem", problem.text()},
      {"device", device.name},
      {"served", true},
      {"variant", kernel.variant.name()},
      {"source", origin_text(kernel.origin)},
      {"grid", grid_json(launch.grid)},
      {"threads", launch.threads},
      {"shared_bytes", launch.shared_bytes},
      {"splits", launch.splits},
      {"cluster", launch.grid.cluster},
      {"parts", launch.parts},
      {"blocks_at_once", blocks_per_multiprocessor(launch.variant, device) * device.multiprocessors},
      {"workspace_bytes", launch.workspace_bytes},
      {"tuned", tuned_json(kernel.tuned)}};
  if (launch.combines()) {
    const Variant combine = untuned(problem.merge(), device).variant;
    json["combine"] = combine.name();
    json["combine_grid"] = grid_json(combine_grid(launch, combine));
  }
  if (problem.appends()) json["store"] = untuned(problem.store(), device).variant.name();
  return json;
}

template <class AnyProblem>
Explanation unserved(const AnyProblem& problem, const Device& device, const std::vector<std::string>& reasons) {
  return {.served = false,
          .json = {{"problem", problem.text()}, {"device", device.name}, {"served", false}, {"refusals", reasons}},
          .text = fmt::format("{} on {}\n  no kernel can serve it: {}\n", problem.text(), device.name,
                              fmt::join(reasons, "; "))};
}

Explanation explanation(const DecodeProblem& problem, const Device& device, bool /*all*/) {
  const ReadyKernels ready;
  const Served kernel = serve(ready, default_tuned_tables(ready), problem, device);
  if (const std::vector<std::string> reasons = refusals(kernel.variant, problem, device); !reasons.empty()) {
    return unserved(problem, device, reasons);
  }
  const DecodePlan launch = plan(kernel.variant, problem, device);
  return {.served = true,
          .json = json_of(problem, device, kernel, launch),
          .text = text_of(problem, device, kernel, launch)};
}

/// What a call for gradients launches before the kernel that gives dK and dV, and after it.
struct GradientLaunches {
  Served rows;
  Launch rows_launch;
  Served last;
  Launch last_launch;
  const char* purpose;  ///< of the last
};

GradientLaunches launches_around(const BackwardProblem& problem, const Device& device, bool adds) {
  const Served rows = untuned(problem.rows(), device);
  const Served last = adds ? untuned(problem.conversion(), device) : untuned(problem.queries(), device);
  return {
      .rows = rows,
      .rows_launch = plan(rows.variant, problem.rows()),
      .last = last,
      .last_launch = adds ? plan(last.variant, problem.conversion()) : plan(last.variant, problem.queries(), device),
      .purpose = adds ? "makes dq of its sums" : "gives dq"};
}

Explanation explanation(const BackwardProblem& problem, const Device& device, bool /*all*/) {
  const ReadyKernels ready;
  const Served keys = serve(ready, default_tuned_tables(ready), problem, device);
  if (const std::vector<std::string> reasons = refusals(keys.variant, problem, device); !reasons.empty()) {
    return unserved(problem, device, reasons);
  }
  const Launch launch = plan(keys.variant, problem, device);
  const BackwardWorkspace workspace = workspace_of(keys.variant, problem, device);
  const GradientLaunches others = launches_around(problem, device, workspace.dq_bytes > 0);
  std::string text = fmt::format("{} on {}\n  dk and dv by {}\n", problem.text(), device.name, kernel_text(keys));
  text += keys.tuned.text() + keys.frozen_text();
  text += fmt::format("  {}, {} threads a block, {} of shared memory\n", grid_text(launch.grid), launch.threads,
                      bytes_text(launch.shared_bytes));
  text += fmt::format("  after {}, {}\n  before {}, {}, which {}\n  in a workspace of {}\n", kernel_text(others.rows),
                      grid_text(others.rows_launch.grid), kernel_text(others.last), grid_text(others.last_launch.grid),
                      others.purpose, bytes_text(static_cast<double>(workspace.bytes())));
  return {.served = true,
          .json = {{"problem", problem.text()},
                   {"device", device.name},
                   {"served", true},
                   {"variant", keys.variant.name()},
                   {"source", origin_text(keys.origin)},
                   {"grid", grid_json(launch.grid)},
                   {"threads", launch.threads},
                   {"shared_bytes", launch.shared_bytes},
                   {"rows", others.rows.variant.name()},
                   {"rows_grid", grid_json(others.rows_launch.grid)},
                   {"last", others.last.variant.name()},
                   {"last_grid", grid_json(others.last_launch.grid)},
                   {"workspace_bytes", workspace.bytes()},
                   {"tuned", tuned_json(keys.tuned)}},
          .text = std::move(text)};
}

Exit explain(const ExplainOptions& options, auto problem) {
  require_sound(problem);
  problem.expressions = read_expressions({.score = options.score.empty() ? nullptr : options.score.c_str(),
                                          .mask = options.mask.empty() ? nullptr : options.mask.c_str()});
  if constexpr (requires { problem.causal; }) {
    take_limits(problem);
    set_window(problem, problem.window_left, problem.window_right);
  }
  const Explanation said = explanation(problem, device_for(options.gpu), options.all);
  if (options.json) {
    print_json(said.json);
  } else {
    fmt::print("{}", said.text);
  }
  return said.served ? Exit::done : Exit::check_failed;
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
          ->check(CLI::NonNegativeNumber)
          ->excludes("--decode");
  app->add_option("--total-k", options->total_k, "Its keys, where they are in no pages [default: the most]")
      ->type_name("INT")
      ->check(CLI::NonNegativeNumber)
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
  app->add_flag("--json", options->json, "Print the decision as JSON");
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
