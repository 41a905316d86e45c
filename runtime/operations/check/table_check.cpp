#include "runtime/operations/check/table_check.hpp"
#include "runtime/call/field_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/add_line.hpp"
#include "runtime/base/error.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {
namespace {

template <class Args>
bool asks(const Args& args) {
  return args.struct_size >= offsetof(Args, check_tables) + sizeof(args.check_tables) && args.check_tables != 0;
}

template <class Integer>
long long value_at(const Integer* table, long long index, const Executor& executor) {
  Integer value = 0;
  executor.read(&value, table + index, sizeof(value));
  return value;
}

/// Keys that a sequence may have before the new ones.
long long most_keys(const AttuneCheckParams& params, int batch, const Executor& executor) {
  if (params.cu_seqlens_k == nullptr) return params.max_seqlen_k - params.seqlen_new;
  return value_at(params.cu_seqlens_k, batch + 1, executor) - value_at(params.cu_seqlens_k, batch, executor);
}

/// Keys that a sequence has before the new ones, as it is told.
long long keys_before(const AttuneCheckParams& params, int batch, const Executor& executor) {
  return params.seqlens_k == nullptr ? most_keys(params, batch, executor) : value_at(params.seqlens_k, batch, executor);
}

/// Throws where the kernel found something.
void throw_fault(const AttuneCheckParams& params, const AttuneTableFault& fault, const Executor& executor) {
  const auto fail = [&](const char* table, long long value, const std::string& accepted) {
    throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}: batch {}, position {} is {}; it must be {}", table,
                                                     fault.batch, fault.position, value, accepted));
  };
  const auto index = [&](long long width) { return fault.batch * width + fault.position; };
  const auto fail_of_rows = [&](const char* name, const int* cu_seqlens, int total) {
    // What ends must not do so before it begins.
    const long long least = fault.position == 0 ? 0 : value_at(cu_seqlens, fault.batch, executor);
    fail(name, value_at(cu_seqlens, fault.batch + fault.position, executor),
         fmt::format("from {} to {}", least, total));
  };
  switch (fault.kind) {
    case 1:
      return fail_of_rows("cu_seqlens_q", params.cu_seqlens_q, params.total_q);
    case 2:
      return fail_of_rows("cu_seqlens_k", params.cu_seqlens_k, params.total_k);
    case 3:
      return fail("seqlens_k", value_at(params.seqlens_k, fault.batch, executor),
                  fmt::format("from 0 to {}", most_keys(params, fault.batch, executor)));
    case 4:
      return fail("leftpad_k", value_at(params.leftpad_k, fault.batch, executor),
                  fmt::format("from 0 to {}", keys_before(params, fault.batch, executor)));
    case 5:
      return fail("block_table", value_at(params.block_table, index(params.table_width), executor),
                  fmt::format("from 0 to {}", params.pages - 1));
    case 6:
      return fail("slot_mapping", value_at(params.slots, index(params.seqlen_new), executor),
                  fmt::format("-1, or from 0 to {}", static_cast<long long>(params.pages) * params.page_size - 1));
    case 7: {
      const long long rows = value_at(params.cu_seqlens_q, fault.batch + 1, executor) -
                             value_at(params.cu_seqlens_q, fault.batch, executor);
      return fail("seqused_q", value_at(params.seqused_q, fault.batch, executor), fmt::format("from 0 to {}", rows));
    }
    default:
      return;
  }
}

void visit_operands(const AttuneCheckParams& params, VisitOperand visit) {
  visit(lengths_operand("seqlens_k", params.seqlens_k, params.batch));
  visit(array_operand("block_table", params.block_table, {1, 1, params.batch, params.table_width}));
  visit(array_operand("slot_mapping", params.slots, {1, 1, params.batch, params.seqlen_new}));
  visit(lengths_operand("cu_seqlens_q", params.cu_seqlens_q, params.batch + 1));
  visit(lengths_operand("cu_seqlens_k", params.cu_seqlens_k, params.batch + 1));
  visit(lengths_operand("leftpad_k", params.leftpad_k, params.batch));
  visit(lengths_operand("seqused_q", params.seqused_q, params.batch));
  visit(array_operand("fault", params.fault, {1, 1, 1, 1}, Access::write));
}

