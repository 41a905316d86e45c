// attune bench: how fast the kernels are on this GPU.
#include <fmt/format.h>

#include <memory>

#include "generator/check.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cli/benchmark.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/specs.hpp"
#include "runtime/text.hpp"

namespace attune::cli {
namespace {

struct Options {
  std::vector<std::string> specs;
  std::string cases = "quick";
  ProblemOptions problem;
  bool one_problem = false;
  int launches = 30;
  std::uint64_t seed = 1;
  bool json = false;
};

/// Loads what to measure: the kernels of the specs, compiled for this GPU, or the embedded ones that fit it. Returns
/// nothing when a spec is bad.
std::optional<std::vector<LoadedKernel>> load_kernels(const Gpu& gpu, const std::vector<std::string>& specs) {
  std::vector<LoadedKernel> kernels;
  const Arch arch = arch_of(gpu.device);
  if (specs.empty()) {
    for (const EmbeddedKernel& kernel : embedded_kernels()) {
      if (family_of(kernel.variant).operation != Operation::prefill) continue;
      if (check_arch(kernel.variant, arch).empty()) {
        kernels.emplace_back(gpu, kernel.fatbin, kernel.variant, std::string(kernel.name));
      }
    }
    return kernels;
  }
  const std::optional<Collection> request = load_specs_of({Operation::prefill}, specs);
  if (!request) return std::nullopt;
  const std::optional<std::vector<Source>> sources = emit_sources(*request);
  if (!sources) return std::nullopt;
  const Compiler compiler;
  const std::vector<Built> built = build(compiler, *sources, {arch}, 0);
  report_failures(built);
  for (const Built& one : built) {
    if (one.ok()) kernels.emplace_back(gpu, one.compiled.image, one.source->variant, one.source->name);
  }
  return kernels;
}

Exit bench(const Options& options) {
  const Found<Gpu> gpu = find_gpu();
  if (!gpu) {
    fmt::print(stderr, "attune: bench needs a GPU: {}\n", gpu.problem);
    return Exit::machine_lacks;
  }
  if (options.one_problem && !report_unsound(options.problem.problem())) return Exit::bad_usage;
  const std::optional<std::vector<LoadedKernel>> kernels = load_kernels(*gpu, options.specs);
  if (!kernels) return Exit::bad_usage;

  const std::vector<Problem> problems =
      options.one_problem ? std::vector{options.problem.problem()} : named_cases(options.cases);
  if (!options.json) fmt::print("{}, medians of {} launches\n", gpu->device.name, options.launches);
  auto rows = nlohmann::ordered_json::array();
  Table table({{"problem"}, {"variant"}, {"time", Align::right}, {"TFLOP/s", Align::right}});
  for (const Problem& problem : problems) {
    for (const Timing& timing : measure(*gpu, *kernels, problem, options.launches, options.seed)) {
      table.add({problem.text(), timing.variant, seconds_text(timing.seconds), fmt::format("{:.1f}", timing.tflops)});
      rows.push_back({{"problem", problem.text()},
                      {"variant", timing.variant},
                      {"seconds", timing.seconds},
                      {"fastest_seconds", timing.fastest},
                      {"tflops", timing.tflops}});
    }
  }
  if (options.json) {
    print_json({{"device", gpu->device.name}, {"launches", options.launches}, {"results", rows}});
  } else {
    fmt::print("{}", table.text());
  }
  if (rows.empty()) fmt::print(stderr, "attune: no kernel serves any of these problems on this GPU\n");
  return rows.empty() ? Exit::check_failed : Exit::done;
}

}  // namespace

Command bench_command(CLI::App& root) {
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("bench", "Time kernels on this GPU: the embedded ones, or those of a spec");
  add_spec_argument(*app, options->specs, false);
  app->add_option("--cases", options->cases, "quick, prefill (36 shapes of 16K tokens) or gqa")
      ->check(CLI::IsMember({"quick", "prefill", "gqa"}))
      ->capture_default_str();
  app->add_option("--launches", options->launches, "Launches of each kernel")
      ->check(CLI::Range(3, 10000))
      ->capture_default_str();
  app->add_option("--seed", options->seed, "Of the random inputs")->capture_default_str();
  app->add_flag("--json", options->json, "Print the table as JSON");
  options->problem.add_sizes(*app);
  options->problem.add_choices(*app);
  app->footer(
      R"(Normally distributed inputs; every launch finds a cold L2; the launches of the variants take turns. TFLOP/s
counts 2 * batch * heads_q * seqlen_q * seqlen_k * (head_dim + head_dim_v), halved when causal. Naming any size,
--dtype, --head-dim, --head-dim-v or --causal measures that one problem.
Examples:
  attune bench
  attune bench specs/quickstart.yaml --head-dim 64 --batch 4 --heads-q 32 --seqlen-q 4096
  attune bench --cases prefill --json)");
  return {.app = app, .run = [options, app] {
            options->one_problem = ProblemOptions::given(*app) || ProblemOptions::choices_given(*app);
            return bench(*options);
          }};
}

}  // namespace attune::cli
