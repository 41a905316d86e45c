// A call of decode: [store] decode [combine], in one plan or, where there are more sequences than a launch takes, in
// several.
#pragma once

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/call/plan.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "templates/expressed_decode_params.h"

namespace attune {

/// Prepares all kernels that calls of this problem need.
void prepare(const DecodeProblem& problem, FindKernel prepare_kernel);

/// The launches of a planned, checked call of no more sequences than a launch takes, its new keys apart. What it is
/// made from outlives it, and it the plans that have it.
class DecodeSteps {
 public:
  /// `combine`: what merges the parts; null where none are to be merged.
  DecodeSteps(const attune_decode_args& args, const DecodeProblem& problem, const ServingKernel& kernel,
              const DecodePlan& launch, const ServingKernel* combine);
  DecodeSteps(const DecodeSteps&) = delete;
  DecodeSteps& operator=(const DecodeSteps&) = delete;

  /// Adds them; `order`: of the first.
  void add_to(Plan& plan, LaunchOrder order) const;

 private:
  // What either launch may touch.
  struct Attended {
    const DecodeSteps* steps;
    void operator()(VisitOperand visit) const;
  };
  struct Merged {
    const DecodeSteps* steps;
    void operator()(VisitOperand visit) const;
  };

  const attune_decode_args& args_;
  const DecodeProblem& problem_;
  const ServingKernel& kernel_;
  const DecodePlan& launch_;
  const ServingKernel* combine_;
  AttuneExpressedDecodeParams params_;  ///< kernels without expressions read the first part alone
  Attended attended_{this};
  Merged merged_{this};
};

/// What becomes of the keys that a call appends.
enum class NewKeys {
  stored,         ///< its first launch stores them
  already_there,  ///< the cache has them, and that launch is left out
};

/// Runs a checked call of no more sequences than a launch takes, with a kernel of decode as it was planned for it.
void run(const attune_decode_args& args, const DecodeProblem& problem, const ServingKernel& kernel,
         const DecodePlan& launch, const Backend& backend, NewKeys keys = NewKeys::stored);

/// Runs a checked call.
void run(const attune_decode_args& args, const DecodeProblem& problem, const Backend& backend);

/// Bytes of workspace that calls of this problem need, which may be a part that another call can do without.
std::size_t workspace_bytes(const DecodeProblem& problem, MostBytes most, Needed needed = Needed::yes);

}  // namespace attune
