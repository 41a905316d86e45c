#include "runtime/lab/arguments.hpp"

#include <cmath>

#include "runtime/lab/dropout_mask.hpp"

namespace attune {
namespace {

/// What the operations share.
template <class Args, class AnyProblem>
Args shared_arguments(const AnyProblem& problem) {
  Args args{};
  args.struct_size = sizeof(args);
  args.dtype = static_cast<attune_dtype>(problem.dtype);
  args.batch = problem.batch;
  args.seqlen_q = problem.seqlen_q;
  args.heads_q = problem.heads_q;
  args.heads_kv = problem.heads_kv;
  args.head_dim = problem.head_dim;
  args.softmax_scale = static_cast<float>(usual_scale(problem.head_dim));
  args.window_left = problem.window_left;
  args.window_right = problem.window_right;
  args.softcap = problem.softcap;
  args.total_q = problem.total_q;
  args.total_k = problem.total_k;
  return args;
}

template <class Args, class AnyProblem>
void set_pages(Args& args, const AnyProblem& problem) {
  args.table_width = problem.table_width;
  args.pages = problem.pages;
  args.page_size = problem.page_size;
}

}  // namespace

double usual_scale(int head_dim) { return 1 / std::sqrt(static_cast<double>(head_dim)); }

attune_prefill_args arguments_of(const Problem& problem) {
  auto args = shared_arguments<attune_prefill_args>(problem);
  set_pages(args, problem);
  args.seqlen_k = problem.seqlen_k;
  args.causal = problem.causal ? 1 : 0;
  args.head_dim_v = problem.head_dim_v;
  args.window = 1;
  args.dropout = usual_dropout(problem.dropout);
  return args;
}

attune_decode_args arguments_of(const DecodeProblem& problem) {
  auto args = shared_arguments<attune_decode_args>(problem);
  set_pages(args, problem);
  args.max_seqlen_k = problem.max_seqlen_k;
  args.splits = problem.splits;
  args.seqlen_new = problem.seqlen_new;
  args.rotary = static_cast<attune_rotary>(problem.rotary);
  args.rotary_dim = problem.rotary_dim;
  args.rotations = problem.rotations;
  return args;
}

attune_backward_args arguments_of(const BackwardProblem& problem) {
  auto args = shared_arguments<attune_backward_args>(problem);
  args.seqlen_k = problem.seqlen_k;
  args.causal = problem.causal ? 1 : 0;
  args.head_dim_v = problem.head_dim_of_v();
  args.window = 1;
  args.any_order = problem.any_order ? 1 : 0;
  args.dropout = usual_dropout(problem.dropout);
  return args;
}

}  // namespace attune
