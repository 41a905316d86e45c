#include "runtime/choice/tuned_verdict.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "runtime/base/text.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/tuned_devices.hpp"

namespace attune {
namespace {

std::string problem_text(const TunedRow& row) {
  return std::visit([](const auto& problem) { return problem.text(); }, row.problem);
}

TunedVerdict verdict_on(std::span<const TunedTable> tables, const ProblemView& problem, const Device& device) {
  const TunedSource source = tuned_table_for(tables, device);
  if (source.table == nullptr) return {.row = {}, .distance = 0, .applies = false, .reason = source.reason, .gpu = {}};
  TunedMatch match = TunedRows(*source.table, device).match(problem);
  TunedVerdict verdict{
      .row = {}, .distance = match.distance, .applies = match.applies(), .reason = {}, .gpu = source.table->gpu.name};
  if (match.row == nullptr) {
    verdict.reason = "the table has no row of this element type, head dimensions, mask and features";
    return verdict;
  }
  verdict.row = *match.row;
  if (match.distance > tuned_limit) {
    verdict.reason =
        fmt::format("nearest row {} is {:.1f} away, limit {}", problem_text(*match.row), match.distance, tuned_limit);
  } else if (!match.applies()) {
    verdict.reason = fmt::format("nearest row {}: its variant is refused: {}", problem_text(*match.row),
                                 fmt::join(match.refusals, "; "));
  }
  return verdict;
}

}  // namespace

std::string TunedVerdict::text() const {
  if (!reason.empty()) return fmt::format("  untuned: {}\n", reason);
  if (!row) return {};
  const TunedResult& result = row->result;
  constexpr double microsecond = 1e-6;
  return fmt::format("  tuned by the row {}, {:.1f} away: {} instead of the heuristic's {} ({:.2f} x), {}, {}\n",
                     problem_text(*row), distance, seconds_text(result.microseconds * microsecond),
                     seconds_text(result.default_microseconds * microsecond),
                     result.default_microseconds / result.microseconds, gpu, result.date);
}

std::string Served::frozen_text() const {
  if (origin == Origin::ready) return {};
  if (frozen) return fmt::format("  the compile policy 'frozen' would take the ready {}\n", frozen->name());
  return "  the compile policy 'frozen' would refuse the call, unless the cache has this kernel\n";
}

std::string_view origin_text(Origin origin) {
  switch (origin) {
    case Origin::ready:
      return "ready";
    case Origin::nvrtc:
      return "nvrtc";
    case Origin::host_compiler:
      break;
  }
  return "host compiler";
}

Served serve(const ReadyKernels& ready, std::span<const TunedTable> tables, const ProblemView& problem,
             const Device& device) {
  Served served{.variant = {}, .origin = Origin::ready, .tuned = {}, .frozen = {}};
  if (has_tuned_rows(problem.operation())) served.tuned = verdict_on(tables, problem, device);
  if (served.tuned.applies) {
    const Variant tuned = variant_for(*served.tuned.row, problem);
    if (const ReadyKernel* kernel = find_ready(ready, tuned, problem, device)) {
      served.variant = kernel->variant;
      return served;
    }
  }
  const Variant own = choose_own(problem, device).variant;
  const std::optional<Variant> best = choose_of_ready(ready, problem, device);
  if (best && !reads_keys_again(*best, problem, own)) {
    served.variant = *best;
    if (served.tuned.applies) {
      const TunedRow& row = *served.tuned.row;
      served.tuned.reason =
          fmt::format("nearest row {}: its variant {} is not ready; ATTUNE_COMPILE_EXACT would build it",
                      problem_text(row), variant_for(row, problem).name());
    }
    return served;
  }
  served.origin = Origin::nvrtc;
  served.frozen = best;
  served.variant = served.tuned.applies ? variant_for(*served.tuned.row, problem) : own;
  return served;
}

}  // namespace attune
