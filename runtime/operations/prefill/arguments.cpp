#include "runtime/operations/prefill/arguments.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/add_line.hpp"
#include "runtime/base/division.hpp"
#include "runtime/call/arguments.hpp"
#include "runtime/call/dropout.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"

namespace attune {
namespace {

/// Of attune_prefill_args before V had a head_dim of its own.
constexpr std::size_t oldest_prefill_args = offsetof(attune_prefill_args, causal) + sizeof(attune_prefill_args::causal);

/// Whether the caller knows of the fields after head_dim_v.
bool has_features(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, softcap) + sizeof(args.softcap);
}

/// Whether the caller knows of the fields after softcap.
bool has_pages(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, page_size) + sizeof(args.page_size) &&
         (args.block_table != nullptr || args.page_size != 0);
}

/// Whether the caller knows of the fields after page_size.
bool has_workspace(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, workspace_bytes) + sizeof(args.workspace_bytes);
}

/// How many queries of each sequence count; null where all do, or the caller does not know of the field.
const std::int32_t* used_queries(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, seqused_q) + sizeof(args.seqused_q) ? args.seqused_q
                                                                                               : nullptr;
}

/// Whether the caller knows of the fields after seqused_q.
bool has_dropout(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, dropout) + sizeof(args.dropout);
}

void add_features(Problem& problem, const attune_prefill_args& args) {
  problem.dropout = has_dropout(args) && kept_values(args.dropout.p) < 256;
  problem.softcap = args.softcap;
  if (args.window != 0) {
    problem.window_left = args.window_left;
    problem.window_right = args.window_right;
  }
  problem.paged = has_pages(args);
  if (problem.paged) {
    problem.page_size = args.page_size;
    problem.pages = args.pages;
    problem.table_width = args.table_width;
  }
  problem.ragged = args.cu_seqlens_q != nullptr || args.cu_seqlens_k != nullptr;
  if (!problem.ragged) return;
  problem.total_q = args.total_q;
  if (!problem.paged) problem.total_k = args.total_k;
}

void check_scalars(std::vector<std::string>& found, const attune_prefill_args& args) {
  check_softmax_scale(found, args.softmax_scale);
  check_flag(found, "causal", args.causal);
  if (has_features(args)) check_flag(found, "window", args.window);
  if (has_dropout(args)) check_dropout(found, args.dropout);
}

/// What makes a batch ragged: both arrays of lengths, or none; with pages that of Q alone.
void check_ragged(std::vector<std::string>& found, const attune_prefill_args& args) {
  if (args.cu_seqlens_q == nullptr && used_queries(args) != nullptr) {
    found.emplace_back("seqused_q is given without cu_seqlens_q; only ragged batches have it");
  }
  if (has_pages(args)) {
    if (args.cu_seqlens_q == nullptr && args.cu_seqlens_k != nullptr) {
      found.emplace_back("cu_seqlens_k is given without cu_seqlens_q; lengths in pages are those of seqused_k");
    }
    return;
  }
  check_both_starts(found, args.cu_seqlens_q, args.cu_seqlens_k);
  if (args.cu_seqlens_q == nullptr && args.cu_seqlens_k == nullptr && args.seqused_k != nullptr) {
    found.emplace_back("seqused_k is given without cu_seqlens_q and cu_seqlens_k; only ragged batches have it");
  }
}

/// Whether a sequence may have a key that a query sees.
bool has_keys(const Problem& problem, const PrefillShapes& shapes) {
  return !shapes.q.empty() && !(problem.paged && (problem.batch == 0 || problem.seqlen_k == 0));
}

