// A call as XLA hands it over, as the C ABI takes it: buffers by their order, options by their names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/python/xla_ffi_abi.hpp"

namespace attune::python {

/// What a call has besides tensors of rows; the arguments that are made of it point here.
struct XlaExpressions {
  /// Throws Error where the frame has other attributes or buffers than those of xla_handler.hpp.
  explicit XlaExpressions(const xla::CallFrame& frame);
  XlaExpressions(const XlaExpressions&) = delete;
  XlaExpressions& operator=(const XlaExpressions&) = delete;

  std::string score;  ///< empty: none
  std::string mask;   ///< likewise
  std::vector<std::string> names;
  std::vector<attune_named_array> params;
  std::int64_t others = 0;  ///< buffers before these
};

/// The arguments of the two, but for a workspace. Throw as XlaExpressions does.
attune_prefill_args prefill_arguments(const xla::CallFrame& frame, const XlaExpressions& expressions);
attune_backward_args backward_arguments(const xla::CallFrame& frame, const XlaExpressions& expressions);

}  // namespace attune::python
