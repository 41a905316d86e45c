// Needs as tests write them.
#pragma once

#include <initializer_list>

#include "generator/need.hpp"

namespace attune {

/// A need of prefill's or decode's kernels that asks for nothing else.
inline Need need_for(Dtype dtype, int head_dim, bool causal = false, int head_dim_v = 0) {
  return {.dtype = static_cast<int>(dtype),
          .head_dim = head_dim,
          .head_dim_v = head_dim_v == head_dim ? 0 : head_dim_v,
          .causal = causal ? 1 : 0};
}

/// The same with more, by the names of fields.
inline Need asking(Need need, std::initializer_list<int Need::*> asked) {
  for (int Need::*const member : asked) need.*member = 1;
  if (need.window != 0) need.causal = 0;
  return need;
}

}  // namespace attune
