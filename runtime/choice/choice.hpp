// Which variant serves a problem: a ready one, or one made at run time. The same for GPUs and for the emulator, and
// for every operation: a problem type has an `operation`, an ask() and a text().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "generator/emit.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/tuned.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/chunk_plan.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune {

/// The best kernel that is ready, and whether the policy prefers it to one made for the problem's head dimensions.
struct ReadyChoice {
  const ReadyKernel* kernel = nullptr;  ///< null when none serves
  bool preferred = false;
};

/// The kernel of a variant that is ready and serves the problem there, for whichever GPUs it was made; null where there
/// is none.
template <class AnyProblem>
const ReadyKernel* find_ready(const ReadyKernels& ready, const Variant& variant, const AnyProblem& problem,
                              const Device& device);

/// The variant of a ready kernel that the heuristic chooses for a problem of any operation: one that tables of
/// tuned problems alone asked for only where no other serves. Nothing where none does.
template <class AnyProblem>
std::optional<Variant> choose_of_ready(const ReadyKernels& ready, const AnyProblem& problem, const Device& device);

/// For a problem of any operation. `tuned` is the row that answers for it, or null: its variant goes before what the
/// heuristic chooses where it is ready or the policy would have it compiled.
template <class AnyProblem>
ReadyChoice choose_ready(const ReadyKernels& ready, const AnyProblem& problem, const Device& device,
                         attune_compile_policy policy, const TunedRow* tuned = nullptr);

/// What would be generated for a problem.
struct OwnChoice {
  Variant variant;
  std::vector<std::string> refusals;    ///< why not even this serves; empty when it does
  std::vector<Considered> passed_over;  ///< of newer families that this GPU runs
};

/// For a problem of any operation: the default variant of the newest of its families that serves it without wasting
/// padding, else the oldest's.
template <class AnyProblem>
OwnChoice choose_own(const AnyProblem& problem, const Device& device);

/// The variant to generate for a problem of any operation: that of the row that answers for it, if there is one. Throws
/// Error{ATTUNE_UNSUPPORTED} when no kernel can serve it there.
template <class AnyProblem>
Variant variant_to_generate(const AnyProblem& problem, const Device& device, const TunedRow* tuned = nullptr);

/// The source of a variant, from the templates of the library.
Source generate(const Variant& variant);

}  // namespace attune
