// attune run: generate, compile, launch, compare with the reference.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "generator/check.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/selfcheck.hpp"
#include "runtime/cli/verify.hpp"

namespace attune::cli {
namespace {

struct Options {
  std::vector<std::string> specs;
  std::string device = "auto";
  ProblemOptions problem;
  bool one_problem = false;  ///< sizes were given: check that problem alone
  std::uint64_t seed = 1;
  int jobs = 0;
  bool json = false;
};

/// The problems that a variant is checked on. Empty when one was named that is unsound.
std::optional<std::vector<Problem>> problems_for(const Variant& variant, const Options& options) {
  if (!options.one_problem) return small_problems(variant);
  const Problem problem = options.problem.problem_for(variant);
  if (!report_unsound(problem)) return std::nullopt;
  return std::vector{problem};
}

/// Launches whatever compiled for the GPU and compares.
std::optional<std::vector<Verdict>> verify_all(const Gpu& gpu, const std::vector<Built>& built,
                                               const Options& options) {
  std::vector<Verdict> verdicts;
  for (const Built& one : built) {
    if (!one.ok()) continue;
    const auto problems = problems_for(one.source->variant, options);
    if (!problems) return std::nullopt;
    verdicts.push_back(verify(gpu, one, *problems, options.seed));
  }
  return verdicts;
}

/// Says in the report and in the JSON what a machine without a GPU leaves unchecked.
Exit without_gpu(const Options& options, const std::string& problem, nlohmann::ordered_json& json) {
  const SelfCheck check = check_reference(options.seed);
  json["reference_check"] = {{"ok", check.ok}, {"cases", check.cases}, {"max_error", check.max_error}};
  json["not_run"] = "the kernels: " + problem;
  if (!options.json) {
    fmt::print("\nCPU reference against an independent formula: {} in {} (largest difference {:.1e})\n",
               check.ok ? "agrees" : "DISAGREES", counted(check.cases, "case"), check.max_error);
    fmt::print("Not run: the kernels themselves, so their numbers are unchecked here ({})\n", problem);
  }
  if (!check.ok) return Exit::check_failed;
  return options.device == "gpu" ? Exit::machine_lacks : Exit::done;
}

Exit run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const std::optional<Collection> request = load_specs(options.specs);
  if (!request) return Exit::bad_usage;
  const std::optional<std::vector<Source>> sources = emit_sources(*request);
  if (!sources) return Exit::bad_usage;
  const std::chrono::duration<double> generation = std::chrono::steady_clock::now() - start;
  if (!options.json) {
    fmt::print("{}generated {} in {}\n", cost_report(*request),
               counted(static_cast<long long>(sources->size()), "source"), seconds_text(generation.count()));
  }

  const Found<Compiler> compiler = find_compiler();
  if (!compiler) {
    fmt::print(stderr, "attune: nothing was compiled or run: {}\n", compiler.problem);
    return Exit::machine_lacks;
  }
  Found<Gpu> gpu{.value = nullptr, .problem = "--device none was asked for"};
  if (options.device != "none") gpu = find_gpu();
  const std::vector<Arch> archs =
      gpu ? std::vector{arch_of(gpu->device)} : std::vector{*find_arch("sm_80"), *find_arch("sm_90")};
  const std::vector<Built> built = build(*compiler, *sources, archs, options.jobs);

  nlohmann::ordered_json json{{"refused", refusals_json(*request)},
                              {"generation_seconds", generation.count()},
                              {"nvrtc", compiler->version()},
                              {"kernels", resource_json(built)}};
  if (!options.json) fmt::print("\nNVRTC {}\n{}", compiler->version(), resource_table(built));
  Exit exit = report_failures(built) ? Exit::done : Exit::check_failed;
  if (gpu) {
    const std::optional<std::vector<Verdict>> verdicts = verify_all(*gpu, built, options);
    if (!verdicts) return Exit::bad_usage;
    if (std::ranges::any_of(*verdicts, [](const Verdict& verdict) { return !verdict.ok(); })) {
      exit = Exit::check_failed;
    }
    for (const Source& source : *sources) {
      for (const Refusal& refusal : check_arch(source.variant, archs.front())) {
        fmt::print(stderr, "not run: {}: {}\n", source.name, refusal.message);
      }
    }
    json["device"] = gpu->device.name;
    json["checks"] = verdict_json(*verdicts);
    if (!options.json) fmt::print("\n{}\n{}", gpu->device.name, verdict_table(*verdicts));
    report_disagreements(*verdicts);
  } else {
    const Exit checked = without_gpu(options, gpu.problem, json);
    if (exit == Exit::done) exit = checked;
  }
  if (options.json) print_json(json);
  return exit;
}

}  // namespace

Command run_command(CLI::App& root) {
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("run", "Generate, compile, launch and compare with the float64 reference");
  add_spec_argument(*app, options->specs);
  app->add_option("--device", options->device, "auto: the GPU if there is one; gpu: fail without; none: compile only")
      ->check(CLI::IsMember({"auto", "gpu", "none"}))
      ->capture_default_str();
  app->add_option("--seed", options->seed, "Of the random inputs")->capture_default_str();
  app->add_option("--jobs", options->jobs, "Compilations at a time [default: one for each core]")
      ->check(CLI::PositiveNumber)
      ->option_text("N");
  app->add_flag("--json", options->json, "Print the tables as JSON");
  options->problem.add_sizes(*app);
  app->footer(R"(Each variant is launched on a few small problems, or on the one whose sizes are given; outputs are
poisoned beforehand and compared with float64 on the CPU.
Examples:
  attune run specs/quickstart.yaml
  attune run specs/quickstart.yaml --batch 2 --heads-q 32 --heads-kv 8 --seqlen-q 1000
  attune run specs/prefill_sm80.yaml --device none --json)");
  return {.app = app, .run = [options, app] {
            options->one_problem = ProblemOptions::given(*app);
            return run(*options);
          }};
}

}  // namespace attune::cli