void run_check(AttuneCheckParams params, const Backend& backend) {
  const ServingKernel& kernel = backend.kernels.kernel_for(CheckProblem{});
  const auto operands = [&](VisitOperand visit) { visit_operands(params, visit); };
  const auto step_at = [&](void* place) {
    params.fault = static_cast<AttuneTableFault*>(place);
    return step_of(kernel, launch_of(kernel.variant, {.x = 1, .y = 1, .z = 1}), &params, operands);
  };
  AttuneTableFault fault{};
  backend.executor.ask("check_tables", step_at, &fault, sizeof(fault), backend.stream);
  throw_fault(params, fault, backend.executor);
}

}  // namespace

const ProblemFacts CheckProblem::facts = usual_facts<CheckProblem>();

bool checks_tables(const attune_decode_args& args) { return asks(args); }

bool checks_tables(const attune_store_kv_args& args) { return asks(args); }

AttuneCheckParams check_params(const attune_decode_args& args, const DecodeProblem& problem) {
  return {.seqlens_k = args.seqlens_k,
          .block_table = problem.packed_keys ? nullptr : args.block_table,
          .slots = nullptr,
          .fault = nullptr,
          .batch = problem.batch,
          .seqlen_q = problem.seqlen_q,
          .seqlen_new = problem.seqlen_new,
          .max_seqlen_k = problem.max_seqlen_k,
          .window_left = problem.window_left,
          .page_size = problem.page_size,
          .pages = problem.pages,
          .table_width = problem.table_width,
          .total_q = problem.total_q,
          .total_k = problem.total_k,
          .cu_seqlens_q = problem.ragged ? args.cu_seqlens_q : nullptr,
          .cu_seqlens_k = problem.packed_keys ? args.cu_seqlens_k : nullptr,
          .leftpad_k = leftpad_of(args),
          .seqused_q = used_queries(args)};
}

AttuneCheckParams check_params(const attune_store_kv_args& args, const StoreProblem& problem) {
  const bool by_slots = args.slot_mapping != nullptr;
  const long long room = static_cast<long long>(problem.table_width) * problem.page_size;
  if (!by_slots && problem.tokens > room) {
    throw Error(ATTUNE_INVALID_ARGUMENT,
                fmt::format("tokens is {}; with check_tables it must be at most table_width {} x page_size {}",
                            problem.tokens, problem.table_width, problem.page_size));
  }
  const bool has_lengths = !by_slots && args.seqlens_k != nullptr;
  return {.seqlens_k = has_lengths ? args.seqlens_k : nullptr,
          .block_table = by_slots ? nullptr : args.block_table,
          .slots = reinterpret_cast<const long long*>(args.slot_mapping),
          .fault = nullptr,
          .batch = problem.batch,
          .seqlen_q = problem.tokens,
          .seqlen_new = problem.tokens,
          .max_seqlen_k = has_lengths ? static_cast<int>(std::min<long long>(room, most_rows)) : problem.tokens,
          .window_left = 0,  // the table's entries for the new keys alone
          .page_size = problem.page_size,
          .pages = problem.pages,
          .table_width = problem.table_width,
          .total_q = 0,
          .total_k = 0,
          .cu_seqlens_q = nullptr,
          .cu_seqlens_k = nullptr,
          .leftpad_k = nullptr,
          .seqused_q = nullptr};
}

void run_table_check(const attune_decode_args& args, const DecodeProblem& problem, const Backend& backend) {
  run_check(check_params(args, problem), backend);
}

void run_table_check(const attune_store_kv_args& args, const StoreProblem& problem, const Backend& backend) {
  run_check(check_params(args, problem), backend);
}

}  // namespace attune
