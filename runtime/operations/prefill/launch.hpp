// A planned call of prefill: the parameter block that its kernel reads, and its launch.
#pragma once

#include <variant>

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"
#include "templates/carried_rows.h"
#include "templates/dropout.h"
#include "templates/expressed_params.h"
#include "templates/expressed_tensor_params.h"
#include "templates/paged_params.h"
#include "templates/params.h"
#include "templates/shared_tiles.h"
#include "templates/stacked_params.h"
#include "templates/tensor_params.h"
#include "templates/tile_list.h"

namespace attune {

/// The block of one of the kinds that prefill's families have.
class PrefillParams {
 public:
  /// Of a planned, checked call. `words`: where a launch before it leaves which blocks a mask leaves; null: nowhere.
  PrefillParams(const attune_prefill_args& args, const Problem& problem, const PrefillPlan& plan, Executor& executor,
                unsigned* words = nullptr);

  /// What Step::params is.
  [[nodiscard]] const void* get() const;

  /// What the launch uses of the call's workspace.
  void visit_workspace(VisitOperand visit) const;

 private:
  using Block =
      std::variant<AttunePrefillParams, AttuneTensorPrefillParams, AttuneListedPrefillParams, AttuneSharedPrefillParams,
                   AttuneCarriedPrefillParams, WithDropout<AttunePrefillParams>, WithDropout<AttuneTensorPrefillParams>,
                   AttuneExpressedPrefillParams, AttuneExpressedTensorParams, AttuneListedExpressedParams,
                   WithDropout<AttuneExpressedPrefillParams>, WithDropout<AttuneExpressedTensorParams>,
                   WithPages<AttuneTensorPrefillParams>, WithPages<AttuneExpressedTensorParams>,
                   WithDropout<WithPages<AttuneTensorPrefillParams>>,
                   WithDropout<WithPages<AttuneExpressedTensorParams>>, WithPages<AttuneSharedPrefillParams>,
                   AttuneStackedPrefillParams>;
  static Block made(const attune_prefill_args& args, const Problem& problem, const PrefillPlan& plan,
                    Executor& executor, unsigned* words);

  MaskBlocksPlan mask_blocks_;
  const unsigned* words_;
  long long signals_;         ///< how many the workspace has
  long long carried_floats_;  ///< likewise
  Block block_;
};

/// Prepares all kernels that calls of this problem need.
void prepare(const Problem& problem, FindKernel prepare_kernel);

/// Runs a checked call with a kernel as it was planned for it, after the one that tells which blocks a mask leaves, if
/// there is one: else null.
void run(const attune_prefill_args& args, const Problem& problem, const ServingKernel& kernel,
         const PrefillPlan& launch, Executor& executor, void* stream, const ServingKernel* mask_kernel = nullptr);

/// Runs a checked call.
void run(const attune_prefill_args& args, const Problem& problem, const Backend& backend);

/// Bytes of workspace that calls of this problem make use of.
std::size_t workspace_bytes(const Problem& problem, MostBytes most);

}  // namespace attune
