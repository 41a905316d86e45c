#include "runtime/operations/rotary/arguments.hpp"

#include <cstdint>

#include "runtime/call/arguments.hpp"

namespace attune {
namespace {

RotaryProblem problem_of(const attune_rotary_embedding_args& args) {
  check_struct_size("attune_rotary_embedding_args", args.struct_size, sizeof(args));
  return {.dtype = static_cast<Dtype>(raw(args.dtype)),
          .batch = args.batch,
          .seqlen = args.seqlen,
          .heads_q = args.heads_q,
          .heads_kv = args.heads_kv,
          .head_dim = args.head_dim,
          .rotary = static_cast<Rotary>(raw(args.rotary)),
          .rotary_dim = args.rotary_dim,
          .rotations = args.rotations};
}

Extents rows_of(const RotaryProblem& problem, int heads) {
  return {heads == 0 ? 0 : problem.batch, problem.seqlen, heads, problem.head_dim, problem.dtype};
}

}  // namespace

void visit_operands(const attune_rotary_embedding_args& args, const RotaryProblem& problem, VisitOperand visit) {
  visit(tensor_operand("q", args.q, rows_of(problem, problem.heads_q), Access::update));
  visit(tensor_operand("k", args.k, rows_of(problem, problem.heads_kv), Access::update));
  visit(array_operand("positions", args.positions, {1, 1, problem.batch, problem.seqlen}));
  visit(lengths_operand("offsets", args.offsets, problem.batch));
  visit(angles_operand("rotary_cos", args.rotary_cos, problem.dtype, problem.rotations, problem.rotary_dim));
  visit(angles_operand("rotary_sin", args.rotary_sin, problem.dtype, problem.rotations, problem.rotary_dim));
}

RotaryProblem check_arguments(const attune_rotary_embedding_args& args) {
  const RotaryProblem problem = problem_of(args);
  std::vector<std::string> found = problems_of(problem);
  if (found.empty() && !is_empty(problem)) {
    visit_operands(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
  }
  throw_if_any(found);
  return problem;
}

AttuneRotaryParams make_params(const attune_rotary_embedding_args& args, const RotaryProblem& problem) {
  return {.q = kernel_tensor(args.q, rows_of(problem, problem.heads_q)),
          .k = kernel_tensor(args.k, rows_of(problem, problem.heads_kv)),
          .positions = args.positions,
          .offsets = args.offsets,
          .cos = args.rotary_cos,
          .sin = args.rotary_sin,
          .batch = problem.batch,
          .seqlen = problem.seqlen,
          .heads_q = problem.heads_q,
          .heads_kv = problem.heads_kv,
          .rotary_dim = problem.rotary_dim,
          .rotations = problem.rotations};
}

Launch plan(const Variant& variant, const RotaryProblem& problem) {
  // Each thread has two chunks.
  return plan_chunks(variant, problem.batch, problem.seqlen, problem.heads_q + problem.heads_kv,
                     problem.rotary_dim / 2);
}

void run(const attune_rotary_embedding_args& args, const RotaryProblem& problem, const Backend& backend) {
  run_chunks(args, problem, backend);
}

}  // namespace attune
