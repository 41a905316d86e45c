#include "runtime/operations/merge/arguments.hpp"

#include <cstdint>

#include "runtime/base/add_line.hpp"
#include "runtime/call/arguments.hpp"

namespace attune {
namespace {

Extents rows_of(const MergeProblem& problem) {
  return {problem.batch, problem.seqlen, problem.heads, problem.head_dim, problem.dtype};
}

MergeProblem problem_of(const attune_merge_states_args& args) {
  check_struct_size("attune_merge_states_args", args.struct_size, sizeof(args));
  return {.dtype = static_cast<Dtype>(raw(args.dtype)),
          .batch = args.batch,
          .seqlen = args.seqlen,
          .heads = args.heads,
          .head_dim = args.head_dim};
}

/// Every thread of a row reads its LSEs, so that none may be written over.
void check_apart(std::vector<std::string>& found, const char* name, const float* from, const float* lse,
                 const MergeProblem& problem) {
  if (lse == nullptr || from == nullptr) return;
  const auto read = reinterpret_cast<std::uintptr_t>(from);
  const auto written = reinterpret_cast<std::uintptr_t>(lse);
  const std::uintptr_t distance = read < written ? written - read : read - written;
  const std::uintptr_t rows = static_cast<std::uintptr_t>(problem.batch) * problem.seqlen;
  if (distance / sizeof(float) / problem.heads < rows) {
    add_line(found, "lse is {:#x}; it must be apart from {}, which is {:#x}", written, name, read);
  }
}

/// A thread reads no element that any thread writes, but those that it writes itself.
void check_in_place(std::vector<std::string>& found, const char* name, const AttuneTensor& from,
                    const AttuneTensor& o) {
  if (from.data != o.data) return;
  if (from.stride_batch == o.stride_batch && from.stride_seq == o.stride_seq && from.stride_head == o.stride_head) {
    return;
  }
  add_line(found, "o has the data of {}; it must have its strides too", name);
}

void check_overlaps(std::vector<std::string>& found, const attune_merge_states_args& args,
                    const MergeProblem& problem) {
  const Extents rows = rows_of(problem);
  const AttuneTensor o = kernel_tensor(args.o, rows);
  check_in_place(found, "o1", kernel_tensor(args.o1, rows), o);
  check_in_place(found, "o2", kernel_tensor(args.o2, rows), o);
  check_apart(found, "lse1", args.lse1, args.lse, problem);
  check_apart(found, "lse2", args.lse2, args.lse, problem);
}

}  // namespace

void visit_operands(const attune_merge_states_args& args, const MergeProblem& problem, VisitOperand visit) {
  const Extents rows = rows_of(problem);
  const auto lse = [&](const char* name, const float* data, Access access) {
    return array_operand(name, data, {1, problem.batch, problem.heads, problem.seqlen}, access);
  };
  const auto needed_lse = [&](const char* name, const float* data) {
    Operand operand = lse(name, data, Access::read);
    operand.needed = "";
    return operand;
  };
  visit(tensor_operand("o1", args.o1, rows, Access::read));
  visit(tensor_operand("o2", args.o2, rows, Access::read));
  visit(tensor_operand("o", args.o, rows, Access::write));
  visit(needed_lse("lse1", args.lse1));
  visit(needed_lse("lse2", args.lse2));
  visit(lse("lse", args.lse, Access::write));
}

MergeProblem check_arguments(const attune_merge_states_args& args) {
  const MergeProblem problem = problem_of(args);
  std::vector<std::string> found = problems_of(problem);
  if (found.empty() && !is_empty(problem)) {
    visit_operands(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
    check_overlaps(found, args, problem);
  }
  throw_if_any(found);
  return problem;
}

AttuneMergeParams make_params(const attune_merge_states_args& args, const MergeProblem& problem) {
  const Extents rows = rows_of(problem);
  return {.o1 = kernel_tensor(args.o1, rows),
          .o2 = kernel_tensor(args.o2, rows),
          .o = kernel_tensor(args.o, rows),
          .lse1 = args.lse1,
          .lse2 = args.lse2,
          .lse = args.lse,
          .batch = problem.batch,
          .seqlen = problem.seqlen,
          .heads = problem.heads,
          .head_dim = problem.head_dim};
}

Launch plan(const Variant& variant, const MergeProblem& problem) {
  return plan_chunks(variant, problem.batch, problem.seqlen, problem.heads, problem.head_dim);
}

void run(const attune_merge_states_args& args, const MergeProblem& problem, const Backend& backend) {
  run_chunks(args, problem, backend);
}

}  // namespace attune
