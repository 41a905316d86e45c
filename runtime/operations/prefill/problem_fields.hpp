// The fields of a prefill problem.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

constexpr auto problem_fields(const Problem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = Problem;
  constexpr auto is_ragged = [](const P& p) { return p.ragged; };
  constexpr auto has_total_k = [](const P& p) { return p.ragged && !p.paged; };
  constexpr auto is_paged = [](const P& p) { return p.paged; };
  constexpr auto has_head_dim_v = [](const P& p) { return p.head_dim_of_v() != p.head_dim; };
  constexpr auto has_right = [](const P& p) { return !p.causal && p.window_right >= 0; };
  constexpr FieldRange head_dim_v{.minimum = any_head_dim.minimum, .maximum = any_head_dim.maximum, .zero = "head_dim"};
  return std::tuple(
      field("dtype", &P::dtype, {kind, named, required}, {.tag = " ", .doc = "fp16 or bf16"}),
      field("batch", &P::batch, {batch, size, required}, {.tag = " b", .doc = "Sequences"}),
      field("heads_q", &P::heads_q, {heads, named, required, at_least_one}, {.tag = " hq", .doc = "Query heads"}),
      field("heads_kv", &P::heads_kv, {heads, named, required, at_least_one},
            {.tag = " hk", .doc = "Key/value heads; must divide --heads-q [default: --heads-q]"}),
      field("seqlen_q", &P::seqlen_q, {lengths, size, required, any_length},
            {.tag = " lq", .doc = "Queries of each sequence"}),
      field("seqlen_k", &P::seqlen_k, {lengths, size, required, any_length},
            {.tag = " lk", .doc = "Keys of each sequence [default: --seqlen-q]"}),
      field("head_dim", &P::head_dim, {kind, named, required, any_head_dim},
            {.tag = " d", .doc = "Head dimension, up to 256"}),
      field("head_dim_v", &P::head_dim_v, {kind, option, optional, head_dim_v},
            {.tag = "v", .doc = "Head dimension of V and O [default: --head-dim]", .shown = has_head_dim_v}),
      field("causal", &P::causal, {mask, option, optional},
            {.tag = " causal", .doc = "Query i sees keys j <= i + seqlen_k - seqlen_q"}),
      field("window_left", &P::window_left, {mask, extent, optional, any_bound},
            {.tag = " left", .doc = "Keys that a query sees before its own position; -1: all"}),
      field("window_right", &P::window_right, {mask, extent, optional, any_bound},
            {.tag = " right", .doc = "Keys that a query sees after its own position; -1: all", .shown = has_right}),
      field("softcap", &P::softcap, {mask, option, optional},
            {.tag = " softcap", .doc = "Scores x become softcap * tanh(x / softcap); 0: they stay"}),
      field("ragged", &P::ragged, {feature, option, optional}, {.tag = " ragged"}),
      field("total_q", &P::total_q, {feature, extent, optional, any_length}, {.tag = " tq", .applies = is_ragged}),
      field("total_k", &P::total_k, {feature, extent, optional, any_length}, {.tag = " tk", .applies = has_total_k}),
      field("paged", &P::paged, {}),
      field("page_size", &P::page_size, {cache, extent, optional, any_extent}, {.tag = " page", .applies = is_paged}),
      field("pages", &P::pages, {feature, extent, absent, any_length}, {.applies = is_paged}),
      field("table_width", &P::table_width, {feature, extent, absent, any_extent}, {.applies = is_paged}),
      field("dropout", &P::dropout, {feature, option, optional}, {.tag = " dropout"}),
      field("mappable_strides", &P::mappable_strides, {}), field("mappable_pages", &P::mappable_pages, {}));
}

}  // namespace attune
