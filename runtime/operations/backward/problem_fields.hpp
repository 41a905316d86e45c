// The fields of a problem of the backward pass.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/backward/problem.hpp"

namespace attune {

constexpr auto problem_fields(const BackwardProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = BackwardProblem;
  constexpr auto is_ragged = [](const P& p) { return p.ragged; };
  constexpr auto has_head_dim_v = [](const P& p) { return p.head_dim_of_v() != p.head_dim; };
  constexpr auto has_right = [](const P& p) { return !p.causal && p.window_right >= 0; };
  // All of the tensors are read 16 bytes at a time.
  constexpr FieldRange head_dim{.minimum = 8, .maximum = any_head_dim.maximum, .step = 8};
  constexpr FieldRange head_dim_v{.minimum = 8, .maximum = any_head_dim.maximum, .step = 8, .zero = "head_dim"};
  return std::tuple(
      field("dtype", &P::dtype, {kind, named, required}, {.tag = " "}),
      field("batch", &P::batch, {batch, size, required}, {.tag = " b"}),
      field("heads_q", &P::heads_q, {heads, named, required, at_least_one}, {.tag = " hq"}),
      field("heads_kv", &P::heads_kv, {heads, named, required, at_least_one}, {.tag = " hk"}),
      field("seqlen_q", &P::seqlen_q, {lengths, size, required, any_length}, {.tag = " lq"}),
      field("seqlen_k", &P::seqlen_k, {lengths, size, required, any_length}, {.tag = " lk"}),
      field("head_dim", &P::head_dim, {kind, named, required, head_dim}, {.tag = " d"}),
      field("head_dim_v", &P::head_dim_v, {kind, option, optional, head_dim_v}, {.tag = "v", .shown = has_head_dim_v}),
      field("causal", &P::causal, {mask, option, optional}, {.tag = " causal"}),
      field("window_left", &P::window_left, {mask, extent, optional, any_bound}, {.tag = " left"}),
      field("window_right", &P::window_right, {mask, extent, optional, any_bound},
            {.tag = " right", .shown = has_right}),
      field("softcap", &P::softcap, {mask, option, optional}, {.tag = " softcap"}),
      field("ragged", &P::ragged, {feature, option, optional}, {.tag = " ragged"}),
      field("total_q", &P::total_q, {feature, extent, optional, any_length}, {.tag = " tq", .applies = is_ragged}),
      field("total_k", &P::total_k, {feature, extent, optional, any_length}, {.tag = " tk", .applies = is_ragged}),
      field("dropout", &P::dropout, {feature, option, optional}, {.tag = " dropout"}),
      field("any_order", &P::any_order, {feature, option, optional}, {.tag = " any_order"}),
      field("mappable_strides", &P::mappable_strides, {}));
}

}  // namespace attune
