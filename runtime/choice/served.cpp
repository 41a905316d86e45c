#include "runtime/choice/served.hpp"

#include <fmt/format.h>

#include "runtime/choice/choice.hpp"
#include "runtime/choice/tuned_devices.hpp"

namespace attune {
namespace {

TunedVerdict verdict_on(std::span<const TunedTable> tables, const ProblemView& problem, const Device& device) {
  const TunedSource source = tuned_table_for(tables, device);
  if (source.table != nullptr) return TunedRows(*source.table, device).match(problem);
  TunedVerdict none;
  none.reason = source.reason;
  return none;
}

}  // namespace

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
             const Device& device, attune_compile_policy policy) {
  Served served{.variant = {}, .origin = Origin::ready, .tuned = {}, .frozen = {}};
  if (has_tuned_rows(problem.operation())) served.tuned = verdict_on(tables, problem, device);
  const TunedRow* const row = served.tuned.applies ? &*served.tuned.row : nullptr;
  const ReadyChoice choice = choose_ready(ready, problem, device, policy, row);
  if (choice.kernel != nullptr) served.frozen = choice.kernel->variant;
  if (!choice.preferred) {
    served.origin = Origin::nvrtc;
    served.variant = row != nullptr ? variant_for(*row, problem) : choose_own(problem, device).variant;
    return served;
  }
  served.variant = *served.frozen;
  if (row == nullptr) return served;
  const Variant tuned = variant_for(*row, problem);
  if (find_ready(ready, tuned, problem, device) == nullptr) {
    served.tuned.reason =
        fmt::format("nearest row {}: its variant {} is not ready; ATTUNE_COMPILE_EXACT would build it",
                    text_of(row->problem), tuned.name());
  }
  return served;
}

}  // namespace attune
