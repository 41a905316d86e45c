// attune run: generate, compile, launch (on a GPU or in the emulator), compare with the reference.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <thread>

#include "generator/check.hpp"
#include "generator/command_words.hpp"
#include "runtime/cli/banks.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problems.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/selfcheck.hpp"
#include "runtime/cli/verify.hpp"

namespace attune::cli {
namespace {

struct RunOptions {
  std::vector<std::string> specs;
  std::string device = "auto";
  ProblemOptions problem;
  DecodeProblem decode;      ///< the same of decoding
  bool one_problem = false;  ///< sizes or limits were given: check that problem alone
  std::uint64_t seed = 1;
  int jobs = 0;
  bool bank_conflicts = false;
  bool json = false;
};

/// The one problem of decode that the options name, for this variant.
DecodeProblem decode_problem(const Variant& variant, const RunOptions& options) {
  DecodeProblem problem = options.decode;
  problem.dtype = static_cast<Dtype>(variant.dtype);
  problem.head_dim = variant.head_dim;
  if (variant.softcap != 0 && problem.softcap == 0) problem.softcap = usual_softcap;
  problem.expressions = CallExpressions::of(variant);
  if (variant.paged != 0) {
    constexpr int usual_page_size = 64;
    problem.page_size = usual_page_size;
    problem.table_width = std::max(1, (problem.max_seqlen_k + usual_page_size - 1) / usual_page_size);
    problem.pages = problem.batch * problem.table_width;
  }
  set_rotation(problem, variant);
  return problem;
}

/// What a variant is tried on. Throws Failure when a problem was named that is unsound.
Trials trials_for(const Variant& variant, const RunOptions& options) {
  if (!options.one_problem) return small_trials(variant, options.seed);
  Trials trials;
  const auto add = [&](const auto& problem) {
    require_sound(problem);
    trials.push_back(make_trial(problem, options.seed));
  };
  if (is_backward(variant)) {
    const Problem problem = options.problem.problem_for(variant);
    require_sound(problem);
    trials.push_back(make_backward_trial(problem, variant, options.seed));
  } else if (family_of(variant).operation == Operation::decode) {
    add(decode_problem(variant, options));
  } else {
    add(options.problem.problem_for(variant));
  }
  return trials;
}

/// What of this machine takes part, and why what is missing does not.
struct Machine {
  Found<Compiler> nvrtc;
  Found<Gpu> gpu;
  Found<emulator::HostCompiler> host;

  explicit Machine(const std::string& device) : nvrtc(find_compiler()) {
    if (device == "auto" || device == "gpu") gpu = find_gpu();
    if (device == "emulator" || (device == "auto" && !on_gpu())) host = find_host_compiler();
  }

  [[nodiscard]] bool on_gpu() const { return gpu && nvrtc; }

  /// Why no kernel can run.
  [[nodiscard]] std::string problem() const {
    std::vector<std::string> problems;
    for (const std::string& one : {gpu.problem, host.problem}) {
      if (!one.empty()) problems.push_back(one);
    }
    return problems.empty() ? "--device none was asked for" : fmt::format("{}", fmt::join(problems, "; "));
  }
};

/// One run of the command: tables as they come, or one JSON at the end.
class Run {
 public:
  explicit Run(const RunOptions& options) : options_(&options), machine_(options.device) {}

  Exit execute() {
    if (options_->bank_conflicts && !machine_.host) {
      const bool looked_for = !machine_.host.problem.empty();
      throw Failure(looked_for ? Exit::machine_lacks : Exit::bad_usage,
                    fmt::format("--bank-conflicts needs the emulator: {}",
                                looked_for ? machine_.host.problem : "pass --device emulator"));
    }
    generate();
    if (!machine_.nvrtc && !machine_.host) {
      throw Failure(Exit::machine_lacks, "nothing was compiled or run: " + machine_.nvrtc.problem);
    }
    if (machine_.nvrtc) {
      compile();
    } else {
      fmt::print(stderr, "attune: no machine code was made: {}\n", machine_.nvrtc.problem);
    }
    const Exit checked = check();
    if (options_->json) print_json(json_);
    return all_compiled_ ? checked : Exit::check_failed;
  }

 private:
  /// How a kernel is tried, together with those that go with it.
  using Try = std::function<Verdict(std::span<const Built* const>, const Trials&, const OnTried&)>;

  /// What came of the kernels that were tried.
  struct Tried {
    std::vector<Verdict> verdicts;
    std::vector<const Source*> sources;
  };

