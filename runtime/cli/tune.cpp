// attune tune: which variant is fastest for which problem on this GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "generator/command_words.hpp"
#include "generator/cost.hpp"
#include "generator/expand.hpp"
#include "generator/hash.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/suites.hpp"
#include "runtime/cli/tune_lab.hpp"
#include "runtime/cli/tune_problems.hpp"
#include "runtime/cli/tune_progress.hpp"
#include "runtime/tune/report.hpp"
#include "runtime/tune/tables.hpp"

namespace attune::cli {
namespace {

struct TuneOptions {
  std::vector<std::string> specs;
  std::vector<std::string> cases;
  std::vector<std::string> problems;
  std::string only;
  std::string out;
  std::string journal;
  std::string gpu;
  std::string devices = "0";
  std::string shard = "0/1";
  std::vector<std::string> merge;
  std::string report;
  tune::TunerRules rules;
  bool dry_run = false;
  bool json = false;
};

/// Adds the problems of each file that cannot be used.
std::vector<Spec> read_specs(const std::vector<std::string>& files, std::vector<Diagnostic>& problems) {
  std::vector<Spec> specs;
  for (const std::string& file : files) {
    Result<Spec> spec = read_spec(file);
    if (spec.ok() && spec.value.tune.keys.empty()) {
      spec.problems.push_back({{file, 0, 0}, "there is nothing to search", "write the knobs to try below `tune:`"});
    }
    std::ranges::move(spec.problems, std::back_inserter(problems));
    specs.push_back(std::move(spec.value));
  }
  return specs;
}

/// A text of digits alone, if an int holds it.
std::optional<int> ordinal_of(std::string_view text) {
  int ordinal = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ordinal);
  return error == std::errc() && stop == end && ordinal >= 0 ? std::optional(ordinal) : std::nullopt;
}

/// "0/4": which of how many.
std::optional<std::pair<int, int>> shard_of(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::optional<int> shard = ordinal_of(text.substr(0, slash));
  const std::optional<int> shards = ordinal_of(text.substr(slash + 1));
  if (!shard || !shards || *shard >= *shards) return std::nullopt;
  return std::pair(*shard, *shards);
}

/// Those of the suites and files, each once, in this run's shard. Adds what is wrong with the files.
std::vector<tune::AnyProblem> problems_for(const TuneOptions& options, std::vector<Diagnostic>& problems) {
  std::vector<tune::AnyProblem> all;
  for (const std::string& name : options.cases) std::ranges::move(suite(name), std::back_inserter(all));
  for (const std::string& file : options.problems) {
    Result<std::vector<tune::AnyProblem>> read = read_problems(file);
    std::ranges::move(read.problems, std::back_inserter(problems));
    std::ranges::move(read.value, std::back_inserter(all));
  }
  const auto [shard, shards] = *shard_of(options.shard);
  std::set<std::string> seen;
  std::erase_if(all, [&](const tune::AnyProblem& problem) {
    const std::string text = text_of(problem);
    return text.find(options.only) == std::string::npos || tune::shard_of(problem, shards) != shard ||
           !seen.insert(text).second;
  });
  return all;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

/// Of all that a kernel is made from.
std::string sources_hash() {
  std::string all = fmt::format("{}", fmt::join(compile_flags(), " "));
  for (const auto& [path, text] : embedded_templates()) all.append("\n").append(path).append("\n").append(text);
  return xxh3_hex(all);
}

/// "0,1": ordinals of GPUs, each once.
std::optional<std::vector<int>> list_of(std::string_view text) {
  std::vector<int> ordinals;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::optional<int> ordinal = ordinal_of(text.substr(0, comma));
    if (!ordinal || std::ranges::find(ordinals, *ordinal) != ordinals.end()) return std::nullopt;
    ordinals.push_back(*ordinal);
    if (comma == std::string_view::npos) return ordinals;
    text.remove_prefix(comma + 1);
  }
}

/// The GPUs that --devices names.
std::vector<int> ordinals_of(const std::string& devices) {
  if (devices != "all") return *list_of(devices);
  std::vector<int> ordinals(static_cast<std::size_t>(std::max(1, Driver().device_count())));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

std::vector<tune::Task> tasks_for(const std::vector<tune::AnyProblem>& problems, const Device& device,
                                  const std::vector<Spec>& specs) {
  std::vector<tune::Task> tasks;
  // Specs for other GPUs and operations may be among them, but alone they would leave nothing to race.
  const bool any = std::ranges::any_of(problems, [&](const tune::AnyProblem& problem) {
    return std::ranges::any_of(specs, [&](const Spec& spec) { return tune::has_kernels(spec, problem, device); });
  });
  if (!any) {
    throw Failure(Exit::bad_usage,
                  fmt::format("no spec given has kernels for {} on {}; the guide tune-for-your-gpu.md names those "
                              "that have",
                              problems.size() == 1 ? "this problem" : "any of these problems", device.name));
  }
  for (const tune::AnyProblem& problem : problems) {
    tasks.push_back({problem, tune::candidates_for(problem, device, specs), tune::estimated_seconds(problem, device)});
  }
  return tasks;
}

/// What a run would do and cost.
Exit plan(const TuneOptions& options, const Device& device, const std::vector<tune::Task>& tasks) {
  std::vector<Variant> distinct;
  std::set<Variant> seen;
  std::map<std::string, tune::RefusedGroup> refused;
  double measuring = 0;
  auto rows = nlohmann::ordered_json::array();
  Table table({{"problem"}, {"candidates", Align::right}, {"refused", Align::right}, {"measuring", Align::right}});
  for (const tune::Task& task : tasks) {
    int count = 0;
    for (const auto& [reason, group] : task.candidates.refused) {
      count += group.count;
      tune::RefusedGroup& total = refused[reason];
      total.count += group.count;
      if (total.example.empty()) total.example = group.example;
    }
    for (const Variant& variant : task.candidates.variants) {
      if (seen.insert(variant).second) distinct.push_back(variant);
    }
    const double seconds = tune::race_seconds(task.candidates.variants.size(), task.launch_seconds, options.rules.race);
    measuring += seconds;
    const std::string text = text_of(task.problem);
    table.add({text, std::to_string(task.candidates.variants.size()), std::to_string(count), seconds_text(seconds)});
    rows.push_back({{"problem", text},
                    {"candidates", task.candidates.variants.size()},
                    {"refused", count},
                    {"measuring_seconds", seconds},
                    {"heuristic", task.candidates.variants.front().name()}});
  }
  const double compiling = estimate(distinct).seconds;
  const int jobs = options.rules.jobs > 0 ? options.rules.jobs : static_cast<int>(std::thread::hardware_concurrency());
  if (options.json) {
    nlohmann::ordered_json reasons = nlohmann::ordered_json::object();
    for (const auto& [reason, group] : refused) reasons[reason] = {{"count", group.count}, {"example", group.example}};
    print_json({{"device", device.name},
                {"problems", rows},
                {"variants", distinct.size()},
                {"refused", reasons},
                {"compile_core_seconds", compiling},
                {"compile_seconds", compiling / jobs},
                {"measuring_seconds", measuring}});
    return Exit::done;
  }
  fmt::print("{}\n{}\n", device.name, table.text());
  for (const auto& [reason, group] : refused) {
    fmt::print("refused for {}: {}, the first because {}\n", reason, group.count, group.example);
  }
  fmt::print("{} and {}; about {} to compile on {} and {} to measure, at half of what {} reaches\n",
             counted(static_cast<long long>(tasks.size()), "problem"),
             counted(static_cast<long long>(distinct.size()), "variant"), seconds_text(compiling / jobs),
             counted(jobs, "core"), seconds_text(measuring), most_like(device).name);
  return Exit::done;
}

nlohmann::ordered_json json_of(const tune::Outcome& outcome) {
  const TunedResult& result = outcome.row.result;
  return {{"problem", text_of(outcome.row.problem)},
          {"variant", result.variant.name()},
          {"heuristic", outcome.heuristic.name()},
          {"microseconds", result.microseconds},
          {"heuristic_microseconds", result.default_microseconds},
          {"confidence", result.confidence},
          {"complete", outcome.complete}};
}

void print_result(const TuneOptions& options, const Device& device, const tune::TuneResult& result) {
  auto rows = nlohmann::ordered_json::array();
  auto rejected = nlohmann::ordered_json::array();
  Table table({{"problem"},
               {"variant"},
               {"time", Align::right},
               {"heuristic", Align::right},
               {"gain", Align::right},
               {"confidence", Align::right}});
  for (const tune::Outcome& outcome : result.outcomes) {
    const TunedResult& own = outcome.row.result;
    const bool tie = own.variant == outcome.heuristic;
    rows.push_back(json_of(outcome));
    table.add({text_of(outcome.row.problem), tie ? "the heuristic's" : own.variant.name(),
               seconds_text(own.microseconds / 1e6), seconds_text(own.default_microseconds / 1e6),
               tie ? "-" : fmt::format("{:.1f}%", 100 * (own.default_microseconds / own.microseconds - 1)),
               fmt::format("{:.3f}", own.confidence)});
  }
  for (const tune::Rejected& one : result.rejected) {
    rejected.push_back({{"variant", one.variant}, {"reason", one.reason}});
  }
  auto undecided = nlohmann::ordered_json::array();
  for (const tune::Undecided& one : result.undecided) {
    undecided.push_back({{"problem", one.problem}, {"reason", one.reason}});
  }
  if (options.json) {
    print_json({{"device", device.name},
                {"results", rows},
                {"undecided", undecided},
                {"rejected", rejected},
                {"measured_rounds", result.measured_rounds},
                {"recalled_rounds", result.recalled_rounds}});
    return;
  }
  fmt::print("{}\n{}\n", device.name, table.text());
  for (const tune::Rejected& one : result.rejected) fmt::print("rejected {}: {}\n", one.variant, one.reason);
  for (const tune::Undecided& one : result.undecided) fmt::print("no result for {}: {}\n", one.problem, one.reason);
  fmt::print("{} measured, {} of the journal used again\n", counted(result.measured_rounds, "round"),
             result.recalled_rounds);
}

/// Puts rows into the file; those of other problems stay.
void update_table(const std::filesystem::path& path, const TunedGpu& gpu, const std::vector<tune::Outcome>& outcomes) {
  TunedTable table{.gpu = gpu, .rows = {}};
  if (std::filesystem::exists(path)) {
    Result<TunedTable> old = read_tuned(path);
    throw_any(std::move(old.problems));
    if (old.value.gpu != gpu) {
      throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{} is a table for {}, this GPU is {}; name another file",
                                                       path.string(), old.value.gpu.name, gpu.name));
    }
    table = std::move(old.value);
  }
  tune::put_outcomes(table, outcomes);
  write_output(path, tuned_text(table));
}

