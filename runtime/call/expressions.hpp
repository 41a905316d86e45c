// The expressions of a call: from its texts and arrays to what a problem and a kernel have of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/call/arguments.hpp"
#include "runtime/call/call_expressions.hpp"
#include "runtime/call/operand.hpp"
#include "templates/expression_params.h"

namespace attune {

/// What the dimensions of arrays are counted by.
struct ExpressionExtents {
  int heads_q;
  int heads_kv;
  int batch;
  int queries;    ///< of the longest sequence
  int positions;  ///< likewise
};

/// Those of a problem.
template <class OneProblem>
ExpressionExtents expression_extents(const OneProblem& problem) {
  ExpressionExtents extents{.heads_q = problem.heads_q,
                            .heads_kv = problem.heads_kv,
                            .batch = problem.batch,
                            .queries = problem.seqlen_q,
                            .positions = 0};
  if constexpr (requires { problem.max_seqlen_k; }) {
    extents.positions = problem.max_seqlen_k;
  } else {
    extents.positions = problem.seqlen_k;
  }
  return extents;
}

/// A message where a score and a mask give one name to different arrays, else "".
std::string conflict_of(const CallExpressions& expressions);

/// What a caller gives; nothing where it knows of none.
struct ExpressionTexts {
  const char* score = nullptr;
  const char* mask = nullptr;
  const attune_named_array* params = nullptr;
  int count = 0;
  const void* sink = nullptr;
  int sink_like_q = 0;  ///< 1: of the dtype of q; 0: fp32
  int heads_q = 0;      ///< logits of the sink

  [[nodiscard]] int sink_bytes() const { return sink_like_q != 0 ? 2 : 4; }  ///< of a logit
};
template <class Args>
ExpressionTexts expression_texts(const Args& args) {
  if (args.struct_size < offsetof(Args, param_count) + sizeof(args.param_count)) return {};
  ExpressionTexts texts{.score = args.score, .mask = args.mask, .params = args.params, .count = args.param_count};
  if constexpr (requires { args.sink; }) {
    if (args.struct_size < offsetof(Args, sink) + sizeof(args.sink)) return texts;
    texts.sink = args.sink;
    texts.heads_q = args.heads_q;
    if (args.struct_size < offsetof(Args, sink_like_q) + sizeof(args.sink_like_q)) return texts;
    texts.sink_like_q = args.sink_like_q;
  }
  return texts;
}

/// The expressions of these texts. Throws Error{ATTUNE_INVALID_ARGUMENT} with the place of a mistake in one.
CallExpressions read_expressions(const ExpressionTexts& texts);

/// The arrays that expressions look up, as short as a call of these extents may have them, where nobody reads them:
/// `data` is where each is said to be.
std::vector<attune_named_array> stand_ins(const CallExpressions& expressions, const ExpressionExtents& extents,
                                          const void* data);

/// Adds a line for each array that is missing or not as the expressions have it, and for sizes beyond their limits.
void check_expressions(std::vector<std::string>& found, const ExpressionTexts& texts,
                       const CallExpressions& expressions, const ExpressionExtents& extents);

/// Visits the arrays that checked expressions look up, and the sink.
void visit_expressions(const ExpressionTexts& texts, const CallExpressions& expressions, VisitOperand visit);

/// What kernels are told. `score_scale`: what q.k, after a soft cap's map, is multiplied by for s.
AttuneExpressionParams expression_params(const ExpressionTexts& texts, const CallExpressions& expressions,
                                         float score_scale);

/// The same of a checked call.
template <class Args, class OneProblem>
AttuneExpressionParams make_expression_params(const Args& args, const OneProblem& problem) {
  return expression_params(expression_texts(args), problem.expressions,
                           scales_of(args.softmax_scale, problem.softcap, true).score_scale);
}

}  // namespace attune
