#include "runtime/operations/prefill/short_sequences.hpp"

#include "runtime/call/expressions.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/prefill/arguments.hpp"

namespace attune {
namespace {

/// Whether decode has kernels for what is asked, and a launch takes the batch.
bool is_decodable(const Problem& problem) {
  return problem.ragged && !problem.dropout && problem.expressions.score == 0 && problem.expressions.mask == 0 &&
         problem.head_dim_of_v() == problem.head_dim && problem.batch <= most_launched_sequences;
}

bool has_keys(const Problem& problem) {
  return problem.seqlen_k > 0 && problem.stored_keys() > 0 && problem.stored_key_sequences() > 0;
}

}  // namespace

int short_queries(const Problem& problem) {
  if (!is_decodable(problem) || !has_keys(problem)) return 0;
  return short_queries({.batch = problem.batch,
                        .longest = problem.seqlen_q,
                        .total = problem.total_q,
                        .more_keys = problem.paged || problem.total_k > problem.total_q,
                        .gqa_ratio = problem.heads_q / problem.heads_kv});
}

std::optional<DecodeProblem> short_sequences(const Problem& problem) {
  const int queries = short_queries(problem);
  if (queries == 0) return std::nullopt;
  DecodeProblem part{.dtype = problem.dtype,
                     .batch = problem.batch,
                     .seqlen_q = queries,
                     .heads_q = problem.heads_q,
                     .heads_kv = problem.heads_kv,
                     .head_dim = problem.head_dim,
                     .max_seqlen_k = problem.seqlen_k,
                     .page_size = problem.page_size,
                     .pages = problem.pages,
                     .table_width = problem.table_width,
                     .window_left = problem.window_left,
                     .window_right = problem.causal ? 0 : problem.window_right,
                     .softcap = problem.softcap,
                     .expressions = problem.expressions,
                     .ragged = true,
                     .total_q = problem.total_q,
                     .longest_q = problem.seqlen_q,
                     .packed_keys = !problem.paged,
                     .total_k = problem.total_k};
  if (part.packed_keys) part.page_size = part.pages = part.table_width = 1;
  if (!problems_of(part).empty()) return std::nullopt;
  return part;
}

attune_decode_args short_args(const attune_prefill_args& args, const Problem& problem, const DecodeProblem& part) {
  const AttunePrefillParams params = make_params(args, problem);
  const Workspace workspace = workspace_of(args, 0);
  attune_decode_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.q = args.q;
  result.k = args.k;
  result.v = args.v;
  result.o = args.o;
  result.lse = args.lse;
  result.seqlens_k = params.seqused_k;
  result.block_table = params.block_table;
  result.workspace = workspace.data;
  result.workspace_bytes = workspace.bytes;
  result.batch = part.batch;
  result.seqlen_q = part.seqlen_q;
  result.heads_q = part.heads_q;
  result.heads_kv = part.heads_kv;
  result.head_dim = part.head_dim;
  result.max_seqlen_k = part.max_seqlen_k;
  result.page_size = part.page_size;
  result.pages = part.pages;
  result.table_width = part.table_width;
  result.softmax_scale = args.softmax_scale;
  result.window_left = part.window_left;
  result.window_right = part.window_right;
  result.softcap = part.softcap;
  result.cu_seqlens_q = params.cu_seqlens_q;
  result.total_q = part.total_q;
  result.cu_seqlens_k = params.cu_seqlens_k;
  result.total_k = part.total_k;
  result.seqused_q = params.seqused_q;
  const ExpressionTexts texts = expression_texts(args);
  result.sink = texts.sink;
  result.sink_like_q = texts.sink_like_q;
  return result;
}

}  // namespace attune
