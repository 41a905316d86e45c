// Explains calls of each operation, without loading anything.
#pragma once

#include <concepts>
#include <span>

#include "attune/attune.h"
#include "runtime/base/error.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/explanation.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// What a call meets.
struct Surroundings {
  const Device& device;
  const ReadyKernels& ready;
  std::span<const TunedTable> tables;
  attune_compile_policy policy;
};

/// What does not depend on launches: it has none yet.
Explanation explain_choice(const ProblemView& problem, const Surroundings& around);

/// Adds the launches of a call that a kernel serves, or why there are none.
void add_launches(Explanation& explanation, const Problem& problem, const Surroundings& around);
void add_launches(Explanation& explanation, const DecodeProblem& problem, const Surroundings& around);
void add_launches(Explanation& explanation, const BackwardProblem& problem, const Surroundings& around);

/// Its grid follows from a call's arguments.
void add_launches(Explanation& explanation, const CheckProblem& problem, const Surroundings& around);

/// Of another problem with one launch.
template <class OneLaunch>
requires requires(const Variant& variant, const OneLaunch& problem) {
  { plan(variant, problem) } -> std::same_as<Launch>;
}
void add_launches(Explanation& explanation, const OneLaunch& problem, const Surroundings& /*around*/) {
  explanation.launch = plan(explanation.serving.variant, problem);
}

/// What a registry with this compile policy and these tuned tables comes to about a sound problem on this GPU, where
/// kernels may be compiled: what stands in until then is not told. What no grid holds is refused as what no kernel
/// serves.
template <class AnyProblem>
Explanation explain(const AnyProblem& problem, const Device& device, const ReadyKernels& ready = ReadyKernels(),
                    std::span<const TunedTable> tables = {}, attune_compile_policy policy = ATTUNE_COMPILE_MISSING) {
  const Surroundings around{.device = device, .ready = ready, .tables = tables, .policy = policy};
  Explanation result = explain_choice(problem, around);
  if (!result.refusals.empty()) return result;
  try {
    add_launches(result, problem, around);
  } catch (const Error& error) {
    if (error.status() != ATTUNE_UNSUPPORTED) throw;
    result.refuse({error.what()});
  }
  return result;
}

/// The explanation where the host's compiler makes every kernel, which nobody times.
Explanation emulated(Explanation explanation);

/// The same in the emulator.
template <class AnyProblem>
Explanation explain_emulated(const AnyProblem& problem) {
  return emulated(explain(problem, emulator::device()));
}

}  // namespace attune
