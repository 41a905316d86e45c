// The fields of a problem of merging two results.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/merge/problem.hpp"

namespace attune {

constexpr auto problem_fields(const MergeProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = MergeProblem;
  return std::tuple(field("dtype", &P::dtype, {kind, named}, {.tag = " "}),
                    field("batch", &P::batch, {batch, size}, {.tag = " b"}),
                    field("seqlen", &P::seqlen, {lengths, size, absent, any_length}, {.tag = " l"}),
                    field("heads", &P::heads, {heads, named, absent, at_least_one}, {.tag = " h"}),
                    field("head_dim", &P::head_dim, {kind, named, absent, whole_head_dim}, {.tag = " d"}));
}

}  // namespace attune
