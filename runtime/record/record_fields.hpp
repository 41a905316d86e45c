// The fields of each problem as records have them: one table for writing, reading and telling sizes from the rest.
#pragma once

#include <tuple>
#include <type_traits>

#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/merge/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

/// How a field behaves in a record.
enum class FieldRole {
  named,   ///< every line has it
  size,    ///< so it is, and sizes that are near count as one
  option,  ///< left out where it has its usual value
  extent,  ///< a size that is left out so
};

template <FieldRole Role, class Owner, class Value>
struct RecordField {
  static constexpr FieldRole role = Role;
  const char* name;
  Value Owner::*member;
};

template <FieldRole Role, class Owner, class Value>
constexpr RecordField<Role, Owner, Value> record_field(const char* name, Value Owner::*member) {
  return {name, member};
}

/// Of a RecordField, however it is passed.
template <class Field>
inline constexpr bool field_is_size =
    std::remove_cvref_t<Field>::role == FieldRole::size || std::remove_cvref_t<Field>::role == FieldRole::extent;
template <class Field>
inline constexpr bool field_is_always_there =
    std::remove_cvref_t<Field>::role == FieldRole::named || std::remove_cvref_t<Field>::role == FieldRole::size;

/// A tuple of RecordFields, in the order of a line.
template <class OneProblem>
constexpr auto record_fields() {
  using enum FieldRole;
  if constexpr (std::is_same_v<OneProblem, Problem>) {
    return std::tuple(
        record_field<named>("dtype", &Problem::dtype), record_field<size>("batch", &Problem::batch),
        record_field<named>("heads_q", &Problem::heads_q), record_field<named>("heads_kv", &Problem::heads_kv),
        record_field<size>("seqlen_q", &Problem::seqlen_q), record_field<size>("seqlen_k", &Problem::seqlen_k),
        record_field<named>("head_dim", &Problem::head_dim), record_field<option>("head_dim_v", &Problem::head_dim_v),
        record_field<option>("causal", &Problem::causal), record_field<extent>("window_left", &Problem::window_left),
        record_field<extent>("window_right", &Problem::window_right),
        record_field<option>("softcap", &Problem::softcap), record_field<option>("ragged", &Problem::ragged),
        record_field<extent>("total_q", &Problem::total_q), record_field<extent>("total_k", &Problem::total_k),
        record_field<option>("paged", &Problem::paged), record_field<extent>("page_size", &Problem::page_size),
        record_field<extent>("pages", &Problem::pages), record_field<extent>("table_width", &Problem::table_width),
        record_field<option>("mappable_strides", &Problem::mappable_strides));
  } else if constexpr (std::is_same_v<OneProblem, DecodeProblem>) {
    return std::tuple(
        record_field<named>("dtype", &DecodeProblem::dtype), record_field<size>("batch", &DecodeProblem::batch),
        record_field<named>("seqlen_q", &DecodeProblem::seqlen_q),
        record_field<named>("heads_q", &DecodeProblem::heads_q),
        record_field<named>("heads_kv", &DecodeProblem::heads_kv),
        record_field<named>("head_dim", &DecodeProblem::head_dim),
        record_field<size>("max_seqlen_k", &DecodeProblem::max_seqlen_k),
        record_field<option>("equal_lengths", &DecodeProblem::equal_lengths),
        record_field<size>("page_size", &DecodeProblem::page_size), record_field<size>("pages", &DecodeProblem::pages),
        record_field<size>("table_width", &DecodeProblem::table_width),
        record_field<option>("splits", &DecodeProblem::splits),
        record_field<extent>("window_left", &DecodeProblem::window_left),
        record_field<extent>("window_right", &DecodeProblem::window_right),
        record_field<option>("softcap", &DecodeProblem::softcap),
        record_field<extent>("seqlen_new", &DecodeProblem::seqlen_new),
        record_field<option>("rotary", &DecodeProblem::rotary),
        record_field<option>("rotary_dim", &DecodeProblem::rotary_dim),
        record_field<extent>("rotations", &DecodeProblem::rotations),
        record_field<option>("ragged", &DecodeProblem::ragged),
        record_field<extent>("total_q", &DecodeProblem::total_q),
        record_field<option>("packed_keys", &DecodeProblem::packed_keys),
        record_field<extent>("total_k", &DecodeProblem::total_k));
  } else if constexpr (std::is_same_v<OneProblem, StoreProblem>) {
    return std::tuple(
        record_field<named>("dtype", &StoreProblem::dtype), record_field<size>("batch", &StoreProblem::batch),
        record_field<size>("tokens", &StoreProblem::tokens), record_field<named>("heads_kv", &StoreProblem::heads_kv),
        record_field<named>("head_dim", &StoreProblem::head_dim),
        record_field<size>("page_size", &StoreProblem::page_size), record_field<size>("pages", &StoreProblem::pages),
        record_field<size>("table_width", &StoreProblem::table_width),
        record_field<option>("rotary", &StoreProblem::rotary),
        record_field<option>("rotary_dim", &StoreProblem::rotary_dim),
        record_field<extent>("rotations", &StoreProblem::rotations));
  } else if constexpr (std::is_same_v<OneProblem, MergeProblem>) {
    return std::tuple(
        record_field<named>("dtype", &MergeProblem::dtype), record_field<size>("batch", &MergeProblem::batch),
        record_field<size>("seqlen", &MergeProblem::seqlen), record_field<named>("heads", &MergeProblem::heads),
        record_field<named>("head_dim", &MergeProblem::head_dim));
  } else {
    static_assert(std::is_same_v<OneProblem, CheckProblem>);
    return std::tuple();
  }
}

/// The word that a line has for the operation.
template <class OneProblem>
constexpr const char* operation_word() {
  if constexpr (std::is_same_v<OneProblem, Problem>) return "prefill";
  if constexpr (std::is_same_v<OneProblem, DecodeProblem>) return "decode";
  if constexpr (std::is_same_v<OneProblem, StoreProblem>) return "store_kv";
  if constexpr (std::is_same_v<OneProblem, MergeProblem>) return "merge_states";
  return "check_tables";
}

}  // namespace attune
