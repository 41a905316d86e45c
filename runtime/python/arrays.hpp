// The arrays of a call that are no tensors of rows: lengths, places, positions, LSEs. Each goes into the member of the
// call's arguments that points to it, and what that member points to is what the array must hold, as it is of the
// operation's operands (runtime/call/operand.hpp); read_each_row() alone leaves that to its caller.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "runtime/python/operands.hpp"

namespace attune::python {

/// What the array of such a member holds.
template <class Member>
inline constexpr Element element_of = Element::other;
template <>
inline constexpr Element element_of<float> = Element::float32;
template <>
inline constexpr Element element_of<std::int32_t> = Element::int32;
template <>
inline constexpr Element element_of<std::int64_t> = Element::int64;

/// read_plain() of a member's elements.
template <class Member>
Array read_into(const Member*& member, const First& first, const char* name, nanobind::handle array,
                std::span<const std::int64_t> shape, Demand demand) {
  static_assert(element_of<Member> != Element::other);
  const Array read = read_plain(first, name, array, {element_of<Member>}, shape, demand);
  member = pointer<const Member>(read.address);
  return read;
}

/// The sequences of a call.
struct Sequences {
  const char* argument;  ///< that says how many there are
  std::int32_t count;
};

/// What of a shape depends on a tensor, or on how many sequences there are.
std::string demand_with(const Operand& of, std::span<const std::int64_t> wanted);
std::string demand_with(const Sequences& sequences, const char* wanted);

/// Of cu_seqlens_q, an int32 array (batch + 1,), which becomes `member`.
Sequences read_starts(const std::int32_t*& member, const First& first, nanobind::handle array);

/// An int32 array (batch + 1,) beside it.
void read_more_starts(const std::int32_t*& member, const First& first, const char* name, nanobind::handle array,
                      const Sequences& sequences);

/// An int32 array (batch,).
void read_lengths(const std::int32_t*& member, const First& first, const char* name, nanobind::handle array,
                  const Sequences& sequences);

/// The same where there is one; for None `member` stays.
void read_optional_lengths(const std::int32_t*& member, const First& first, const char* name, nanobind::handle array,
                           const Sequences& sequences);

/// Throws where a ragged batch has rows and its longest sequence none: what no launch would write nobody asked for.
void require_queries(std::int32_t max_seqlen_q, const Operand& q, std::int32_t batch);

/// The LSE of a tensor, or its gradient: (batch, heads, seqlen) or (heads, total), contiguous.
void read_lse(const float*& member, const First& first, const char* name, nanobind::handle array, const Operand& of);

/// Returns an element for each of a tensor's first `rows` rows: (batch, rows) or, of rows of all sequences, (rows,);
/// contiguous. Elements that are none of `accepted` are refused.
Array read_each_row(const First& first, const char* name, nanobind::handle array,
                    std::initializer_list<Element> accepted, const Operand& of, std::int64_t rows);

}  // namespace attune::python