  void generate() {
    const auto start = std::chrono::steady_clock::now();
    const Collection request =
        options_->device == "none"
            ? load_specs(options_->specs)
            : load_specs_of({Operation::prefill, Operation::decode, Operation::backward, Operation::backward_rows,
                             Operation::backward_queries, Operation::backward_convert},
                            options_->specs);
    sources_ = emit_sources(request);
    if (options_->one_problem && options_->device != "none") {  // an unsound one is refused before kernels compile
      for (const Source& one : sources_) (void)trials_for(one.variant, *options_);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    json_ = {{"refused", refusals_json(request)}, {"generation_seconds", seconds.count()}};
    if (!options_->json) {
      fmt::print("{}generated {} in {}\n", cost_report(request),
                 counted(static_cast<long long>(sources_.size()), "source"), seconds_text(seconds.count()));
    }
  }

  /// Machine code, for this GPU or the usual ones, and what it uses.
  void compile() {
    const std::vector<Arch> archs = machine_.gpu ? std::vector{arch_of(machine_.gpu->device)}
                                                 : std::vector{*find_arch("sm_80"), *find_arch("sm_90")};
    const RowWriter rows = resource_rows(sources_, archs);
    if (!options_->json) fmt::print("\nNVRTC {}\n{}", machine_.nvrtc->version(), rows.title());
    {
      Progress progress(stderr, "kernels compiled", kernels_to_build(sources_, archs));
      built_ = build(*machine_.nvrtc, sources_, archs, options_->jobs, [&](const Built& one) {
        progress.add();
        if (!options_->json) progress.print(rows.row(resource_cells(one)));
      });
    }
    json_["nvrtc"] = machine_.nvrtc->version();
    json_["kernels"] = resource_json(built_);
    all_compiled_ = report_failures(built_);
  }

  Exit check() {
    if (machine_.on_gpu()) {
      const Gpu& gpu = *machine_.gpu;
      const std::vector<Source> sources = companion_sources(sources_, gpu.device);
      const std::vector<Built> companions = build(*machine_.nvrtc, sources, {arch_of(gpu.device)}, options_->jobs);
      all_compiled_ = report_failures(companions) && all_compiled_;
      const Try try_kernel = [&](std::span<const Built* const> kernels, const Trials& trials, const OnTried& on_tried) {
        return verify(gpu, kernels, trials, on_tried);
      };
      return compare(gpu.device, arch_of(gpu.device), companions, try_kernel,
                     [&](const auto& try_all) { try_all(built_); });
    }
    if (!machine_.host) return without_kernels();
    json_["host_compiler"] = machine_.host->version();
    const std::vector<Source> sources = companion_sources(sources_, emulator::device());
    const std::vector<Built> companions = build(*machine_.host, sources, options_->jobs);
    all_compiled_ = report_failures(companions) && all_compiled_;
    const EmulatedRun how{.seed = options_->seed, .jobs = options_->jobs, .count_banks = options_->bank_conflicts};
    const Try try_kernel = [&](std::span<const Built* const> kernels, const Trials& trials, const OnTried& on_tried) {
      return verify(kernels, trials, how, on_tried);
    };
    std::vector<Diagnostic> failures;
    const Exit exit = compare(emulator::device(), emulated_arch(), companions, try_kernel, [&](const auto& try_all) {
      // A few at a time, so that the first results do not wait for the host's compiler to be done with all.
      const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
      for (std::size_t first = 0; first < sources_.size(); first += cores) {
        const auto some = std::span(sources_).subspan(first, std::min(cores, sources_.size() - first));
        const std::vector<Built> emulated = build(*machine_.host, some, options_->jobs);
        std::ranges::move(failures_of(emulated), std::back_inserter(failures));
        try_all(emulated);
      }
    });
    all_compiled_ = report(failures) && all_compiled_;
    return exit;
  }

  /// How many problems that is for all kernels.
  [[nodiscard]] long long problems_to_try(const Arch& arch) const {
    std::size_t problems = 0;
    for (const Source& source : sources_) {
      if (check_arch(source.variant, arch).empty()) problems += trials_for(source.variant, *options_).size();
    }
    return static_cast<long long>(problems);
  }

  /// Tries what `with_kernels` hands over, as often as it does, and tells.
  template <class WithKernels>
  Exit compare(const Device& device, const Arch& arch, const std::vector<Built>& companions, const Try& try_kernel,
               const WithKernels& with_kernels) {
    const RowWriter rows = verdict_rows(sources_);
    Tried tried;
    {
      Progress progress(stderr, "problems tried", problems_to_try(arch));
      if (!options_->json) fmt::print("\n{}\n{}", device.name, rows.title());
      with_kernels([&](const std::vector<Built>& built) {
        for (const Built& one : built) {
          const auto kernels = one.ok() ? with_companions(one, companions, device) : std::vector<const Built*>{};
          if (kernels.empty()) continue;
          tried.verdicts.push_back(
              try_kernel(kernels, trials_for(one.source->variant, *options_), [&] { progress.add(); }));
          tried.sources.push_back(one.source);
          if (!options_->json) progress.print(rows.row(verdict_cells(tried.verdicts.back())));
        }
      });
    }
    for (const Source& source : sources_) {
      for (const Refusal& refusal : check_arch(source.variant, arch)) {
        fmt::print(stderr, "not run: {}: {}\n", source.name, refusal.message);
      }
    }
    json_["device"] = device.name;
    json_["checks"] = verdict_json(tried.verdicts);
    if (options_->bank_conflicts) report_banks(tried);
    report_disagreements(tried.verdicts);
    return std::ranges::all_of(tried.verdicts, &Verdict::ok) ? Exit::done : Exit::check_failed;
  }

  void report_banks(const Tried& tried) {
    auto rows = nlohmann::ordered_json::array();
    std::string text;
    for (std::size_t i = 0; i < tried.verdicts.size(); ++i) {
      rows.push_back(bank_json(*tried.sources[i], tried.verdicts[i].banks));
      text += bank_report(*tried.sources[i], tried.verdicts[i].banks);
    }
    json_["bank_conflicts"] = rows;
    if (!options_->json) fmt::print("\nbank conflicts in shared memory\n{}", text);
  }

  /// Says what a machine that can run no kernel leaves unchecked.
  Exit without_kernels() {
    const SelfCheck check = check_reference(options_->seed);
    const std::string problem = machine_.problem();
    json_["reference_check"] = {{"ok", check.ok}, {"cases", check.cases}, {"max_error", check.max_error}};
    json_["not_run"] = "the kernels: " + problem;
    if (!options_->json) {
      fmt::print("\nCPU reference against an independent formula: {} in {} (largest difference {:.1e})\n",
                 check.ok ? "agrees" : "DISAGREES", counted(check.cases, "case"), check.max_error);
      fmt::print("Not run: the kernels themselves, so their numbers are unchecked here ({})\n", problem);
    }
    if (!check.ok) return Exit::check_failed;
    return options_->device == "gpu" || options_->device == "emulator" ? Exit::machine_lacks : Exit::done;
  }

  const RunOptions* options_;
  Machine machine_;
  std::vector<Source> sources_;
  std::vector<Built> built_;  ///< machine code
  bool all_compiled_ = true;
  nlohmann::ordered_json json_;
};

}  // namespace

Command run_command(CLI::App& root) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* app = root.add_subcommand("run", "Generate, compile, launch and compare with the float64 reference");
  add_spec_argument(*app, options->specs);
  app->add_option("--device", options->device,
                  "auto: the GPU if there is one, else the emulator; gpu, emulator: fail without; none: compile only")
      ->check(one_of({"auto", "gpu", "emulator", "none"}))
      ->capture_default_str();
  add_seed_option(*app, options->seed,
                  "Of the random inputs, and of the schedule in the emulator: the same seed replays it");
  app->add_option("--jobs", options->jobs, "Compilations, or emulated blocks, at a time [default: one for each core]")
      ->check(positive_number())
      ->option_text("N");
  app->add_flag("--bank-conflicts", options->bank_conflicts,
                "List the lines with bank conflicts in shared memory (emulator only)");
  app->add_flag("--json", options->json, "Print the tables as JSON");
  options->problem.add_sizes(*app);
  options->problem.add_limits(*app);
  app->footer(
      R"(Each variant is launched on a few small problems, or on the one whose sizes, window or soft cap are given;
outputs are poisoned beforehand and compared with float64 on the CPU. The emulator runs the same source on the CPU,
thread by thread, and stops at what no GPU promises to get right: a race, a stray or misaligned access, a value nobody
wrote.
Examples:
  attune run specs/quickstart.yaml
  attune run specs/quickstart.yaml --batch 2 --heads-q 32 --heads-kv 8 --seqlen-q 1000
  attune run specs/quickstart.yaml --device emulator --bank-conflicts
  attune run specs/decode.yaml
  attune run specs/backward_sm80.yaml
  attune run specs/prefill_sm80.yaml --device none --json)");
  return {.app = app, .run = [options, app] {
            options->one_problem = ProblemOptions::given(*app) || ProblemOptions::limits_given(*app);
            DecodeOptions decode;
            decode.lengths_on_device = true;
            options->decode = decode.problem(options->problem, *app);
            return Run(*options).execute();
          }};
}

}  // namespace attune::cli
