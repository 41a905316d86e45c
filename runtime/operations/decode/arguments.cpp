#include "runtime/operations/decode/arguments.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/base/add_line.hpp"
#include "runtime/base/division.hpp"
#include "runtime/call/arguments.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/field_checks.hpp"

namespace attune {

const std::int32_t* leftpad_of(const attune_decode_args& args) {
  return args.struct_size >= offsetof(attune_decode_args, leftpad_k) + sizeof(args.leftpad_k) ? args.leftpad_k
                                                                                              : nullptr;
}

const std::int32_t* used_queries(const attune_decode_args& args) {
  return args.struct_size >= offsetof(attune_decode_args, seqused_q) + sizeof(args.seqused_q) ? args.seqused_q
                                                                                              : nullptr;
}

namespace {

/// Of attune_decode_args before it had a softcap.
constexpr std::size_t oldest_decode_args = offsetof(attune_decode_args, splits) + sizeof(attune_decode_args::splits);

/// Whether the caller knows of the fields after splits.
bool has_features(const attune_decode_args& args) {
  return args.struct_size >= offsetof(attune_decode_args, check_tables) + sizeof(args.check_tables);
}

/// Whether the caller knows of the fields after check_tables.
bool has_ragged(const attune_decode_args& args) {
  return args.struct_size >= offsetof(attune_decode_args, total_q) + sizeof(args.total_q);
}

/// Whether the caller knows of the fields after total_q.
bool has_packed_keys(const attune_decode_args& args) {
  return args.struct_size >= offsetof(attune_decode_args, total_k) + sizeof(args.total_k) &&
         args.cu_seqlens_k != nullptr;
}

Extents queries_of(const DecodeProblem& problem) {
  return {problem.stored_sequences(), problem.stored_queries(), problem.heads_q, padded_head_dim(problem.head_dim),
          problem.dtype};
}

Extents keys_of(const DecodeProblem& problem) {
  Extents keys{problem.pages, problem.page_size, problem.heads_kv, problem.head_dim, problem.dtype};
  if (problem.packed_keys) {
    keys.batch = 1;
    keys.seq = problem.total_k;
  }
  return keys;
}

Extents new_keys_of(const DecodeProblem& problem) {
  return {problem.batch, problem.seqlen_new, problem.heads_kv, padded_head_dim(problem.head_dim), problem.dtype};
}

DecodeProblem problem_of(const attune_decode_args& args) {
  check_struct_size("attune_decode_args", args.struct_size, oldest_decode_args);
  DecodeProblem problem{.dtype = static_cast<Dtype>(raw(args.dtype)),
                        .batch = args.batch,
                        .seqlen_q = args.seqlen_q,
                        .heads_q = args.heads_q,
                        .heads_kv = args.heads_kv,
                        .head_dim = args.head_dim,
                        .max_seqlen_k = args.max_seqlen_k,
                        .equal_lengths = args.seqlens_k == nullptr && leftpad_of(args) == nullptr,
                        .page_size = args.page_size,
                        .pages = args.pages,
                        .table_width = args.table_width,
                        .splits = args.splits,
                        .window_left = args.window_left,
                        .window_right = args.window_right};
  problem.expressions = read_expressions(expression_texts(args));
  if (!has_features(args)) return problem;
  problem.softcap = args.softcap;
  problem.seqlen_new = args.seqlen_new;
  problem.rotary = static_cast<Rotary>(raw(args.rotary));
  problem.rotary_dim = args.rotary_dim;
  problem.rotations = args.rotations;
  problem.ragged = has_ragged(args) && args.cu_seqlens_q != nullptr;
  if (problem.ragged) problem.total_q = args.total_q;
  if (!has_packed_keys(args)) return problem;
  problem.packed_keys = true;
  problem.total_k = args.total_k;
  problem.equal_lengths = false;
  problem.page_size = problem.pages = problem.table_width = 1;
  return problem;
}

/// K or V. Of packed keys any row begins a page.
AttuneTensor key_params(const attune_tensor& tensor, const DecodeProblem& problem) {
  AttuneTensor params = kernel_tensor(tensor, keys_of(problem));
  if (problem.packed_keys) params.stride_batch = params.stride_seq;
  return params;
}

/// Whether a call reads or writes its cache.
bool has_keys(const DecodeProblem& problem) {
  return problem.batch > 0 && (problem.seqlen_q > 0 || problem.appends()) && problem.max_seqlen_k > 0;
}

void check_memory(std::vector<std::string>& found, const attune_decode_args& args, const DecodeProblem& problem) {
  visit_operands(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
  check_alignment(found, "workspace", args.workspace, vector_bytes);
  if (!problem.ragged && used_queries(args) != nullptr) {
    found.emplace_back("seqused_q is given without cu_seqlens_q; only ragged batches have it");
  }
  if (problem.appends() && args.seqlens_k == nullptr && problem.batch > 0) {
    found.emplace_back("seqlens_k is null; it must say how many keys each sequence has before the new ones");
  }
  if (problem.packed_keys) {
    if (args.block_table == nullptr) return;
    found.emplace_back("cu_seqlens_k and block_table are both given; lengths in pages are those of seqlens_k");
  } else if (has_keys(problem)) {
    check_table(found, args.block_table, problem.batch, problem.pages, problem.table_width);
  }
}

}  // namespace

void visit_attention(const attune_decode_args& args, const DecodeProblem& problem, Access of_keys, VisitOperand visit) {
  const Extents keys = has_keys(problem) ? keys_of(problem) : Extents{};
  visit(tensor_operand("q", args.q, queries_of(problem), Access::read));
  visit(tensor_operand("k", args.k, keys, of_keys));
  visit(tensor_operand("v", args.v, keys, of_keys));
  if (!problem.packed_keys) {
    visit(array_operand("block_table", args.block_table, {1, 1, problem.batch, problem.table_width}));
  }
  if (!problem.rotates()) return;
  visit(angles_operand("rotary_cos", args.rotary_cos, problem.dtype, problem.rotations, problem.rotary_dim));
  visit(angles_operand("rotary_sin", args.rotary_sin, problem.dtype, problem.rotations, problem.rotary_dim));
}

void visit_results(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit) {
  const Extents queries = queries_of(problem);
  visit(tensor_operand("o", args.o, queries, Access::write));
  visit(array_operand("lse", args.lse, {1, queries.batch, queries.heads, queries.seq}, Access::write));
}

void visit_lengths(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit) {
  visit(lengths_operand("seqlens_k", args.seqlens_k, problem.batch));
  visit_expressions(expression_texts(args), problem.expressions, visit);
  visit(lengths_operand("leftpad_k", leftpad_of(args), problem.batch));
  visit(lengths_operand("seqused_q", used_queries(args), problem.batch));
  if (problem.ragged) visit(lengths_operand("cu_seqlens_q", args.cu_seqlens_q, problem.batch + 1LL));
  if (problem.packed_keys) visit(lengths_operand("cu_seqlens_k", args.cu_seqlens_k, problem.batch + 1LL));
}

void visit_operands(const attune_decode_args& args, const DecodeProblem& problem, VisitOperand visit) {
  visit_attention(args, problem, problem.appends() ? Access::write : Access::read, visit);
  visit_results(args, problem, visit);
  visit_lengths(args, problem, visit);
  if (!problem.appends()) return;
  visit(tensor_operand("k_new", args.k_new, new_keys_of(problem), Access::read));
  visit(tensor_operand("v_new", args.v_new, new_keys_of(problem), Access::read));
}

DecodeProblem check_shapes(const attune_decode_args& args) {
  const DecodeProblem problem = problem_of(args);
  throw_if_any(problems_of(problem));
  return problem;
}

DecodeProblem check_arguments(const attune_decode_args& args) {
  const DecodeProblem problem = problem_of(args);
  std::vector<std::string> found = problems_of(problem);
  const bool shapes_ok = found.empty();
  check_softmax_scale(found, args.softmax_scale);
  if (has_features(args)) check_flag(found, "check_tables", args.check_tables);
  if (shapes_ok) check_memory(found, args, problem);
  if (shapes_ok) {
    check_expressions(found, expression_texts(args), problem.expressions, expression_extents(problem));
    if (problem.expressions.any() && problem.batch > most_launched_sequences) {
      add_line(found, "batch is {}; with expressions it must be at most {}", problem.batch, most_launched_sequences);
    }
  }
  throw_if_any(found);
  return problem;
}

void check_workspace(const attune_decode_args& args, const DecodePlan& plan) {
  if (plan.workspace_bytes == 0) return;
  std::vector<std::string> found;
  check_workspace(found, args.workspace, args.workspace_bytes, plan.workspace_bytes, "attune_decode_workspace");
  throw_if_any(found);
}

attune_decode_args part_of(const attune_decode_args& args, const DecodeProblem& problem, long long begin, int count) {
  attune_decode_args part{};
  std::memcpy(&part, &args, std::min(args.struct_size, sizeof(part)));  // what the caller does not know of is 0
  part.struct_size = sizeof(part);
  part.check_tables = 0;
  part.batch = count;
  const auto skip = [&](attune_tensor& tensor) {
    const std::int64_t element_bytes = bytes_of(problem.dtype);
    if (tensor.data != nullptr)
      tensor.data = static_cast<std::byte*>(tensor.data) + begin * tensor.stride_batch * element_bytes;
  };
  const auto skip_entries = [&](auto*& array, std::int64_t entries) {
    if (array != nullptr) array += begin * entries;
  };
  if (problem.ragged) {
    skip_entries(part.cu_seqlens_q, 1);
  } else {
    skip(part.q);
    skip(part.o);
    skip_entries(part.lse, std::int64_t{problem.heads_q} * problem.seqlen_q);
  }
  skip_entries(part.seqlens_k, 1);
  skip_entries(part.leftpad_k, 1);
  skip_entries(part.seqused_q, 1);
  if (problem.packed_keys) {
    skip_entries(part.cu_seqlens_k, 1);
  } else if (part.block_table != nullptr) {
    skip_entries(part.block_table, problem.table_width);
  } else {  // sequence i has page i
    skip(part.k);
    skip(part.v);
    part.pages -= static_cast<std::int32_t>(begin);
  }
  if (problem.appends()) {
    skip(part.k_new);
    skip(part.v_new);
  }
  return part;
}

attune_store_kv_args store_args(const attune_decode_args& args, const DecodeProblem& problem) {
  attune_store_kv_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.batch = problem.batch;
  result.tokens = problem.seqlen_new;
  result.heads_kv = problem.heads_kv;
  result.head_dim = problem.head_dim;
  result.page_size = problem.page_size;
  result.pages = problem.pages;
  result.table_width = problem.table_width;
  result.k = args.k;
  result.v = args.v;
  result.seqlens_k = args.seqlens_k;
  result.block_table = args.block_table;
  if (!problem.appends()) return result;
  result.k_new = args.k_new;
  result.v_new = args.v_new;
  result.rotary = args.rotary;
  result.rotary_cos = args.rotary_cos;
  result.rotary_sin = args.rotary_sin;
  result.rotary_dim = args.rotary_dim;
  result.rotations = args.rotations;
  return result;
}

bool is_empty(const DecodeProblem& problem) {
  return problem.batch == 0 || problem.seqlen_q == 0 || problem.stored_queries() == 0;
}

AttuneDecodeParams make_params(const attune_decode_args& args, const DecodeProblem& problem, const DecodePlan& plan) {
  const int columns = padded_head_dim(problem.head_dim);
  const long long partial_rows = static_cast<long long>(plan.slots) * problem.heads_kv * problem.rows();
  const ScoreScales scales = scales_of(args.softmax_scale, problem.softcap, problem.expressions.score != 0);
  const Reciprocal pages = reciprocal_of(std::max(1, problem.page_size));
  auto* const partial_o = plan.workspace_bytes > 0 ? static_cast<float*>(args.workspace) : nullptr;
  return {.q = kernel_tensor(args.q, queries_of(problem)),
          .k = key_params(args.k, problem),
          .v = key_params(args.v, problem),
          .o = kernel_tensor(args.o, queries_of(problem)),
          .lse = args.lse,
          .partial_o = partial_o,
          .partial_lse = partial_o != nullptr ? partial_o + partial_rows * columns : nullptr,
          .cuts = partial_o != nullptr && plan.cuts > 0
                      ? reinterpret_cast<AttuneCut*>(partial_o + partial_rows * (columns + 1))
                      : nullptr,
          .seqlens_k = args.seqlens_k,
          .block_table = problem.packed_keys ? args.cu_seqlens_k : args.block_table,
          .scale_log2 = scales.scale_log2,
          .batch = problem.batch,
          .seqlen_q = problem.seqlen_q,
          .heads_kv = problem.heads_kv,
          .gqa_ratio = problem.heads_q / problem.heads_kv,
          .head_dim = columns,
          .max_seqlen_k = problem.max_seqlen_k,
          .page_size = problem.page_size,
          .pages = problem.packed_keys ? problem.total_k : problem.pages,
          .table_width = problem.table_width,
          .window_left = problem.window_left,
          .window_right = problem.window_right,
          .block_keys = plan.variant.B_c,
          .evict_first = plan.evict_first ? 1 : 0,
          .splits = plan.splits,
          .parts = plan.parts,
          .cap_scale = scales.cap_scale,
          .seqlen_new = problem.seqlen_new,
          .rotary_dim = problem.rotates() ? problem.rotary_dim : 0,
          .rotations = problem.rotates() ? problem.rotations : 0,
          .cos = problem.rotates() ? args.rotary_cos : nullptr,
          .sin = problem.rotates() ? args.rotary_sin : nullptr,
          .cu_seqlens_q = problem.ragged ? args.cu_seqlens_q : nullptr,
          .total_q = problem.total_q,
          .tile_rows = plan.variant.B_r,
          .cu_seqlens_k = problem.packed_keys ? args.cu_seqlens_k : nullptr,
          .leftpad_k = leftpad_of(args),
          .seqused_q = used_queries(args),
          .key_columns = problem.head_dim,
          .warp_rows = plan.warp_rows ? 1 : 0,
          .longest_q = std::max(problem.seqlen_q, problem.longest_q),
          .page_multiplier = pages.multiplier,
          .page_shift = pages.shift};
}

DecodeProblem launched_of(DecodeProblem problem, long long begin) {
  problem.batch = static_cast<int>(std::min<long long>(problem.batch - begin, most_launched_sequences));
  return problem;
}

}  // namespace attune
