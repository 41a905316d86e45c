// attune spec-from: from recorded calls, or from a model's config, to the specs of the kernels they need.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <span>

#include "generator/check.hpp"
#include "generator/command_words.hpp"
#include "generator/cost.hpp"
#include "generator/spec_text.hpp"
#include "runtime/base/files.hpp"
#include "runtime/base/text.hpp"
#include "runtime/call/device.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/kernel_table.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/model_config.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/record/workload.hpp"

namespace attune::cli {
namespace {

/// Of the problems that no kernel serves; those of a model are alike.
constexpr std::size_t listed_problems = 5;

struct SpecFromOptions {
  std::vector<std::string> files;
  std::vector<std::string> archs;
  std::string out;
  std::string dtype;
  bool serving = false;
  bool json = false;
};

struct Model {
  std::string file;
  ModelConfig config;
};

/// What the files say together.
struct Input {
  std::vector<Recorded> problems;
  std::vector<std::string> sources;  ///< one line for each file
  std::vector<Model> models;         ///< of configs
  bool calls = false;                ///< there is a record among them
};

Result<std::string> read_text(const std::string& file) {
  std::optional<std::string> text = read_file(file, largest_record);
  if (text) return {.value = std::move(*text), .problems = {}};
  const std::string limit = bytes_text(static_cast<double>(largest_record));
  return {.value = {},
          .problems = {{{.file = file},
                        "there is no such file that can be read",
                        fmt::format("a record or a config.json of at most {}", limit)}}};
}

long long calls_of(const std::vector<Recorded>& problems) {
  long long calls = 0;
  for (const Recorded& one : problems) calls = added_calls(calls, one.calls);
  return calls;
}

std::string counts_text(const std::vector<Recorded>& problems) {
  return fmt::format("{}, {}", counted(static_cast<long long>(problems.size()), "problem"),
                     counted(calls_of(problems), "call"));
}

/// Adds what one file says; its problems where it is none that can be read.
std::vector<Diagnostic> add_file(Input& input, const std::string& file, const SpecFromOptions& options) {
  Result<std::string> text = read_text(file);
  if (!text.ok()) return text.problems;
  if (is_record(text.value)) {
    Result<std::vector<Recorded>> record = parse_record(text.value, file);
    if (!record.ok()) return record.problems;
    const std::vector<Recorded> met = merged(record.value);
    input.sources.push_back(fmt::format("{}: {}", file, counts_text(met)));
    input.problems.insert(input.problems.end(), met.begin(), met.end());
    input.calls = true;
    return {};
  }
  std::optional<Dtype> dtype;
  if (!options.dtype.empty()) dtype = static_cast<Dtype>(*parse_value(*find_field("dtype"), options.dtype));
  Result<ModelConfig> config = parse_model_config(text.value, file, dtype);
  if (!config.ok()) return config.problems;
  const std::vector<Recorded> problems = problems_of(config.value, options.serving);
  input.sources.push_back(fmt::format("{}: {}{}", file, config.value.type, options.serving ? ", for serving" : ""));
  input.problems.insert(input.problems.end(), problems.begin(), problems.end());
  input.models.push_back({.file = file, .config = std::move(config.value)});
  return {};
}

Input read_input(const SpecFromOptions& options) {
  Input input;
  std::vector<Diagnostic> problems;
  for (const std::string& file : options.files) {
    std::ranges::move(add_file(input, file, options), std::back_inserter(problems));
  }
  if (problems.empty() && input.problems.empty() && input.models.empty()) {
    problems.push_back({{.file = options.files.front()},
                        "no call is recorded here",
                        "run the program with ATTUNE_RECORD set to this file's path"});
  }
  throw_any(std::move(problems));
  input.problems = merged(input.problems);
  return input;
}

/// Of machine code for every GPU that a kernel is for.
Cost cost_of(const WorkloadKernels& needed) {
  Cost total;
  for (const NeededKernel& kernel : needed.kernels) {
    const Cost one = estimate(std::span(&kernel.variant, 1), std::max(1, std::popcount(kernel.variant.arch)));
    total.seconds += one.seconds;
    total.bytes += one.bytes;
  }
  return total;
}

std::string report(const Input& input, const WorkloadKernels& needed) {
  std::vector<Column> columns{{"kernel"}, {"GPUs"}};
  if (input.calls) columns.insert(columns.end(), {{"problems", Align::right}, {"calls", Align::right}});
  Table table(columns);
  for (const NeededKernel& kernel : needed.kernels) {
    std::vector<std::string> cells{kernel.variant.name(),
                                   fmt::format("{}", fmt::join(arch_names(kernel.variant), " "))};
    if (input.calls) {
      cells.push_back(std::to_string(kernel.problems));
      cells.push_back(std::to_string(kernel.calls));
    }
    table.add(std::move(cells));
  }
  std::string understood;
  for (const Model& model : input.models) understood += model.config.text();
  const Cost cost = cost_of(needed);
  return fmt::format("{}{}{}; about {} to compile on one core and {} of machine code\n", understood, table.text(),
                     counted(static_cast<long long>(needed.kernels.size()), "kernel"), seconds_text(cost.seconds),
                     bytes_text(static_cast<double>(cost.bytes)));
}

/// What was read of a config, layer by layer.
nlohmann::ordered_json json_of(const Model& model) {
  const ModelConfig& config = model.config;
  auto groups = nlohmann::ordered_json::array();
  for (const LayerGroup& group : config.groups) {
    const LayerShape& shape = group.shape;
    groups.push_back({{"kind", shape.kind},
                      {"layers", group.layers},
                      {"heads_q", shape.heads_q},
                      {"heads_kv", shape.heads_kv},
                      {"head_dim", shape.head_dim},
                      {"head_dim_v", shape.head_dim_v},
                      {"window", shape.window},
                      {"softcap", shape.softcap},
                      {"rotary_dim", shape.rotary_dim},
                      {"lacks", shape.lacks}});
  }
  return {{"file", model.file},
          {"model_type", config.type},
          {"known", config.known},
          {"served", config.served()},
          {"latent", config.latent},
          {"max_tokens", config.max_tokens},
          {"rotary", value_text(*find_field("rotary"), static_cast<int>(config.rotary))},
          {"groups", groups},
          {"lacks", config.lacks},
          {"notes", config.notes},
          {"assumed", config.assumed}};
}

nlohmann::ordered_json json_of(const Input& input, const WorkloadKernels& needed, const std::vector<SpecText>& specs,
                               const SpecFromOptions& options) {
  auto kernels = nlohmann::ordered_json::array();
  for (const NeededKernel& kernel : needed.kernels) {
    kernels.push_back({{"variant", kernel.variant.name()},
                       {"archs", arch_names(kernel.variant)},
                       {"problems", kernel.problems},
                       {"calls", kernel.calls}});
  }
  auto unserved = nlohmann::ordered_json::array();
  for (const UnservedProblem& one : needed.unserved) {
    unserved.push_back({{"problem", one.problem}, {"device", one.device}, {"reasons", one.reasons}});
  }
  auto files = nlohmann::ordered_json::array();
  for (const SpecText& spec : specs) {
    nlohmann::ordered_json file{{"name", spec.name + ".yaml"}, {"variants", spec.variants}};
    if (options.out.empty()) file["text"] = spec.text;
    files.push_back(std::move(file));
  }
  auto models = nlohmann::ordered_json::array();
  for (const Model& model : input.models) models.push_back(json_of(model));
  const Cost cost = cost_of(needed);
  return {{"from", input.sources},
          {"models", models},
          {"problems", input.problems.size()},
          {"calls", calls_of(input.problems)},
          {"kernels", kernels},
          {"unserved", unserved},
          {"estimated_seconds", cost.seconds},
          {"estimated_bytes", cost.bytes},
          {"out", options.out},
          {"specs", files}};
}

/// What opens each spec.
std::vector<std::string> comment_of(const Input& input, const std::vector<Arch>& archs) {
  std::vector<std::string> names;
  for (const Arch& arch : archs) names.emplace_back(arch.name);
  std::vector<std::string> lines{fmt::format("Made by attune spec-from for {}, of", fmt::join(names, " and "))};
  for (const std::string& source : input.sources) lines.push_back("  " + source);
  return lines;
}

/// Why no kernel serves a model.
std::string reasons_of(const ModelConfig& config) {
  std::vector<std::string> reasons = config.lacks;
  for (const LayerGroup& group : config.groups) {
    if (!group.shape.lacks.empty()) reasons.push_back(fmt::format("{}: {}", group.shape.kind, group.shape.lacks));
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

Exit spec_from(const SpecFromOptions& options) {
  const Input input = read_input(options);
  const std::vector<Arch> archs = resolve_archs(options.archs);
  std::vector<Device> devices;
  for (const Arch& arch : archs) {
    // Its kernels are for every GPU of the architecture, not for the one that stands for it.
    devices.push_back(device_of(arch));
    devices.back().name = arch.name;
  }
  const WorkloadKernels needed = kernels_for(input.problems, devices);
  const std::vector<SpecText> specs = spec_texts(needed.variants(), comment_of(input, archs));

  // What goes to stdout is one thing: JSON, or specs, or the report.
  if (!options.out.empty()) {
    for (const SpecText& spec : specs)
      write_output(std::filesystem::path(options.out) / (spec.name + ".yaml"), spec.text);
  }
  if (options.json) {
    print_json(json_of(input, needed, specs, options));
  } else if (options.out.empty()) {
    fmt::print(stderr, "{}", report(input, needed));
    for (const SpecText& spec : specs) fmt::print("# {}.yaml\n{}\n", spec.name, spec.text);
  } else {
    fmt::print("{}", report(input, needed));
    for (const SpecText& spec : specs) {
      fmt::print("wrote {}/{}.yaml ({})\n", options.out, spec.name,
                 counted(static_cast<long long>(spec.variants), "kernel"));
    }
  }
  bool served = needed.unserved.empty();
  for (const Model& model : input.models) {
    if (model.config.served()) continue;
    served = false;
    fmt::print(stderr, "attune: {}: no kernel can serve {}: {}\n", model.file, model.config.type,
               reasons_of(model.config));
  }
  const std::size_t listed = std::min(needed.unserved.size(), listed_problems);
  for (const UnservedProblem& one : std::span(needed.unserved).first(listed)) {
    fmt::print(stderr, "attune: no kernel can serve {} on {}: {}\n", one.problem, one.device,
               fmt::join(one.reasons, "; "));
  }
  if (needed.unserved.size() > listed_problems) {
    fmt::print(stderr, "attune: ... and {} more\n", needed.unserved.size() - listed_problems);
  }
  return served ? Exit::done : Exit::check_failed;
}

}  // namespace

Command spec_from_command(CLI::App& root) {
  auto options = std::make_shared<SpecFromOptions>();
  CLI::App* app = root.add_subcommand("spec-from", "Make the specs of the kernels that a program or a model needs");
  app->add_option("FILE", options->files, "Records of calls (files that ATTUNE_RECORD named), or config.json of models")
      ->required()
      ->option_text("REQUIRED");
  add_arch_option(*app, options->archs, "Architectures [default: this machine's GPU, else sm_80 and sm_90]");
  app->add_option("-o,--out", options->out, "Folder for the specs, one a template [default: print them]")
      ->option_text("DIR");
  app->add_option("--dtype", options->dtype, "In place of a config's own: fp16 or bf16")
      ->check(one_of({"fp16", "bf16"}));
  app->add_flag("--serving", options->serving, "Of a config also ragged batches and caches in pages");
  app->add_flag("--json", options->json, "Print kernels and specs as JSON");
  app->footer(
      R"(A program records its calls where the environment variable ATTUNE_RECORD names a file; %p in it is the process's id.
Several programs and runs may share a file, and their calls add up.
Of a config it says what it assumed of fields that are missing, and what the model has that no kernel serves.
Examples:
  ATTUNE_RECORD=calls.jsonl python serve.py
  attune spec-from calls.jsonl --arch sm_90 -o specs
  attune spec-from config.json --serving --arch sm_90 -o specs
  attune pack specs/*.yaml -o kernels.attune)");
  return {.app = app, .run = [options] { return spec_from(*options); }};
}

}  // namespace attune::cli
