// The fields of a problem of rotating queries and keys.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/rotary/problem.hpp"

namespace attune {

constexpr auto problem_fields(const RotaryProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = RotaryProblem;
  return std::tuple(field("dtype", &P::dtype, {kind, named}, {.tag = " "}),
                    field("batch", &P::batch, {batch, size}, {.tag = " b"}),
                    field("seqlen", &P::seqlen, {lengths, size, absent, any_length}, {.tag = " l"}),
                    field("heads_q", &P::heads_q, {heads, named, absent, at_least_one}, {.tag = " hq"}),
                    field("heads_kv", &P::heads_kv, {heads, named}, {.tag = " hk"}),
                    field("head_dim", &P::head_dim, {kind, named, absent, whole_head_dim}, {.tag = " d"}),
                    field("rotary", &P::rotary, {feature, named}, {.tag = " "}),
                    field("rotary_dim", &P::rotary_dim, {feature, named, absent, any_number}, {.tag = ""}),
                    field("rotations", &P::rotations, {feature, size, absent, any_extent}));
}

}  // namespace attune
