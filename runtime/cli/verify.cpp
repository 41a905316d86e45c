#include "runtime/cli/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "runtime/choice/choice.hpp"
#include "runtime/cli/banks.hpp"
#include "runtime/lab/device_trial.hpp"

namespace attune::cli {
namespace {

std::string describe(const Comparison& comparison, bool guards_intact) {
  std::string text =
      fmt::format("O is off by {:.2e} where {:.2e} is allowed, LSE by {:.2e} where {:.2e} is", comparison.max_error,
                  comparison.tolerance, comparison.lse_error, comparison.lse_tolerance);
  if (comparison.unwritten > 0) text += fmt::format("; {} values are NaN or were never written", comparison.unwritten);
  if (!guards_intact) text += "; it wrote past the end of an output";
  return text;
}

Verdict verdict_on(const Built& built) {
  return {.variant = built.source->name, .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
}

/// Whether a kernel serves the problem of a trial; the verdict is told where it does not.
bool serves(const ServingKernel& kernel, const Trial& trial, Verdict& verdict) {
  const std::vector<std::string> reasons = refusals(kernel.variant, trial.problem(), kernel.device);
  if (reasons.empty()) return true;
  verdict.disagreements.push_back(
      {trial.problem().text(), fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
  return false;
}

}  // namespace

void add_outcome(Verdict& verdict, const Trial& trial, const Outputs& outputs, const Expected& expected) {
  ++verdict.problems;
  const Comparison comparison =
      compare(trial.attention(), outputs.o.data(), outputs.lse.data(), expected.reference, expected.naive);
  verdict.worst = std::max(verdict.worst, comparison.max_error / comparison.tolerance);
  if (!comparison.agrees || !outputs.guards_intact) {
    verdict.disagreements.push_back({trial.problem().text(), describe(comparison, outputs.guards_intact)});
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
  Verdict verdict = verdict_on(*kernels.front());
  for (const auto& trial : trials) {
    if (serves(loaded.front(), *trial, verdict)) {
      const Memory inputs = trial->inputs();
      const TrialPlan planned = trial->plan_with(FixedKernels(loaded));
      DeviceTrial on_device(gpu.driver, *trial, inputs, planned.workspace_bytes);
      on_device.launch(planned);
      add_outcome(verdict, *trial, on_device.fetch(), trial->expected(inputs));
    }
    if (on_tried) on_tried();
  }
  return verdict;
}

Verdict verify(std::span<const Built* const> kernels, const Trials& trials, const EmulatedRun& how,
               const OnTried& on_tried) {
  std::vector<EmulatedKernel> loaded;
  for (const Built* one : kernels) {
    Variant variant = one->source->variant;
    variant.arch = 0;  // a set of GPUs is about machine code, and here is none
    loaded.push_back(emulated_kernel(variant, one->compiled.image, one->source->name));
  }
  Verdict verdict = verdict_on(*kernels.front());
  for (const auto& trial : trials) {
    if (serves(loaded.front(), *trial, verdict)) {
      FixedKernels fixed(loaded);
      const Memory inputs = trial->inputs();
      const TrialPlan planned = trial->plan_with(fixed);
      const Memory poisoned = trial->poisoned_results(planned.workspace_bytes);
      Memory memory = inputs;
      memory.insert(memory.end(), poisoned.begin(), poisoned.end());
      // Of one kernel alone: another source's lines would be counted among its own.
      EmulatedRun once = how;
      once.count_banks = how.count_banks && planned.one_kernel;
      const emulator::Report report =
          emulate(fixed, once, [&](const Backend& backend) { planned.run(memory.data(), backend.executor); });
      add_sites(verdict.banks, report.sites);
      if (report.fault.empty()) {
        const Memory results(memory.begin() + static_cast<std::ptrdiff_t>(inputs.size()), memory.end());
        add_outcome(verdict, *trial, trial->outputs(results), trial->expected(inputs));
      } else {
        ++verdict.problems;
        verdict.disagreements.push_back({trial->problem().text(), report.fault});
      }
    }
    if (on_tried) on_tried();
  }
  return verdict;
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
  return {verdict.variant, std::to_string(verdict.problems), fmt::format("{:.2f}", verdict.worst),
          verdict.ok() ? "agrees" : fmt::format("{} WRONG", verdict.disagreements.size())};
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