Exit run(const TuneOptions& options, const std::vector<Spec>& specs, const std::vector<tune::AnyProblem>& problems) {
  const InterruptWatch interrupt;  // before the driver starts threads
  GpuLab lab(ordinals_of(options.devices), options.rules.race.seed);
  const TunedGpu gpu = tuned_gpu(lab.device());
  const std::vector<tune::Task> tasks = tasks_for(problems, lab.device(), specs);
  const std::filesystem::path out = options.out.empty() ? std::filesystem::path("specs/tuned") / tuned_file_name(gpu)
                                                        : std::filesystem::path(options.out);
  std::filesystem::path journal_path = options.journal;
  if (journal_path.empty()) journal_path = std::filesystem::path(out).replace_extension(".jsonl");
  if (journal_path.has_parent_path()) std::filesystem::create_directories(journal_path.parent_path());
  tune::Journal journal(journal_path, {.gpu = gpu,
                                       .driver = lab.driver_version(),
                                       .compiler = "NVRTC " + lab.compiler().version(),
                                       .sources = sources_hash()});
  tune::TunerRules rules = options.rules;
  rules.date = today();
  tune::TuneResult result;
  {
    TuneProgress progress(stderr);
    result = tune::tune(tasks, lab, journal, rules,
                        {.progress = [&](const tune::Status& status) { progress.show(status); },
                         .interrupted = [&] { return interrupt.interrupted(); }});
  }
  if (!result.outcomes.empty()) update_table(out, gpu, result.outcomes);
  print_result(options, lab.device(), result);
  if (!options.json)
    fmt::print("{} in {}, measurements in {}\n", counted(static_cast<long long>(result.outcomes.size()), "row"),
               out.string(), journal_path.string());
  return result.rejected.empty() ||
                 std::ranges::all_of(result.rejected,
                                     [](const tune::Rejected& one) { return one.reason.starts_with("it spills"); })
             ? Exit::done
             : Exit::check_failed;
}

