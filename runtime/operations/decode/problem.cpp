#include "runtime/operations/decode/problem.hpp"

#include <fmt/format.h>

#include "runtime/call/field_checks.hpp"

namespace attune {
namespace {

constexpr int most_splits = 256;

const char* dtype_text(Dtype dtype) { return dtype == Dtype::fp16 ? "fp16" : "bf16"; }

void check_new_keys(FieldChecks& checks, const DecodeProblem& problem) {
  checks.at_least("seqlen_new", problem.seqlen_new, 0);
  if (problem.seqlen_new > problem.max_seqlen_k && problem.max_seqlen_k >= 0) {
    checks.add(fmt::format("seqlen_new is {}; it must be at most max_seqlen_k, which is {}", problem.seqlen_new,
                           problem.max_seqlen_k));
  }
  checks.rotation(problem.rotary, problem.rotary_dim, problem.rotations, problem.head_dim);
  if (problem.rotates() && problem.seqlen_new == 0) {
    checks.add("seqlen_new is 0; queries are rotated where the same call appends keys alone");
  }
}

void check_keys(FieldChecks& checks, const DecodeProblem& problem) {
  checks.in_range("max_seqlen_k", problem.max_seqlen_k, 0, most_rows);
  if (!problem.packed_keys) {
    checks.cache({.page_size = problem.page_size, .pages = problem.pages, .table_width = problem.table_width},
                 "max_seqlen_k", problem.max_seqlen_k);
    return;
  }
  checks.in_range("total_k", problem.total_k, 0, most_rows);
  if (!problem.ragged)
    checks.add("cu_seqlens_k is given without cu_seqlens_q; packed keys are those of ragged batches");
}

void check_ragged(FieldChecks& checks, const DecodeProblem& problem) {
  checks.in_range("total_q", problem.total_q, 0, most_rows);
  if (problem.seqlen_new == 0) return;
  checks.add(fmt::format("seqlen_new is {}; calls of a ragged batch append no keys, attune_store_kv writes them",
                         problem.seqlen_new));
}

}  // namespace

Ask CombineProblem::ask() const {
  return {.need = {.operation = operation,
                   .dtype = static_cast<int>(dtype),
                   .head_dim = head_dim,
                   .ragged = ragged ? 1 : 0},
          .preference = {}};
}

Ask DecodeProblem::ask() const {
  return {.need = {.operation = operation,
                   .dtype = static_cast<int>(dtype),
                   .head_dim = head_dim,
                   .paged = paged() ? 1 : 0,
                   .page_multiple = page_multiple(),
                   .rotary = static_cast<int>(rotary),
                   .softcap = softcap > 0 ? 1 : 0,
                   .ragged = ragged ? 1 : 0,
                   .gqa_ratio = heads_q / heads_kv,
                   .one_query = seqlen_q == 1 ? 1 : 0},
          .preference = {.B_r = best_B_r()}};
}

StoreProblem DecodeProblem::store() const {
  return {.dtype = dtype,
          .batch = batch,
          .tokens = seqlen_new,
          .heads_kv = heads_kv,
          .head_dim = head_dim,
          .page_size = page_size,
          .pages = pages,
          .table_width = table_width,
          .rotary = rotary,
          .rotary_dim = rotary_dim,
          .rotations = rotations};
}

std::string DecodeProblem::text() const {
  std::string text = fmt::format("decode {} d{} b{} hq{} hk{} lq{} lk{}", dtype_text(dtype), head_dim, batch, heads_q,
                                 heads_kv, seqlen_q, max_seqlen_k);
  if (paged()) text += fmt::format(" page{}", page_size);
  if (splits != 0) text += fmt::format(" splits{}", splits);
  if (window_left >= 0) text += fmt::format(" left{}", window_left);
  if (window_right >= 0) text += fmt::format(" right{}", window_right);
  if (softcap > 0) text += fmt::format(" softcap{}", softcap);
  if (appends()) text += fmt::format(" new{}", seqlen_new);
  if (rotates()) text += fmt::format(" {}{}", value_text(*find_field("rotary"), static_cast<int>(rotary)), rotary_dim);
  if (ragged) text += fmt::format(" ragged tq{}", total_q);
  if (packed_keys) text += fmt::format(" tk{}", total_k);
  return text;
}

std::vector<std::string> problems_of(const DecodeProblem& problem) {
  FieldChecks checks;
  checks.dtype(problem.dtype);
  checks.at_least("batch", problem.batch, 0);
  checks.in_range("seqlen_q", problem.seqlen_q, 0, most_decode_queries);
  checks.heads(problem.heads_q, problem.heads_kv);
  if (checks.empty() && problem.heads_q / problem.heads_kv > most_shared_heads) {
    checks.add(fmt::format("heads_q is {}; it must be at most {} times heads_kv, which is {}", problem.heads_q,
                           most_shared_heads, problem.heads_kv));
  }
  checks.head_dim("head_dim", problem.head_dim);
  check_keys(checks, problem);
  checks.in_range("splits", problem.splits, 0, most_splits);
  checks.in_range("window_left", problem.window_left, -1, most_rows - 1);
  checks.in_range("window_right", problem.window_right, -1, most_rows - 1);
  checks.softcap(problem.softcap);
  check_new_keys(checks, problem);
  if (problem.ragged) check_ragged(checks, problem);
  return std::move(checks).take();
}

const ProblemFacts CombineProblem::facts = usual_facts<CombineProblem>();

std::string CombineProblem::text() const {
  return fmt::format("combine {} d{}{}", dtype_text(dtype), head_dim, ragged ? " ragged" : "");
}

}  // namespace attune
