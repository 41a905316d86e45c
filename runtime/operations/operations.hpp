// The operations that callers may ask for. Each has a folder here, with what follows from a call of it:
//
//   problem.hpp        its problem: shapes and element type, what it asks of kernels, its text and its checks
//   problem_fields.hpp the table of its fields, from which texts, checks, records, tuned rows and options follow
//   arguments.hpp      from the arguments of a C call to the problem, its operands and the kernels' parameters
//   plan.hpp           the grid of a kernel
//   launch.hpp         the launches of a call
//   tuning.hpp         what tables of tuned problems and the tuner ask of its problem, where tables have rows for it
//
// Whoever handles every operation alike calls the overloads of check_arguments(), is_empty(), visit_operands() and
// run(), and of prepare() and workspace_bytes() where one kernel or no workspace is not the whole story.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "attune/attune.h"
#include "runtime/operations/backward/arguments.hpp"
#include "runtime/operations/backward/launch.hpp"
#include "runtime/operations/backward/problem_fields.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/decode/launch.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/merge/arguments.hpp"
#include "runtime/operations/merge/problem_fields.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"
#include "runtime/operations/rotary/arguments.hpp"
#include "runtime/operations/rotary/problem_fields.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "runtime/operations/store/problem_fields.hpp"

namespace attune {

/// A problem of any of them.
using AnyProblem =
    std::variant<Problem, DecodeProblem, StoreProblem, MergeProblem, CheckProblem, RotaryProblem, BackwardProblem>;

/// The arguments of a call of any operation, which outlive it.
struct AnyArgs {
  /// In the order of attune_operation.
  using Pointer =
      std::variant<const attune_prefill_args*, const attune_decode_args*, const attune_store_kv_args*,
                   const attune_merge_states_args*, const attune_rotary_embedding_args*, const attune_backward_args*>;

  template <class Args>
  requires std::is_constructible_v<Pointer, const Args*> AnyArgs(const Args& args)
      : pointer(&args) {}  // implicit: arguments are what callers have

  /// Those of the operation of this number of attune_operation; nothing where there is no such operation.
  static std::optional<AnyArgs> of(int operation, const void* args) {
    return of(operation, args, std::make_index_sequence<std::variant_size_v<Pointer>>());
  }

  Pointer pointer;

 private:
  template <std::size_t... i>
  static std::optional<AnyArgs> of(int operation, const void* args, std::index_sequence<i...> /*operations*/) {
    std::optional<AnyArgs> result;
    const auto try_one = [&]<class Args>(int number, const Args* /*type*/) {
      if (operation == number) result.emplace(*static_cast<const Args*>(args));
    };
    (try_one(i, std::variant_alternative_t<i, Pointer>()), ...);
    return result;
  }
};

/// Prepares the kernels that calls of this problem need.
template <class OneProblem>
void prepare(const OneProblem& problem, FindKernel prepare_kernel) {
  prepare_kernel(problem, Needed::yes);
}

/// Bytes of workspace that calls of this problem make use of.
template <class OneProblem>
std::size_t workspace_bytes(const OneProblem& /*problem*/, MostBytes /*most*/) {
  return 0;
}

/// Checks what a call's shapes say, without its pointers. Throws Error.
template <class Args>
auto check_shapes(const Args& args) {
  return check_arguments(args);
}

/// Whether a call has nothing to do.
template <class Args, class OneProblem>
bool is_idle(const Args& /*args*/, const OneProblem& problem) {
  return is_empty(problem);
}

/// Decode may have keys to store, or tables to check, where it has no queries.
inline bool is_idle(const attune_decode_args& args, const DecodeProblem& problem) {
  return problem.batch == 0 || (is_empty(problem) && is_empty(problem.store()) && !checks_tables(args));
}

/// Whether a call asks for a check of its tables, which is_idle() calls do not get.
template <class Args>
bool checks_tables(const Args& /*args*/) {
  return false;
}

}  // namespace attune
