// attune explain: which kernel serves a problem, which were refused and why.
#include <fmt/format.h>

#include <memory>

#include "runtime/choice/decision.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/explain_decode.hpp"
#include "runtime/cli/explain_tuned.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"

namespace attune::cli {
namespace {

struct ExplainOptions {
  ProblemOptions problem;
  DecodeOptions decode;
  std::string gpu;
  bool all = false;
  bool json = false;
};

nlohmann::ordered_json json_of(const std::vector<Considered>& considered) {
  auto rows = nlohmann::ordered_json::array();
  for (const Considered& one : considered)
    rows.push_back({{"variant", one.variant.name()}, {"refusals", one.refusals}});
  return rows;
}

void print_decision_json(const Decision& decision) {
  nlohmann::ordered_json json{{"problem", decision.problem.text()},
                              {"device", decision.device.name},
                              {"served", decision.served()},
                              {"variant", decision.serving.name()},
                              {"source", origin_text(decision.origin)}};
  if (decision.launch) {
    json["grid"] = {decision.launch->grid.x, decision.launch->grid.y, decision.launch->grid.z};
    json["threads"] = decision.launch->threads;
    json["shared_bytes"] = decision.launch->shared_bytes;
  } else {
    json["refusals"] = decision.refusals;
  }
  json["tuned"] = tuned_json(decision.tuned);
  json["passed_over"] = json_of(decision.passed_over);
  json["considered"] = json_of(decision.considered);
  print_json(json);
}

Exit explain(const ExplainOptions& options, const CLI::App& app) {
  const Problem problem = options.problem.problem();
  if (!options.decode.decode) require_sound(problem);
  const Device device = device_for(options.gpu);
  if (options.decode.decode) {
    return explain_decode(options.decode.problem(options.problem, app), device, options.json);
  }
  const ReadyKernels ready;
  const Decision decision = decide(problem, device, ready, default_tuned_tables(ready));
  if (options.json) {
    print_decision_json(decision);
  } else {
    fmt::print("{}", decision_text(decision, options.all ? "" : "--all shows them"));
  }
  return decision.served() ? Exit::done : Exit::check_failed;
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
  app->add_flag("--all", options->all, "Also list variants refused for several reasons");
  app->add_flag("--json", options->json, "Print the decision as JSON");
  app->footer(R"(Examples:
  attune explain --dtype bf16 --head-dim 128 --heads-q 32 --heads-kv 8 --seqlen-q 4096 --causal
  attune explain --head-dim 72 --seqlen-q 1000 --gpu l40s --all
  attune explain --decode --batch 8 --heads-q 32 --heads-kv 8 --seqlen-k 32768 --page-size 64 --lengths-on-device)");
  return {.app = app, .run = [options, app] { return explain(*options, *app); }};
}

}  // namespace attune::cli