/// visit_operands() where the visitor is known: every call is checked.
template <class Visit>
void visit_each(const attune_prefill_args& args, const Problem& problem, const Visit& visit) {
  PrefillShapes shapes = shapes_of(problem);
  if (!has_keys(problem, shapes)) shapes.k.batch = shapes.v.batch = 0;
  visit(tensor_operand("q", args.q, shapes.q, Access::read));
  visit(tensor_operand("k", args.k, shapes.k, Access::read));
  visit(tensor_operand("v", args.v, shapes.v, Access::read));
  visit(tensor_operand("o", args.o, shapes.o, Access::write));
  visit(array_operand("lse", args.lse, {1, shapes.q.batch, shapes.q.heads, shapes.q.seq}, Access::write));
  if (problem.ragged) visit(lengths_operand("cu_seqlens_q", args.cu_seqlens_q, problem.batch + 1LL));
  if (problem.ragged && !problem.paged) visit(lengths_operand("cu_seqlens_k", args.cu_seqlens_k, problem.batch + 1LL));
  if (problem.ragged || problem.paged) visit(lengths_operand("seqused_k", args.seqused_k, problem.batch));
  if (problem.ragged) visit(lengths_operand("seqused_q", used_queries(args), problem.batch));
  if (problem.dropout) visit(dropout_operand(args.dropout));
  visit_expressions(expression_texts(args), problem.expressions, visit);
  if (problem.paged) visit(array_operand("block_table", args.block_table, {1, 1, problem.batch, problem.table_width}));
}

void check_memory(std::vector<std::string>& found, const attune_prefill_args& args, const Problem& problem) {
  visit_each(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
  if (has_workspace(args)) check_alignment(found, "workspace", args.workspace, vector_bytes);
  if (!problem.paged) return;
  const PrefillShapes shapes = shapes_of(problem);
  if (has_keys(problem, shapes) && args.block_table == nullptr) {
    add_line(found, "block_table is null; it must name the pages where page_size is {}", args.page_size);
  }
  if (!shapes.q.empty() && args.seqused_k == nullptr) {
    found.emplace_back("seqused_k is null; it must say how many keys each sequence has in the pages of block_table");
  }
}

/// What the shapes of a call say, its pointers and strides apart.
Problem read_problem(const attune_prefill_args& args) {
  check_struct_size("attune_prefill_args", args.struct_size, oldest_prefill_args);
  const bool has_head_dim_v = args.struct_size >= offsetof(attune_prefill_args, head_dim_v) + sizeof(args.head_dim_v);
  Problem problem{.dtype = static_cast<Dtype>(raw(args.dtype)),
                  .batch = args.batch,
                  .heads_q = args.heads_q,
                  .heads_kv = args.heads_kv,
                  .seqlen_q = args.seqlen_q,
                  .seqlen_k = args.seqlen_k,
                  .head_dim = args.head_dim,
                  .head_dim_v = has_head_dim_v && args.head_dim_v != args.head_dim ? args.head_dim_v : 0,
                  .causal = args.causal != 0};
  if (has_features(args)) add_features(problem, args);
  problem.expressions = read_expressions(expression_texts(args));
  take_limits(problem);
  return problem;
}

/// Without keys Q is never multiplied. The problem is then one with V's head_dim alone: there are kernels for that
/// where there are none for two head dimensions.
void forget_keys(Problem& problem) {
  const bool no_keys = problem.seqlen_k == 0 || problem.stored_keys() == 0 || problem.stored_key_sequences() == 0;
  if (!no_keys || problem.head_dim_of_v() >= problem.head_dim) return;
  problem.head_dim = problem.head_dim_of_v();
  problem.head_dim_v = 0;
}

}  // namespace

PrefillShapes shapes_of(const Problem& problem) {
  const Extents queries{problem.stored_sequences(), problem.stored_rows(), problem.heads_q,
                        padded_head_dim(problem.head_dim), problem.dtype};
  const Extents keys{problem.stored_key_sequences(), problem.stored_keys(), problem.heads_kv, problem.head_dim,
                     problem.dtype};
  PrefillShapes shapes{.q = queries, .k = keys, .v = keys, .o = queries};
  shapes.v.head_dim = problem.head_dim_of_v();
  shapes.o.head_dim = padded_head_dim(problem.head_dim_of_v());
  return shapes;
}

void visit_operands(const attune_prefill_args& args, const Problem& problem, VisitOperand visit) {
  visit_each(args, problem, visit);
}

Problem check_shapes(const attune_prefill_args& args) {
  Problem problem = read_problem(args);
  throw_if_any(problems_of(problem));
  forget_keys(problem);
  set_window(problem, problem.window_left, problem.window_right);
  return problem;
}

