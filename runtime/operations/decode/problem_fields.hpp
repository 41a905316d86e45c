// The fields of problems of decoding, and of what is left to combine after it.
#pragma once

#include <tuple>

#include "runtime/call/problem_fields.hpp"
#include "runtime/operations/decode/problem.hpp"

namespace attune {

constexpr auto problem_fields(const DecodeProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = DecodeProblem;
  constexpr auto is_paged = [](const P& p) { return p.paged(); };
  constexpr auto has_pages = [](const P& p) { return !p.packed_keys; };
  constexpr auto is_rotated = [](const P& p) { return p.rotates(); };
  constexpr auto is_ragged = [](const P& p) { return p.ragged; };
  constexpr auto is_packed = [](const P& p) { return p.packed_keys; };
  return std::tuple(
      field("dtype", &P::dtype, {kind, named, required}, {.tag = " "}),
      field("batch", &P::batch, {batch, size, required}, {.tag = " b"}),
      field("seqlen_q", &P::seqlen_q, {lengths, named, required, {.maximum = most_decode_queries}}, {.tag = " lq"}),
      field("heads_q", &P::heads_q, {heads, named, required, at_least_one}, {.tag = " hq"}),
      field("heads_kv", &P::heads_kv, {heads, named, required, at_least_one}, {.tag = " hk"}),
      field("head_dim", &P::head_dim, {kind, named, required, any_head_dim}, {.tag = " d"}),
      field("max_seqlen_k", &P::max_seqlen_k, {lengths, size, required, any_length},
            {.tag = " lk", .name = "seqlen_k"}),
      field("equal_lengths", &P::equal_lengths, {feature, option, optional}),
      field("page_size", &P::page_size, {cache, size, optional, any_extent},
            {.tag = " page",
             .doc = "Tokens of a page [default: the cache is contiguous]",
             .applies = has_pages,
             .shown = is_paged}),
      field("pages", &P::pages, {feature, size, absent, any_length}, {.applies = has_pages}),
      field("table_width", &P::table_width, {feature, size, absent, any_extent}, {.applies = has_pages}),
      field("splits", &P::splits, {feature, option, optional, {.maximum = 256}},
            {.tag = " splits", .doc = "Parts of the keys of each sequence; 0: as many as are fastest"}),
      field("window_left", &P::window_left, {mask, extent, optional, any_bound}, {.tag = " left"}),
      field("window_right", &P::window_right, {feature, extent, absent, any_bound}, {.tag = " right"}),
      field("softcap", &P::softcap, {mask, option, optional}, {.tag = " softcap"}),
      field("seqlen_new", &P::seqlen_new, {feature, extent},
            {.tag = " new", .doc = "Keys that the call appends to each sequence; --seqlen-k counts them"}),
      field("rotary", &P::rotary, {feature, option, optional},
            {.tag = " ", .doc = "How new keys and queries are rotated"}),
      field("rotary_dim", &P::rotary_dim, {feature, option, absent, any_number}, {.tag = "", .applies = is_rotated}),
      field("rotations", &P::rotations, {feature, extent, absent, any_extent}, {.applies = is_rotated}),
      field("ragged", &P::ragged, {feature, option, optional}, {.tag = " ragged"}),
      field("total_q", &P::total_q, {feature, extent, optional, any_length}, {.tag = " tq", .applies = is_ragged}),
      field("longest_q", &P::longest_q, {}), field("packed_keys", &P::packed_keys, {}),
      field("total_k", &P::total_k, {feature, extent, optional, any_length}, {.tag = " tk", .applies = is_packed}));
}

constexpr auto problem_fields(const CombineProblem* /*type*/) {
  using enum Topic;
  using enum RecordRole;
  using enum RowRole;
  using P = CombineProblem;
  return std::tuple(field("dtype", &P::dtype, {kind, named}, {.tag = " "}),
                    field("head_dim", &P::head_dim, {kind, named, absent, whole_head_dim}, {.tag = " d"}),
                    field("ragged", &P::ragged, {}, {.tag = " ragged"}));
}

}  // namespace attune
