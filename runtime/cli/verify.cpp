#include "runtime/cli/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "runtime/cli/banks.hpp"
#include "runtime/cli/outputs.hpp"
#include "runtime/operations/prefill/plan.hpp"

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

/// Launches the kernel of a source on every problem that it serves.
Verdict try_kernel(const Source& source, const Variant& variant, const Device& device,
                   const std::vector<Problem>& problems, std::uint64_t seed, const OnTried& on_tried,
                   const std::function<Outcome(const Problem&, HostInputs&)>& launch) {
  Verdict verdict{.variant = source.name, .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  for (const Problem& problem : problems) {
    const std::vector<std::string> reasons = refusals(variant, problem, device);
    if (reasons.empty()) {
      HostInputs inputs(problem, seed);
      add_outcome(verdict, problem.text(), problem, launch(problem, inputs),
                  [&] { return expected_output(problem, inputs); });
    } else {
      verdict.disagreements.push_back({problem.text(), fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
    }
    if (on_tried) on_tried();
  }
  return verdict;
}

}  // namespace

void add_outcome(Verdict& verdict, const std::string& problem, const Problem& shape, const Outcome& outcome,
                 const std::function<Expected()>& expected) {
  ++verdict.problems;
  if (!outcome.fault.empty()) {
    verdict.disagreements.push_back({problem, outcome.fault});
    return;
  }
  const auto [reference, naive] = expected();
  const Outputs& outputs = outcome.outputs;
  const Comparison comparison = compare(shape, outputs.o.data(), outputs.lse.data(), reference, naive);
  verdict.worst = std::max(verdict.worst, comparison.max_error / comparison.tolerance);
  if (!comparison.agrees || !outputs.guards_intact()) {
    verdict.disagreements.push_back({problem, describe(comparison, outputs.guards_intact())});
  }
}

Verdict verify(const Gpu& gpu, const Built& built, const std::vector<Problem>& problems, std::uint64_t seed,
               const OnTried& on_tried) {
  const LoadedKernel kernel(gpu.driver, built.source->variant, gpu.device, built.compiled.image, built.source->name);
  return try_kernel(*built.source, kernel.variant, gpu.device, problems, seed, on_tried,
                    [&](const Problem& problem, HostInputs& inputs) {
                      DeviceProblem on_device(gpu, problem, inputs);
                      on_device.launch(kernel);
                      return Outcome{.outputs = on_device.fetch(), .fault = {}};
                    });
}

Verdict verify(const Built& built, const std::vector<Problem>& problems, const EmulatedRun& how,
               const OnTried& on_tried) {
  // A set of GPUs is about machine code, and here is none.
  Variant variant = built.source->variant;
  variant.arch = 0;
  const EmulatedKernel kernel = emulated_kernel(variant, built.compiled.image, built.source->name);
  // What serves emulated calls does not matter to who names the kernel.
  const Device gpu_like = device_of(*find_arch("sm_90"));
  std::vector<emulator::BankSite> banks;
  Verdict verdict = try_kernel(
      *built.source, variant, gpu_like, problems, how.seed, on_tried, [&](const Problem& problem, HostInputs& inputs) {
        Outcome outcome{.outputs = Outputs(problem), .fault = {}};
        const attune_prefill_args args = contiguous_args(problem, {.q = inputs.q.data(),
                                                                   .k = inputs.k.data(),
                                                                   .v = inputs.v.data(),
                                                                   .o = outcome.outputs.o.data(),
                                                                   .lse = outcome.outputs.lse.data(),
                                                                   .cu_seqlens_q = inputs.sequences.cu_seqlens_q.data(),
                                                                   .cu_seqlens_k = inputs.sequences.cu_seqlens_k.data(),
                                                                   .seqused_k = inputs.sequences.seqused_k.data(),
                                                                   .block_table = inputs.sequences.block_table.data()});
        emulator::Report report = run_emulated(FixedKernels{&kernel}, args, problem, how);
        outcome.fault = std::move(report.fault);
        add_sites(banks, report.sites);
        return outcome;
      });
  verdict.banks = std::move(banks);
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
