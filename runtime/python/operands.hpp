// What the checks of every operation's arrays share: the operands that lie in them, and what is no array.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/function_ref.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/python/framework.hpp"

namespace attune::python {

using Shape = std::array<std::int64_t, 4>;  ///< or strides, in elements

/// A tensor of queries, keys, values or results. Rows of all sequences, (total, heads, head_dim), count as one batch.
struct Operand {
  const char* name = nullptr;  ///< of the argument it lies in
  int rank = 4;                ///< as it was passed, parts apart; 3: rows of all sequences
  Shape shape{};
  attune_tensor tensor{};

  /// The shape as it was passed, parts apart.
  [[nodiscard]] std::string text() const;
};

/// The array that a call's others must be like.
struct First {
  const Framework& framework;
  Argument argument;
  Array array;
};

std::string tuple_text(std::span<const std::int64_t> values);

/// The shape of an array as it was passed, for messages.
std::string shape_text(const Argument& argument);

/// The dtype of the kernels for these elements, which are float16 or bfloat16.
attune_dtype dtype_of(Element element);

/// Reads the first array. Throws where it is of no framework or no kernel takes its dtype.
First read_first(const Argument& argument);

/// The framework of the first array, where its arrays have an address; throws a NotImplementedError that names the
/// operation where they have none.
const AddressedFramework& require_addressed(const First& first, const char* operation);

/// An array that must be like the first one: of its framework, dtype and device.
Array read_alike(const First& first, const Argument& argument);

/// Finds the operands that lie in an argument of `rank` dimensions, its parts apart. Heads and head_dim are 1 or more,
/// what is before them may be 0. `accepted` says what its shape must be, for messages.
void split(const Argument& argument, const Array& array, int rank, const char* accepted, std::span<Operand> into);

/// The operands that lie in one array, an argument like the first one. Returns what is left of `into`.
std::span<Operand> read_parts(const First& first, const Argument& argument, int rank, const char* accepted,
                              std::span<Operand> into);

/// The one operand that is an array.
Operand read_operand(const First& first, const char* name, nanobind::handle array, int rank, const char* accepted);

/// The same, like another one in shape, for results.
Operand read_output(const First& first, const char* name, nanobind::handle array, const Operand& like,
                    const char* accepted);

/// What a message says that a shape must be; a function makes the words for a message alone.
using Demand = std::variant<std::string_view, FunctionRef<std::string()>>;

/// An array of the framework and on the device of the first one, with elements of its own, contiguous in its last
/// dimension. Elements that are none of `accepted` are refused, and so is another shape than `shape`, where -1 is any
/// extent.
Array read_plain(const First& first, const char* name, nanobind::handle array, std::initializer_list<Element> accepted,
                 std::span<const std::int64_t> shape, Demand demand);

/// Throws where a cache's head_dim is no multiple of 8 and its rows cannot be read in place: padding it would copy it
/// whole.
void require_rows_in_place(const Operand& cache);

/// What was made of a caller's arrays: to be kept until the launch.
using Kept = std::vector<nanobind::object>;

/// Nothing where nothing was made.
inline void keep(Kept& kept, nanobind::object made) {
  if (made.is_valid()) kept.push_back(std::move(made));
}

/// An operand with rows of padded_head_dim() columns: itself where it has as many, else a copy that ends in zeros.
attune_tensor padded_rows(const First& first, nanobind::handle array, const Operand& operand, Kept& kept);

/// Copies of q, k and v, which lie in one to three arrays, with rows of padded_head_dim() columns: zeros at their ends
/// add nothing to any score.
class PaddedCopies {
 public:
  PaddedCopies(const First& first, std::span<const Argument> arguments, std::int64_t head_dim, std::int64_t head_dim_v);

  /// These live as long as the copies.
  [[nodiscard]] std::span<const Argument> arguments() const { return arguments_; }

 private:
  Kept copies_;
  std::vector<Argument> arguments_;
};

/// Throws where a caller's `out` cannot be written: kernels write rows of padded_head_dim() columns.
void require_whole_output(const Operand& q, std::int64_t head_dim_v);

/// Throws unless an array's elements lie one after the other.
void require_contiguous(const char* name, const Array& array);

/// Throws unless the heads of keys divide those of queries.
void require_heads_divide(const Operand& q, const Operand& k);

/// As 32 bits. Throws a ValueError that names it where they do not hold it.
std::int32_t count(const char* name, std::int64_t value);

/// An integer of the caller's, as 32 bits. `accepted` says what it may be, for messages.
std::int32_t integer(const char* name, nanobind::handle value, const char* accepted);

/// The truth of any object.
bool is_true(nanobind::handle value);

/// Throws where it is no number.
double number(const char* name, nanobind::handle value);

/// The scale of the scores; None: 1 / sqrt(head_dim). Throws where it is no number.
double scale_of(nanobind::handle value, std::int64_t head_dim);

/// Enters what q, k and v say into the arguments of a call: themselves, their dtype, heads and head dimensions.
template <class Args>
void set_tensors(Args& args, const First& first, const Operand& q, const Operand& k, const Operand& v) {
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  if constexpr (requires { args.head_dim_v; }) args.head_dim_v = count("head_dim_v", v.shape[3]);
}

/// What a call's dropout is: seed and offset in two integers of an array on the first one's device. Throws where there
/// is a probability and no such array.
attune_dropout dropout_of(const First& first, nanobind::handle dropout_p, nanobind::handle rng_state);

/// How many keys before and after its own position a query sees; -1: all.
struct Window {
  std::int32_t left;
  std::int32_t right;
};

/// Of a tuple, a list, an array: of whatever holds two integers.
Window window_of(nanobind::handle window_size);

/// Enters what becomes of scores into the arguments of a call, from what it was given under these names.
template <class Args, class Given>
void set_scores(Args& args, const First& first, const Given& given, nanobind::handle rng_state, std::int64_t head_dim) {
  args.softmax_scale = static_cast<float>(scale_of(given.softmax_scale, head_dim));
  args.causal = is_true(given.causal) ? 1 : 0;
  const Window window = window_of(given.window_size);
  args.window = 1;
  args.window_left = window.left;
  args.window_right = window.right;
  args.softcap = static_cast<float>(number("softcap", given.softcap));
  args.dropout = dropout_of(first, given.dropout_p, rng_state);
}

}  // namespace attune::python
