// Which kernel serves a problem, which were refused and why, without loading anything.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/tuned_verdict.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune {

/// What has the sequences of few queries of a ragged batch.
struct ShortDecision {
  DecodeProblem problem;
  Served serving;
  DecodePlan launch;
  Served merging;  ///< serves `problem.merge()`, where the launch combines
};

struct Decision {
  Problem problem;
  Device device;
  std::vector<Considered> considered;  ///< every kernel that is ready
  OwnChoice own;                       ///< what would be generated for these head dimensions
  Served serving;                      ///< the variant of the tuned row, else the best ready one, else `own`
  std::optional<PrefillPlan> launch;   ///< of `serving`; nothing when it is refused
  std::optional<ShortDecision> few;    ///< where short sequences are not `serving`'s, given a workspace
  std::vector<std::string> refusals;   ///< why no kernel can serve; empty when one does

  [[nodiscard]] bool served() const { return launch.has_value(); }
};

/// What a registry with the default compile policy and these tuned tables does about a sound problem on this GPU.
Decision decide(const Problem& problem, const Device& device, const ReadyKernels& ready = ReadyKernels(),
                std::span<const TunedTable> tables = {});

/// The same in the emulator, for which the host's compiler makes every kernel.
Decision decide_emulated(const Problem& problem);

/// The decision as a few lines for a person. Embedded kernels that were refused for several reasons are counted, and
/// `rest` says where to see them ("--all shows them"); they are listed where it is empty.
std::string decision_text(const Decision& decision, std::string_view rest);

}  // namespace attune
