// Expressions of scores and masks, and what they look up.
#ifndef ATTUNE_EXPRESSIONS_HPP
#define ATTUNE_EXPRESSIONS_HPP

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"

namespace attune::api {

/// An array that expressions look up.
using NamedArray = attune_named_array;

/// What scores become before the softmax, and which keys a query sees of those that other masks leave it (attune.h,
/// attune_prefill_args): "s + slope[h] * (k - p) where slope: fp32[head]", "k <= p". The texts and arrays outlive
/// args().
struct Expressions {
  std::string score = {};  ///< empty: scores stay
  std::string mask = {};   ///< empty: none
  std::vector<NamedArray> params = {};

  /// Sets the arguments of a call.
  template <class Args>
  void set(Args& args) const {
    args.score = score.empty() ? nullptr : score.c_str();
    args.mask = mask.empty() ? nullptr : mask.c_str();
    args.params = params.data();
    args.param_count = static_cast<std::int32_t>(params.size());
  }
};

}  // namespace attune::api

#endif