Exit merge(const TuneOptions& options) {
  if (options.out.empty()) throw Failure(Exit::bad_usage, "--merge needs --out FILE");
  const TunedTable table = tune::merged(std::vector<std::filesystem::path>(options.merge.begin(), options.merge.end()));
  write_output(options.out, tuned_text(table));
  if (!options.json) {
    fmt::print("{} for {} in {}\n", counted(static_cast<long long>(table.rows.size()), "row"), table.gpu.name,
               options.out);
  } else {
    print_json({{"device", table.gpu.name}, {"rows", table.rows.size()}, {"file", options.out}});
  }
  return Exit::done;
}

Exit report(const TuneOptions& options) {
  if (options.journal.empty()) throw Failure(Exit::bad_usage, "--report needs --journal FILE");
  write_output(options.report, tune::report_svg(tune::read_journal(options.journal), options.only));
  if (options.json) print_json({{"journal", options.journal}, {"file", options.report}});
  return Exit::done;
}

Exit tune_command_main(const TuneOptions& options) {
  if (!options.merge.empty()) return merge(options);
  if (!options.report.empty()) return report(options);
  std::vector<Diagnostic> unsound;
  const std::vector<Spec> specs = read_specs(options.specs, unsound);
  const std::vector<tune::AnyProblem> problems = problems_for(options, unsound);
  throw_any(std::move(unsound));
  if (specs.empty() || problems.empty()) {
    const char* const missing =
        specs.empty() ? "a spec with `tune:`" : "problems: --cases or --problems, in this shard";
    throw Failure(Exit::bad_usage, fmt::format("tune needs {}; see attune tune --help", missing));
  }
  if (!options.dry_run) return run(options, specs, problems);
  const Device device = device_for(options.gpu);
  return plan(options, device, tasks_for(problems, device, specs));
}

