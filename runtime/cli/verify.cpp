#include "runtime/cli/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

}  // namespace

Verdict verify(const Gpu& gpu, const Built& built, const std::vector<Problem>& problems, std::uint64_t seed) {
  const LoadedKernel kernel(gpu, built.compiled.cubin, built.source->variant, built.source->name);
  Verdict verdict{.variant = built.source->name, .problems = 0, .worst = 0, .disagreements = {}};
  for (const Problem& problem : problems) {
    const std::vector<std::string> reasons = refusals(kernel.variant(), problem, gpu.device);
    if (!reasons.empty()) {
      verdict.disagreements.push_back({problem, fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
      continue;
    }
    ++verdict.problems;
    const HostInputs inputs(problem, seed);
    const Expected expected = expected_output(problem, inputs);
    const DeviceProblem on_device(gpu, problem, inputs);
    on_device.launch(kernel);
    const DeviceProblem::Output output = on_device.fetch();
    const Comparison comparison =
        compare(problem, output.o.data(), output.lse.data(), expected.reference, expected.naive);
    verdict.worst = std::max(verdict.worst, comparison.max_error / comparison.tolerance);
    if (!comparison.agrees || !output.guards_intact) {
      verdict.disagreements.push_back({problem, describe(comparison, output.guards_intact)});
    }
  }
  return verdict;
}

std::string verdict_table(const std::vector<Verdict>& verdicts) {
  Table table({{"variant"}, {"problems", Align::right}, {"error / allowed", Align::right}, {"result"}});
  for (const Verdict& verdict : verdicts) {
    table.add({verdict.variant, std::to_string(verdict.problems), fmt::format("{:.2f}", verdict.worst),
               verdict.ok() ? "agrees" : fmt::format("{} WRONG", verdict.disagreements.size())});
  }
  return table.text();
}

nlohmann::ordered_json verdict_json(const std::vector<Verdict>& verdicts) {
  auto rows = nlohmann::ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    auto disagreements = nlohmann::ordered_json::array();
    for (const Verdict::Disagreement& one : verdict.disagreements) {
      disagreements.push_back({{"problem", one.problem.text()}, {"what", one.what}});
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
      fmt::print(stderr, "{} on {}: {}\n", verdict.variant, one.problem.text(), one.what);
    }
  }
}

}  // namespace attune::cli
