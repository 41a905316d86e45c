// attune bench: how fast the kernels are on this GPU.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "generator/check.hpp"
#include "generator/command_words.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/contest.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/specs.hpp"
#include "runtime/cli/suites.hpp"
#include "runtime/cli/verify.hpp"
#include "runtime/operations/backward/plan.hpp"

namespace attune::cli {
namespace {

constexpr int warm_up_launches = 3;  // of each kernel

struct BenchOptions {
  std::vector<std::string> specs;
  std::string cases = "quick";
  ProblemOptions sizes;
  DecodeOptions decode;
  std::optional<tune::AnyProblem> problem;  ///< that the command line describes, in place of the cases
  int launches = 30;
  std::uint64_t seed = 1;
  bool json = false;
};

/// Kernels of attention and of its gradients, and those that calls of them launch besides.
struct Kernels {
  std::vector<LoadedKernel> attention;
  std::vector<LoadedKernel> companions;
};

constexpr std::array timed_operations{Operation::prefill, Operation::decode, Operation::backward};
constexpr std::array companion_operations{Operation::combine, Operation::backward_rows, Operation::backward_queries,
                                          Operation::backward_convert};

struct Timing {
  std::string variant;
  double seconds = 0;  ///< median
  double fastest = 0;
};

Kernels load_embedded(const Gpu& gpu) {
  const Arch arch = arch_of(gpu.device);
  Kernels kernels;
  for (const ReadyKernel& kernel : embedded_kernels()) {
    const Operation operation = family_of(kernel.variant).operation;
    const bool goes_along = std::ranges::find(companion_operations, operation) != companion_operations.end();
    if (!goes_along && std::ranges::find(timed_operations, operation) == timed_operations.end()) continue;
    if (!check_arch(kernel.variant, arch).empty()) continue;
    (goes_along ? kernels.companions : kernels.attention)
        .emplace_back(gpu.driver, kernel.variant, gpu.device, kernel.fatbin, std::string(kernel.name));
  }
  return kernels;
}

std::vector<LoadedKernel> load_all(const Gpu& gpu, const Compiler& compiler, const std::vector<Source>& sources) {
  const std::vector<Arch> archs{arch_of(gpu.device)};
  const std::vector<Built> built = [&] {
    Progress progress(stderr, "kernels compiled", kernels_to_build(sources, archs));
    return build(compiler, sources, archs, 0, [&](const Built&) { progress.add(); });
  }();
  report_failures(built);
  std::vector<LoadedKernel> kernels;
  for (const Built& one : built) {
    if (one.ok())
      kernels.emplace_back(gpu.driver, one.source->variant, gpu.device, one.compiled.image, one.source->name);
  }
  return kernels;
}

/// What to measure: the kernels of the specs, compiled for this GPU, or the embedded ones that fit it. Throws
/// Failure.
Kernels load_kernels(const Gpu& gpu, const std::vector<std::string>& specs) {
  if (specs.empty()) return load_embedded(gpu);
  const std::vector<Source> sources =
      emit_sources(load_specs_of({timed_operations.begin(), timed_operations.end()}, specs));
  const Compiler compiler;
  return Kernels{.attention = load_all(gpu, compiler, sources),
                 .companions = load_all(gpu, compiler, companion_sources(sources, gpu.device))};
}

/// The kernels that serve the problem and pad head_dim and V's least.
template <class AnyProblem>
std::vector<const LoadedKernel*> serving(const std::vector<LoadedKernel>& kernels, const AnyProblem& problem,
                                         const Device& device) {
  std::vector<const LoadedKernel*> chosen;
  int least = std::numeric_limits<int>::max();
  for (const LoadedKernel& kernel : kernels) {
    const Variant& variant = kernel.variant;
    if (variant.columns() > least || !refusals(variant, problem, device).empty()) continue;
    if (variant.columns() < least) chosen.clear();
    least = variant.columns();
    chosen.push_back(&kernel);
  }
  return chosen;
}

/// The kernel for one of a call's further launches; null where it did not compile.
template <class AnyProblem>
const LoadedKernel* companion(const std::vector<LoadedKernel>& kernels, const AnyProblem& problem,
                              const Device& device) {
  const std::vector<const LoadedKernel*> serve = serving(kernels, problem, device);
  return serve.empty() ? nullptr : serve.front();
}

using Companions = std::vector<const LoadedKernel*>;

Companions companions(const std::vector<LoadedKernel>& /*kernels*/, const Problem& /*problem*/,
                      const LoadedKernel& /*kernel*/) {
  return {};
}

/// What merges the parts of its keys.
Companions companions(const std::vector<LoadedKernel>& kernels, const DecodeProblem& problem,
                      const LoadedKernel& kernel) {
  return {companion(kernels, problem.merge(), kernel.device)};
}

/// What comes before, and what gives dQ.
Companions companions(const std::vector<LoadedKernel>& kernels, const BackwardProblem& problem,
                      const LoadedKernel& kernel) {
  const bool adds = workspace_of(kernel.variant, problem, kernel.device).dq_bytes > 0;
  return {companion(kernels, problem.rows(), kernel.device),
          adds ? companion(kernels, problem.conversion(), kernel.device)
               : companion(kernels, problem.queries(), kernel.device)};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Times every kernel that serves the problem with the least padding, in the order given.
std::vector<Timing> measure(const Gpu& gpu, const Kernels& kernels, const tune::AnyProblem& problem, int launches,
                            std::uint64_t seed) {
  std::vector<const LoadedKernel*> chosen;
  std::vector<FixedKernels> contestants;
  for (const LoadedKernel* kernel :
       std::visit([&](const auto& one) { return serving(kernels.attention, one, gpu.device); }, problem)) {
    const Companions others =
        std::visit([&](const auto& one) { return companions(kernels.companions, one, *kernel); }, problem);
    if (std::ranges::find(others, nullptr) != others.end()) continue;
    chosen.push_back(kernel);
    contestants.push_back({kernel});
    for (const LoadedKernel* other : others) contestants.back().add(*other);
  }
  if (chosen.empty()) return {};
  std::vector<int> order;
  for (int i = 0; i < warm_up_launches + launches; ++i) {
    for (std::size_t which = 0; which < chosen.size(); ++which) order.push_back(static_cast<int>(which));
  }
  auto trial = std::visit([&](const auto& one) { return make_trial(one, seed); }, problem);
  const std::vector<double> all = Contest(gpu, std::move(trial), contestants).time(order);
  std::vector<Timing> timings;
  for (std::size_t which = 0; which < chosen.size(); ++which) {
    std::vector<double> seconds;
    for (std::size_t i = warm_up_launches * chosen.size() + which; i < all.size(); i += chosen.size()) {
      seconds.push_back(all[i]);
    }
    timings.push_back({.variant = chosen[which]->variant.name(),
                       .seconds = median(seconds),
                       .fastest = *std::ranges::min_element(seconds)});
  }
  return timings;
}

Exit bench(const BenchOptions& options) {
  if (options.problem) std::visit([](const auto& one) { require_sound(one); }, *options.problem);
  const Found<Gpu> gpu = find_gpu();
  if (!gpu) throw Failure(Exit::machine_lacks, "bench needs a GPU: " + gpu.problem);
  const Kernels kernels = load_kernels(*gpu, options.specs);

  const std::vector<tune::AnyProblem> problems = options.problem ? std::vector{*options.problem} : suite(options.cases);
  if (!options.json) fmt::print("{}, medians of {} launches\n", gpu->device.name, options.launches);
  auto rows = nlohmann::ordered_json::array();
  Table table({{"problem"}, {"variant"}, {"time", Align::right}, {"speed", Align::right}});
  std::optional<Progress> progress;
  progress.emplace(stderr, "problems measured", static_cast<long long>(problems.size()));
  for (const tune::AnyProblem& problem : problems) {
    for (const Timing& timing : measure(*gpu, kernels, problem, options.launches, options.seed)) {
      const tune::Speed speed = tune::speed_of(problem, timing.seconds);
      table.add({text_of(problem), timing.variant, seconds_text(timing.seconds),
                 fmt::format("{:.1f} {}", speed.value, speed.unit)});
      rows.push_back({{"problem", text_of(problem)},
                      {"variant", timing.variant},
                      {"seconds", timing.seconds},
                      {"fastest_seconds", timing.fastest},
                      {"speed", speed.value},
                      {"unit", speed.unit}});
    }
    progress->add();
  }
  progress.reset();
  if (rows.empty()) throw Failure(Exit::check_failed, "no kernel serves any of these problems on this GPU");
  if (options.json) {
    print_json({{"device", gpu->device.name}, {"launches", options.launches}, {"results", rows}});
  } else {
    fmt::print("{}", table.text());
  }
  return Exit::done;
}

}  // namespace

Command bench_command(CLI::App& root) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* app = root.add_subcommand("bench", "Time kernels on this GPU: the embedded ones, or those of a spec");
  add_spec_argument(*app, options->specs, false);
  app->add_option("--cases", options->cases, suite_help())->check(one_of(suite_names()))->capture_default_str();
  app->add_option("--launches", options->launches, "Launches of each kernel")
      ->check(CLI::Range(3, 10000))
      ->capture_default_str();
  add_seed_option(*app, options->seed, "Of the random inputs");
  app->add_flag("--json", options->json, "Print the table as JSON");
  options->sizes.add_sizes(*app);
  options->sizes.add_choices(*app);
  options->decode.add(*app);
  app->get_option("--page-size")->needs("--decode");
  app->footer(
      R"(Normally distributed inputs; every launch finds a cold L2; the launches of the variants take turns. TFLOP/s
counts 2 * batch * heads_q * seqlen_q * seqlen_k * (head_dim + head_dim_v), halved when causal, for gradients with
3 * head_dim + 2 * head_dim_v in its place; GB/s the bytes of keys and values. Naming --decode, any size, --dtype,
--head-dim, --head-dim-v or --causal measures that one problem.
Examples:
  attune bench
  attune bench specs/quickstart.yaml --head-dim 64 --batch 4 --heads-q 32 --seqlen-q 4096
  attune bench --cases decode
  attune bench specs/decode.yaml --decode --batch 8 --heads-q 32 --heads-kv 8 --seqlen-k 32768 --page-size 64
  attune bench --cases prefill --json)");
  return {.app = app, .run = [options, app] {
            if (options->decode.decode) {
              options->problem = options->decode.problem(options->sizes, *app);
            } else if (ProblemOptions::given(*app) || ProblemOptions::choices_given(*app)) {
              options->problem = options->sizes.problem();
            }
            return bench(*options);
          }};
}

}  // namespace attune::cli
