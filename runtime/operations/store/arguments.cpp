#include "runtime/operations/store/arguments.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "runtime/call/arguments.hpp"
#include "runtime/call/field_checks.hpp"

namespace attune {
namespace {

/// Of attune_store_kv_args before it could ask for a check.
constexpr std::size_t oldest_store_args =
    offsetof(attune_store_kv_args, rotations) + sizeof(attune_store_kv_args::rotations);

bool knows_check(const attune_store_kv_args& args) {
  return args.struct_size >= offsetof(attune_store_kv_args, check_tables) + sizeof(args.check_tables);
}

Extents new_rows_of(const StoreProblem& problem) {
  return {problem.batch, problem.tokens, problem.heads_kv, padded_head_dim(problem.head_dim), problem.dtype};
}

Extents cache_of(const StoreProblem& problem) {
  return {problem.pages, problem.page_size, problem.heads_kv, problem.head_dim, problem.dtype};
}

StoreProblem problem_of(const attune_store_kv_args& args) {
  check_struct_size("attune_store_kv_args", args.struct_size, oldest_store_args);
  return {.dtype = static_cast<Dtype>(raw(args.dtype)),
          .batch = args.batch,
          .tokens = args.tokens,
          .heads_kv = args.heads_kv,
          .head_dim = args.head_dim,
          .page_size = args.page_size,
          .pages = args.pages,
          .table_width = args.slot_mapping != nullptr ? 1 : args.table_width,
          .rotary = static_cast<Rotary>(raw(args.rotary)),
          .rotary_dim = args.rotary_dim,
          .rotations = args.rotations};
}

}  // namespace

void visit_operands(const attune_store_kv_args& args, const StoreProblem& problem, VisitOperand visit) {
  visit(tensor_operand("k_new", args.k_new, new_rows_of(problem), Access::read));
  visit(tensor_operand("v_new", args.v_new, new_rows_of(problem), Access::read));
  visit(tensor_operand("k", args.k, cache_of(problem), Access::write));
  visit(tensor_operand("v", args.v, cache_of(problem), Access::write));
  visit(array_operand("slot_mapping", args.slot_mapping, {1, 1, problem.batch, problem.tokens}));
  visit(lengths_operand("seqlens_k", args.seqlens_k, problem.batch));
  if (args.slot_mapping == nullptr) {
    visit(array_operand("block_table", args.block_table, {1, 1, problem.batch, problem.table_width}));
  }
  if (!problem.rotates()) return;
  visit(array_operand("positions", args.positions, {1, 1, problem.batch, problem.tokens}));
  visit(angles_operand("rotary_cos", args.rotary_cos, problem.dtype, problem.rotations, problem.rotary_dim));
  visit(angles_operand("rotary_sin", args.rotary_sin, problem.dtype, problem.rotations, problem.rotary_dim));
}

StoreProblem check_arguments(const attune_store_kv_args& args) {
  const StoreProblem problem = problem_of(args);
  std::vector<std::string> found = problems_of(problem);
  if (found.empty() && !is_empty(problem)) {
    visit_operands(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
    if (args.slot_mapping == nullptr) {
      check_table(found, args.block_table, problem.batch, problem.pages, problem.table_width);
    }
  }
  if (knows_check(args)) check_flag(found, "check_tables", args.check_tables);
  throw_if_any(found);
  return problem;
}

AttuneStoreParams make_params(const attune_store_kv_args& args, const StoreProblem& problem) {
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  const bool rotates = problem.rotates();
  return {.k_new = kernel_tensor(args.k_new, new_rows_of(problem)),
          .v_new = kernel_tensor(args.v_new, new_rows_of(problem)),
          .k = kernel_tensor(args.k, cache_of(problem)),
          .v = kernel_tensor(args.v, cache_of(problem)),
          .slots = reinterpret_cast<const long long*>(args.slot_mapping),
          .seqlens_k = args.seqlens_k,
          .block_table = args.slot_mapping != nullptr ? nullptr : args.block_table,
          .positions = rotates ? args.positions : nullptr,
          .cos = rotates ? args.rotary_cos : nullptr,
          .sin = rotates ? args.rotary_sin : nullptr,
          .batch = problem.batch,
          .tokens = problem.tokens,
          .heads_kv = problem.heads_kv,
          .head_dim = padded_head_dim(problem.head_dim),
          .page_size = problem.page_size,
          .pages = problem.pages,
          .table_width = problem.table_width,
          .rotary_dim = rotates ? problem.rotary_dim : 0,
          .rotations = rotates ? problem.rotations : 0,
          .key_columns = problem.head_dim};
}

Launch plan(const Variant& variant, const StoreProblem& problem) {
  return plan_chunks(variant, problem.batch, problem.tokens, problem.heads_kv, padded_head_dim(problem.head_dim));
}

void run(const attune_store_kv_args& args, const StoreProblem& problem, const Backend& backend) {
  run_chunks(args, problem, backend);
}

}  // namespace attune
