// Which variant serves a problem of any operation: a ready one, or one made at run time. The same for GPUs and for the
// emulator.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "generator/emit.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/call/fit.hpp"
#include "runtime/choice/tuned.hpp"

namespace attune {

/// One candidate and, when it cannot serve the problem, why.
struct Considered {
  Variant variant;
  std::vector<std::string> refusals;  ///< empty: it could serve
};

/// All candidates with their refusals, in the order given.
std::vector<Considered> consider(std::span<const Variant> candidates, const ProblemView& problem, const Device& device);

/// Whether a kernel of decode has so few rows to a tile, three tiles and more for all heads that share keys, that it
/// takes several times as long as what would be generated, whose warps share keys: the one for which calls wait for the
/// compiler though another is ready.
bool reads_keys_again(const Variant& variant, const ProblemView& problem, const Variant& own);

/// The best kernel that is ready, and whether the policy prefers it to one made for the problem's head dimensions.
struct ReadyChoice {
  const ReadyKernel* kernel = nullptr;  ///< null when none serves
  bool preferred = false;
};

/// The kernel of a variant that is ready and serves the problem there, for whichever GPUs it was made; null where there
/// is none.
const ReadyKernel* find_ready(const ReadyKernels& ready, const Variant& variant, const ProblemView& problem,
                              const Device& device);

/// The variant of a ready kernel that the heuristic chooses for a problem of any operation: one that tables of
/// tuned problems alone asked for only where no other serves. Nothing where none does.
std::optional<Variant> choose_of_ready(const ReadyKernels& ready, const ProblemView& problem, const Device& device);

/// For a problem of any operation. `tuned` is the row that answers for it, or null: its variant goes before what the
/// heuristic chooses where it is ready or the policy would have it compiled.
ReadyChoice choose_ready(const ReadyKernels& ready, const ProblemView& problem, const Device& device,
                         attune_compile_policy policy, const TunedRow* tuned = nullptr);

/// What would be generated for a problem.
struct OwnChoice : Considered {
  std::vector<Considered> passed_over;  ///< of newer families that this GPU runs
};

/// For a problem of any operation: the default variant of the newest of its families that serves it, else the oldest's.
OwnChoice choose_own(const ProblemView& problem, const Device& device);

/// The variant to generate for a problem of any operation: that of the row that answers for it, if there is one. Throws
/// Error{ATTUNE_UNSUPPORTED} when no kernel can serve it there.
Variant variant_to_generate(const ProblemView& problem, const Device& device, const TunedRow* tuned = nullptr);

/// The source of a variant, from the templates of the library.
Source generate(const Variant& variant);

}  // namespace attune