Problem check_arguments(const attune_prefill_args& args) {
  Problem problem = read_problem(args);
  std::vector<std::string> found = problems_of(problem);
  const bool shapes_ok = found.empty();
  check_scalars(found, args);
  if (has_features(args)) check_ragged(found, args);
  if (shapes_ok) check_memory(found, args, problem);
  if (shapes_ok) check_expressions(found, expression_texts(args), problem.expressions, expression_extents(problem));
  throw_if_any(found);
  forget_keys(problem);
  set_window(problem, problem.window_left, problem.window_right);
  const PrefillShapes shapes = shapes_of(problem);
  problem.mappable_strides =
      has_mappable_strides(args.q, shapes.q, problem.ragged) && has_mappable_strides(args.o, shapes.o, problem.ragged);
  if (problem.paged) {
    problem.mappable_pages = has_mappable_pages(args.k, shapes.k) && has_mappable_pages(args.v, shapes.v);
    if (problem.page_multiple() == 1) {
      problem.mappable_strides =
          problem.mappable_strides && has_near_pages(args.k, shapes.k) && has_near_pages(args.v, shapes.v);
    }
  } else {
    problem.mappable_strides = problem.mappable_strides && has_mappable_strides(args.k, shapes.k, problem.ragged) &&
                               has_mappable_strides(args.v, shapes.v, problem.ragged);
  }
  return problem;
}

bool is_empty(const Problem& problem) {
  return problem.batch == 0 || problem.seqlen_q == 0 || problem.stored_rows() == 0;
}

Workspace workspace_of(const attune_prefill_args& args, std::uint64_t launch) {
  if (!has_workspace(args)) return {};
  return {.data = args.workspace, .bytes = args.workspace_bytes, .launch = launch};
}

float* carried_rows(const attune_prefill_args& args, std::size_t bytes) {
  const Workspace workspace = workspace_of(args, 0);
  std::vector<std::string> found;
  if (workspace.data == nullptr) {
    add_line(found, "workspace is null; this kernel needs {} bytes of device memory, as attune_prefill_workspace says",
             bytes);
  } else if (workspace.bytes < bytes) {
    add_line(found, "workspace_bytes is {}; this kernel needs at least {}, as attune_prefill_workspace says",
             workspace.bytes, bytes);
  }
  throw_if_any(found);
  return static_cast<float*>(workspace.data);
}

AttunePrefillParams make_params(const attune_prefill_args& args, const Problem& problem) {
  const PrefillShapes shapes = shapes_of(problem);
  const ScoreScales scales = scales_of(args.softmax_scale, problem.softcap, problem.expressions.score != 0);
  const Reciprocal pages = problem.paged ? reciprocal_of(problem.page_size) : Reciprocal{};
  AttunePrefillParams params{.q = kernel_tensor(args.q, shapes.q),
                             .k = kernel_tensor(args.k, shapes.k),
                             .v = kernel_tensor(args.v, shapes.v),
                             .o = kernel_tensor(args.o, shapes.o),
                             .lse = args.lse,
                             .scale_log2 = scales.scale_log2,
                             .batch = problem.batch,
                             .heads_q = problem.heads_q,
                             .seqlen_q = problem.seqlen_q,
                             .seqlen_k = problem.seqlen_k,
                             .head_dim = padded_head_dim(problem.head_dim),
                             .gqa_ratio = problem.heads_q / problem.heads_kv,
                             .window_left = bounded(problem.window_left, problem.seqlen_k),
                             .window_right = problem.causal ? 0 : bounded(problem.window_right, problem.seqlen_q),
                             .cap_scale = scales.cap_scale,
                             .total_q = problem.total_q,
                             .total_k = problem.total_k,
                             .cu_seqlens_q = nullptr,
                             .cu_seqlens_k = nullptr,
                             .seqused_q = nullptr,
                             .seqused_k = nullptr,
                             .block_table = nullptr,
                             .table_width = problem.table_width,
                             .pages = problem.pages,
                             .page_size = problem.page_size,
                             .page_multiplier = pages.multiplier,
                             .page_shift = pages.shift,
                             .key_columns = problem.head_dim,
                             .fewest_queries = 0};
  if (problem.ragged) {
    params.cu_seqlens_q = args.cu_seqlens_q;
    params.cu_seqlens_k = args.cu_seqlens_k;
    params.seqused_q = used_queries(args);
    params.seqused_k = args.seqused_k;
  }
  if (problem.paged) {
    params.cu_seqlens_k = nullptr;
    params.seqused_k = args.seqused_k;
    params.block_table = args.block_table;
  }
  return params;
}

}  // namespace attune
