// attune explain: which kernel serves a problem, which were refused and why.
#include <fmt/format.h>

#include <memory>

#include "generator/check.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/cli/text.hpp"
#include "runtime/embedded.hpp"
#include "runtime/plan.hpp"

namespace attune::cli {
namespace {

struct Options {
  ProblemOptions problem;
  std::string arch;
  bool all = false;
  bool json = false;
};

/// The decision for one problem on one device.
struct Decision {
  std::vector<Considered> considered;
  std::optional<Variant> embedded;    ///< the embedded one that serves
  Variant own;                        ///< what NVRTC would build for it
  Variant serving;                    ///< the one, else the other
  std::vector<std::string> refusals;  ///< why not even that one can serve
};

Decision decide(const Problem& problem, const Device& device) {
  std::vector<Variant> candidates;
  for (const EmbeddedKernel& kernel : embedded_kernels()) candidates.push_back(kernel.variant);
  Decision decision{.considered = consider(candidates, problem, device),
                    .embedded = choose(candidates, problem, device),
                    .own = default_variant(problem.dtype, problem.head_dim, problem.causal, device.shared_per_block),
                    .serving = {},
                    .refusals = {}};
  decision.serving = decision.embedded.value_or(decision.own);
  decision.refusals = refusals(decision.serving, problem, device);
  return decision;
}

void print_decision_json(const Problem& problem, const Device& device, const Decision& decision) {
  auto considered = nlohmann::ordered_json::array();
  for (const Considered& one : decision.considered) {
    considered.push_back({{"variant", one.variant.name()}, {"refusals", one.refusals}});
  }
  nlohmann::ordered_json json{{"problem", problem.text()},
                              {"device", device.name},
                              {"served", decision.refusals.empty()},
                              {"variant", decision.serving.name()},
                              {"source", decision.embedded ? "embedded" : "nvrtc"}};
  if (decision.refusals.empty()) {
    const Plan launch = plan(decision.serving, problem, device);
    json["grid"] = {launch.grid.x, launch.grid.y, launch.grid.z};
    json["threads"] = launch.threads;
    json["shared_bytes"] = launch.shared_bytes;
  } else {
    json["refusals"] = decision.refusals;
  }
  json["considered"] = considered;
  print_json(json);
}

void print_decision(const Problem& problem, const Device& device, const Decision& decision, bool all) {
  fmt::print("{} on {}\n", problem.text(), device.name);
  if (!decision.refusals.empty()) {
    fmt::print("  no kernel can serve it: {}\n", fmt::join(decision.refusals, "; "));
  } else {
    const Plan launch = plan(decision.serving, problem, device);
    fmt::print("  {} {}\n", decision.embedded ? "served by embedded" : "NVRTC would build at first use",
               decision.serving.name());
    fmt::print("  grid {} x {} x {}, {} threads a block, {} of shared memory\n", launch.grid.x, launch.grid.y,
               launch.grid.z, launch.threads, bytes_text(launch.shared_bytes));
    if (problem.head_dim < decision.serving.head_dim) {
      fmt::print("  head_dim {} is padded to {} with zeros\n", problem.head_dim, decision.serving.head_dim);
    }
    if (decision.own.head_dim < decision.serving.head_dim) {
      fmt::print("  the compile policy 'exact' would have NVRTC build {} instead\n", decision.own.name());
    }
  }
  Table table({{"embedded variant"}, {"verdict"}});
  std::size_t left_out = 0;
  for (const Considered& one : decision.considered) {
    if (one.refusals.empty()) {
      table.add({one.variant.name(), one.variant == decision.serving ? "serves" : "could serve"});
    } else if (all || one.refusals.size() == 1) {
      table.add({one.variant.name(), fmt::format("{}", fmt::join(one.refusals, "; "))});
    } else {
      ++left_out;
    }
  }
  if (!table.empty()) fmt::print("\n{}", table.text());
  if (left_out > 0) {
    fmt::print("and {} refused for more than one reason (--all shows them)\n",
               counted(static_cast<long long>(left_out), "variant"));
  }
}

Exit explain(const Options& options) {
  const Problem problem = options.problem.problem();
  if (!report_unsound(problem)) return Exit::bad_usage;
  Device device;
  if (!options.arch.empty()) {
    device = device_of(*find_arch(options.arch));
  } else if (const Found<Gpu> gpu = find_gpu()) {
    device = gpu->device;
  } else {
    fmt::print(stderr, "attune: no GPU to explain for ({}); name one with --arch, sm_90 say\n", gpu.problem);
    return Exit::machine_lacks;
  }
  const Decision decision = decide(problem, device);
  if (options.json) {
    print_decision_json(problem, device, decision);
  } else {
    print_decision(problem, device, decision, options.all);
  }
  return decision.refusals.empty() ? Exit::done : Exit::check_failed;
}

}  // namespace

Command explain_command(CLI::App& root) {
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("explain", "Which kernel would serve a problem, and why not the others");
  options->problem.add_sizes(*app);
  options->problem.add_choices(*app);
  add_arch_option(*app, options->arch, "Explain for this architecture [default: this machine's GPU]");
  app->add_flag("--all", options->all, "Also list variants refused for several reasons");
  app->add_flag("--json", options->json, "Print the decision as JSON");
  app->footer(R"(Examples:
  attune explain --dtype bf16 --head-dim 128 --heads-q 32 --heads-kv 8 --seqlen-q 4096 --causal
  attune explain --head-dim 72 --seqlen-q 1000 --arch sm_86 --all)");
  return {.app = app, .run = [options] { return explain(*options); }};
}

}  // namespace attune::cli
