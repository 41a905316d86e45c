// The fields of a problem of storing new keys and values.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

constexpr auto problem_fields(const StoreProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = StoreProblem;
  constexpr auto is_rotated = [](const P& p) { return p.rotates(); };
  return std::tuple(
      field("dtype", &P::dtype, {kind, named}, {.tag = " "}), field("batch", &P::batch, {batch, size}, {.tag = " b"}),
      field("tokens", &P::tokens, {lengths, size, absent, any_length}, {.tag = " t"}),
      field("heads_kv", &P::heads_kv, {heads, named, absent, at_least_one}, {.tag = " hk"}),
      field("head_dim", &P::head_dim, {kind, named, absent, any_head_dim}, {.tag = " d"}),
      field("page_size", &P::page_size, {cache, size, absent, any_extent}, {.tag = " page"}),
      field("pages", &P::pages, {lengths, size, absent, any_length}, {.tag = " pages"}),
      field("table_width", &P::table_width, {feature, size, absent, any_extent}),
      field("rotary", &P::rotary, {}, {.tag = " "}),
      field("rotary_dim", &P::rotary_dim, {feature, option, absent, any_number}, {.tag = "", .applies = is_rotated}),
      field("rotations", &P::rotations, {feature, extent, absent, any_extent}, {.applies = is_rotated}));
}

}  // namespace attune
