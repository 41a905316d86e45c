// A call of decode: [store] decode [combine], in one plan or, where there are more sequences than a launch takes, in
// several.
#pragma once

#include "attune/attune.h"
#include "runtime/call/backend.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune {

/// Prepares all kernels that calls of this problem need.
void prepare(const DecodeProblem& problem, FindKernel prepare_kernel);

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

/// Bytes of workspace that calls of this problem need.
std::size_t workspace_bytes(const DecodeProblem& problem, MostBytes most);

}  // namespace attune
