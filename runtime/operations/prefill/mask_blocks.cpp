#include "runtime/operations/prefill/mask_blocks.hpp"

#include <fmt/format.h>

#include <limits>

#include "generator/expression/interval.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/base/division.hpp"

namespace attune {
namespace {

constexpr int word_blocks = 32;

/// The expressions that its kernel has.
CallExpressions mask_of(const Problem& problem) { return {.score = 0, .mask = problem.expressions.mask}; }

}  // namespace

const ProblemFacts MaskBlocksProblem::facts = usual_facts<MaskBlocksProblem>();

std::string MaskBlocksProblem::text() const {
  return fmt::format("mask_blocks of{}", CallExpressions{.score = 0, .mask = mask}.text());
}

MaskBlocksPlan plan_mask_blocks(const Variant& variant, const Problem& problem) {
  if (problem.expressions.mask == 0 || problem.batch == 0) return {};
  const expression::Expression& mask = expression::expression_of(problem.expressions.mask);
  if (!expression::bounds_by_lookups(mask)) return {};
  const int ratio = variant.pack_gqa != 0 ? problem.heads_q / problem.heads_kv : 1;
  const MaskBlocksPlan plan{
      .tile_words = static_cast<int>(ceil_div(ceil_div(problem.seqlen_k, variant.B_c), word_blocks)),
      .tiles = static_cast<int>(ceil_div(problem.rows(ratio > 1), variant.B_r)),
      .heads = expression::depends_on_head(mask.root) ? problem.heads_q / ratio : 1,
      .ratio = ratio,
      .batch = problem.batch,
      .drawn = variant.family == prefill_sm90 && variant.ragged == 0};
  const bool fits = plan.pairs() > 0 && plan.pairs() < std::numeric_limits<int>::max();
  return fits ? plan : MaskBlocksPlan{};
}

AttuneMaskBlocksParams make_params(const attune_prefill_args& args, const Problem& problem, const Variant& variant,
                                   const MaskBlocksPlan& plan, const AttunePrefillParams& params, unsigned* words) {
  return {.expressions = expression_params(expression_texts(args), mask_of(problem), 0),
          .blocks = told(plan, words),
          .tile_rows = variant.B_r,
          .block_keys = variant.B_c,
          .ratio = plan.ratio,
          .gqa_ratio = params.gqa_ratio,
          .seqlen_q = params.seqlen_q,
          .seqlen_k = params.seqlen_k,
          .window_right = params.window_right,
          .total_q = params.total_q,
          .total_k = params.total_k,
          .cu_seqlens_q = params.cu_seqlens_q,
          .cu_seqlens_k = params.cu_seqlens_k,
          .seqused_q = params.seqused_q,
          .seqused_k = params.seqused_k};
}

void visit_operands(const attune_prefill_args& args, const Problem& problem, const AttuneMaskBlocksParams& params,
                    const MaskBlocksPlan& plan, VisitOperand visit) {
  visit_expressions(expression_texts(args), mask_of(problem), visit);
  visit(lengths_operand("cu_seqlens_q", params.cu_seqlens_q, problem.batch + 1LL));
  visit(lengths_operand("cu_seqlens_k", params.cu_seqlens_k, problem.batch + 1LL));
  visit(lengths_operand("seqused_q", params.seqused_q, problem.batch));
  visit(lengths_operand("seqused_k", params.seqused_k, problem.batch));
  visit(words_operand(plan, params.blocks.words, Access::write));
  visit(drawn_operand(plan, params.blocks.words, Access::write));
}

AttuneMaskBlocks told(const MaskBlocksPlan& plan, unsigned* words) {
  const bool counts = words != nullptr && plan.drawn;
  return {.words = words,
          .tile_words = plan.tile_words,
          .tiles = plan.tiles,
          .heads = plan.heads,
          .drawn = counts ? reinterpret_cast<int*>(words + 2 * plan.pairs()) : nullptr};
}

Operand drawn_operand(const MaskBlocksPlan& plan, const unsigned* words, Access access) {
  const bool counts = words != nullptr && plan.drawn;
  return array_operand("drawn_tiles", counts ? words + 2 * plan.pairs() : nullptr, {1, 1, 1, counts ? 2 : 0}, access);
}

Operand words_operand(const MaskBlocksPlan& plan, const unsigned* words, Access access) {
  return array_operand("mask_blocks", words, sizeof(unsigned), 2 * sizeof(unsigned),
                       {1, 1, plan.all_tiles(), 2LL * plan.tile_words}, access);
}

}  // namespace attune