std::string shard_problem(const std::string& text) {
  return shard_of(text) ? "" : fmt::format("'{}' is no shard; i/n with i from 0 to n - 1", text);
}

std::string devices_problem(const std::string& text) {
  if (text == "all" || list_of(text)) return "";
  return fmt::format("'{}' names no GPUs; all, or ordinals as 0,1, each once", text);
}

void add_problem_options(CLI::App& app, TuneOptions& options) {
  const std::string group = "Problems";
  app.add_option("--cases", options.cases, suite_help())->check(one_of(suite_names()))->group(group);
  app.add_option("--problems", options.problems,
                 "YAML lists of problems, those of a table, or the record of a program in $ATTUNE_RECORD")
      ->option_text("FILE ...")
      ->group(group);
  app.add_option("--only", options.only, "Leave out problems whose text does not contain this")
      ->option_text("TEXT")
      ->group(group);
  app.add_option("--shard", options.shard, "The i-th of n parts of the problems")
      ->check(shard_problem)
      ->option_text("i/n [0/1]")
      ->group(group);
}

void add_race_options(CLI::App& app, TuneOptions& options) {
  tune::TunerRules& rules = options.rules;
  const std::string group = "Race";
  app.add_option("--budget", rules.budget, "Seconds for everything; results that are known by then are kept")
      ->check(positive_problem)
      ->capture_default_str()
      ->group(group);
  app.add_option("--confidence", rules.race.confidence, "That a winner is faster than the heuristic's choice")
      ->check([](const std::string& text) { return range_problem(text, 0.5, 0.999999); })
      ->capture_default_str()
      ->group(group);
  app.add_option("--spill-limit", rules.spill_limit, "Bytes that a candidate may spill")
      ->check(non_negative_number())
      ->capture_default_str()
      ->group(group);
  add_seed_option(app, rules.race.seed, "Of the inputs and of the order of launches")->group(group);
  app.add_option("--jobs", rules.jobs, "Compilations at a time [default: one for each core, but for one a GPU]")
      ->check(positive_number())
      ->option_text("N")
      ->group(group);
  app.add_option("--devices", options.devices, "GPUs of this machine, all of one kind: all, or as 0,1")
      ->check(devices_problem)
      ->capture_default_str()
      ->group(group);
}

}  // namespace

Command tune_command(CLI::App& root) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* app = root.add_subcommand("tune", "Find the fastest variants for problems on this GPU, into a table");
  add_spec_argument(*app, options->specs, false);
  add_problem_options(*app, *options);
  add_race_options(*app, *options);
  app->add_option("--out", options->out, "The table [default: specs/tuned/<gpu>.yaml]")->option_text("FILE");
  app->add_option("--journal", options->journal, "What was measured, to go on with [default: beside the table, .jsonl]")
      ->option_text("FILE");
  app->add_option("--merge", options->merge, "Write the rows of tables and journals to --out")->option_text("FILE ...");
  app->add_option("--report", options->report, "Draw the journal: speed over tiles, an SVG")->option_text("FILE");
  app->add_flag("--dry-run", options->dry_run, "Say what would be compiled and measured, and how long it would take");
  add_gpu_option(*app, options->gpu,
                 fmt::format("With --dry-run: plan for this GPU [default: this machine's, else {}]", usual_gpu));
  app->add_flag("--json", options->json, "Print the result as JSON");
  app->footer(
      R"(A spec says below `tune:` which knobs to try (specs/tune). Candidates that no GPU could run are refused on paper;
the others are compiled, checked against the float64 reference, and raced against the heuristic's choice: the slower
half leaves after each stage, the last one duels with that choice, and replaces it only when it is faster beyond noise.
Ctrl-C keeps what is known, and another run with the same journal goes on from there.
Examples:
  attune tune specs/tune/prefill_sm90.yaml --cases prefill gqa --dry-run --gpu h200
  attune tune specs/tune/prefill_sm90.yaml specs/tune/decode.yaml --cases prefill gqa decode --budget 540
  attune tune specs/tune/backward_sm90.yaml --cases backward --budget 90
  attune tune specs/tune/*.yaml --problems calls.jsonl --out mine.yaml
  attune tune specs/tune/decode.yaml --problems mine.yaml --shard 0/2 --out part0.yaml
  attune tune --merge part0.yaml part1.yaml --out specs/tuned/h200.yaml
  attune tune --report h200.svg --journal specs/tuned/h200.jsonl --only "d128 b4")");
  return {.app = app, .run = [options] { return tune_command_main(*options); }};
}

}  // namespace attune::cli
