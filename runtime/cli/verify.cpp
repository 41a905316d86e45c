#include "runtime/cli/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <optional>

#include "runtime/choice/choice.hpp"
#include "runtime/cli/banks.hpp"
#include "runtime/lab/device_trial.hpp"

namespace attune::cli {
namespace {

std::string describe(const Trial& trial, const Comparison& comparison, bool guards_intact) {
  std::string text = fmt::format("{} is off by {:.2e} where {:.2e} is allowed", trial.measured(), comparison.max_error,
                                 comparison.tolerance);
  if (comparison.lse_tolerance > 0) {
    text += fmt::format(", LSE by {:.2e} where {:.2e} is", comparison.lse_error, comparison.lse_tolerance);
  }
  if (comparison.unwritten > 0) text += fmt::format("; {} values are NaN or were never written", comparison.unwritten);
  if (!guards_intact) text += "; it wrote past the end of an output";
  return text;
}

/// Tries the first of these kernels, which `built` became, on each trial that it serves. `run` returns what it left, or
/// nothing where it adds a fault.
template <class Kernel, class Run>
Verdict try_first(const Built& built, const std::vector<Kernel>& kernels, const Trials& trials, const OnTried& on_tried,
                  const Run& run) {
  Verdict verdict{.variant = built.source->name, .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  const ServingKernel& kernel = kernels.front();
  for (const auto& trial : trials) {
    const std::vector<std::string> reasons = refusals(kernel.variant, trial->problem(), kernel.device);
    if (reasons.empty()) {
      ++verdict.problems;
      const Memory inputs = trial->inputs();
      const std::optional<Outputs> outputs = run(*trial, trial->plan_with(FixedKernels(kernels)), inputs, verdict);
      if (outputs) add_outcome(verdict, *trial, *outputs, trial->expected(inputs));
    } else {
      verdict.disagreements.push_back(
          {trial->problem().text(), fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
    }
    if (on_tried) on_tried();
  }
  return verdict;
}

}  // namespace

void add_outcome(Verdict& verdict, const Trial& trial, const Outputs& outputs, const Expected& expected) {
  const Comparison comparison = trial.compare(outputs, expected);
  verdict.worst = std::max(verdict.worst, comparison.max_error / comparison.tolerance);
  if (!comparison.agrees || !outputs.guards_intact) {
    verdict.disagreements.push_back({trial.problem().text(), describe(trial, comparison, outputs.guards_intact)});
  }
}

std::vector<Source> companion_sources(const std::vector<Source>& sources, const Device& device) {
  std::vector<Source> result;
  for (const Source& source : sources) {
    for (const Variant& companion : companions_of(source.variant, device)) {
      const bool known = std::ranges::any_of(result, [&](const Source& one) { return one.variant == companion; });
      if (!known) result.push_back(generate(companion));
    }
  }
  return result;
}

std::vector<const Built*> with_companions(const Built& built, const std::vector<Built>& companions,
                                          const Device& device) {
  std::vector<const Built*> result{&built};
  for (const Variant& companion : companions_of(built.source->variant, device)) {
    const auto found = std::ranges::find_if(
        companions, [&](const Built& one) { return one.ok() && one.source->variant == companion; });
    if (found == companions.end()) return {};
    result.push_back(&*found);
  }
  return result;
}

Verdict verify(const Gpu& gpu, std::span<const Built* const> kernels, const Trials& trials, const OnTried& on_tried) {
  std::vector<LoadedKernel> loaded;
  for (const Built* one : kernels) {
    loaded.emplace_back(gpu.driver, one->source->variant, gpu.device, one->compiled.image, one->source->name);
  }
  return try_first(*kernels.front(), loaded, trials, on_tried,
                   [&](const Trial& trial, const TrialPlan& planned, const Memory& inputs, Verdict& /*verdict*/) {
                     DeviceTrial on_device(gpu.driver, trial, inputs, planned.workspace_bytes);
                     on_device.launch(planned);
                     return std::optional(on_device.fetch());
                   });
}

Verdict verify(std::span<const Built* const> kernels, const Trials& trials, const EmulatedRun& how,
               const OnTried& on_tried) {
  std::vector<EmulatedKernel> loaded;
  for (const Built* one : kernels) {
    Variant variant = one->source->variant;
    variant.arch = 0;  // a set of GPUs is about machine code, and here is none
    loaded.push_back(emulated_kernel(variant, one->compiled.image, one->source->name));
  }
  const auto run = [&](const Trial& trial, const TrialPlan& planned, const Memory& inputs,
                       Verdict& verdict) -> std::optional<Outputs> {
    const Memory poisoned = trial.poisoned_results(planned.workspace_bytes);
    Memory memory = inputs;
    memory.insert(memory.end(), poisoned.begin(), poisoned.end());
    // Of one kernel alone: another source's lines would be counted among its own.
    EmulatedRun once = how;
    once.count_banks = how.count_banks && planned.one_kernel;
    FixedKernels found;  // by the plan
    const emulator::Report report =
        emulate(found, once, [&](const Backend& backend) { planned.run(memory.data(), backend.executor); });
    add_sites(verdict.banks, report.sites);
    if (report.fault.empty()) return trial.outputs({memory.begin() + std::ssize(inputs), memory.end()});
    verdict.disagreements.push_back({trial.problem().text(), report.fault});
    return std::nullopt;
  };
  return try_first(*kernels.front(), loaded, trials, on_tried, run);
}

RowWriter verdict_rows(std::span<const Source> sources) {
  std::string longest;
  for (const Source& source : sources) {
    if (source.name.size() > longest.size()) longest = source.name;
  }
  return {{{"variant"}, {"problems", Align::right}, {"error / allowed", Align::right}, {"result"}},
          {longest, "", "", ""}};
}

std::vector<std::string> verdict_cells(const Verdict& verdict) {
  const std::string bad = verdict.problems == 0 ? "serves none of the problems asked for"
                                                : fmt::format("{} WRONG", verdict.disagreements.size());
  return {verdict.variant, std::to_string(verdict.problems), fmt::format("{:.2f}", verdict.worst),
          verdict.ok() ? "agrees" : bad};
}

nlohmann::ordered_json verdict_json(const std::vector<Verdict>& verdicts) {
  auto rows = nlohmann::ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    auto disagreements = nlohmann::ordered_json::array();
    for (const Verdict::Disagreement& one : verdict.disagreements) {
      disagreements.push_back({{"problem", one.problem}, {"what", one.what}});
    }
    rows.push_back({{"variant", verdict.variant},
                    {"ok", verdict.ok()},
                    {"problems", verdict.problems},
                    {"error_over_tolerance", verdict.worst},
                    {"disagreements", disagreements}});
  }
  return rows;
}

void report_disagreements(const std::vector<Verdict>& verdicts) {
  for (const Verdict& verdict : verdicts) {
    for (const Verdict::Disagreement& one : verdict.disagreements) {
      fmt::print(stderr, "{} on {}: {}\n", verdict.variant, one.problem, one.what);
    }
  }
}

}  // namespace attune::cli
