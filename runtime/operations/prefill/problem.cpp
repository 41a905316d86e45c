#include "runtime/operations/prefill/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "runtime/call/page_counts.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"

namespace attune {
namespace {

constexpr int most_packed_heads = 64;  // the rows of a warpgroup
constexpr int known_multiple = 16;     // kernels may know that a page's rows are a multiple of it
constexpr int most_fixed_ratio = 256;  // of heads, that a kernel can be for alone: gqa_ratio's maximum

long long tiles_of(long long rows, int B_r) { return (rows + B_r - 1) / B_r; }

}  // namespace

std::string Problem::text() const { return text_of(*this, "") + expressions.text(); }

Problem Problem::usual() {
  return {.heads_q = 16,
          .heads_kv = left_out,
          .seqlen_q = 1024,
          .seqlen_k = left_out,
          .head_dim_v = left_out,
          .total_q = left_out,
          .total_k = left_out,
          .page_size = left_out};
}

void Problem::complete() {
  fill(heads_kv, heads_q);
  fill(seqlen_k, seqlen_q);
  fill(head_dim_v, 0);
  fill(total_q, ragged ? longest_total(batch, seqlen_q) : 0);
  paged = page_size != left_out;
  fill(total_k, ragged && !paged ? longest_total(batch, seqlen_k) : 0);
  fill(page_size, 0);
  if (!paged) return;
  table_width = std::max(1, pages_of(seqlen_k, page_size));
  pages = all_pages(batch, table_width);
}

Problem::Keys Problem::visible_keys(int row) const {
  const long long position = static_cast<long long>(row) + seqlen_k - seqlen_q;
  const int right = causal ? 0 : window_right;
  const long long first = window_left < 0 ? 0 : position - window_left;
  const long long end = right < 0 ? seqlen_k : position + right + 1;
  return {static_cast<int>(std::clamp<long long>(first, 0, seqlen_k)),
          static_cast<int>(std::clamp<long long>(end, 0, seqlen_k))};
}

Unmappable Problem::unmappable() const {
  if (seqlen_k == 0) return Unmappable::seqlen_k;
  if (stored_keys() == 0) return Unmappable::total_k;
  if (stored_key_sequences() == 0) return Unmappable::pages;
  return mappable_strides ? Unmappable::no : Unmappable::strides;
}

int Problem::page_multiple() const {
  return paged && mappable_pages && page_size % known_multiple == 0 ? known_multiple : 1;
}

long long Problem::rows(bool packed) const {
  return packed ? static_cast<long long>(seqlen_q) * (heads_q / heads_kv) : seqlen_q;
}

bool Problem::is_packable() const {
  const int ratio = heads_q / heads_kv;
  return ratio >= 2 && ratio <= most_packed_heads && std::has_single_bit(static_cast<unsigned>(ratio)) &&
         rows(true) <= most_rows;
}

Problem Problem::typical() const {
  Problem result = *this;
  if (!ragged) return result;
  result.seqlen_q = std::clamp(seqlen_q, 1, std::max(1, total_q));
  if (!paged) result.seqlen_k = std::clamp(seqlen_k, 1, std::max(1, total_k));
  const long long sequences = (total_q + result.seqlen_q / 2LL) / result.seqlen_q;
  result.batch = static_cast<int>(std::clamp<long long>(sequences, 1, std::max(1, batch)));
  return result;
}

bool Problem::one_length() const {
  const auto is_longest = [&](int total, int longest) { return total == static_cast<long long>(batch) * longest; };
  return !ragged || (is_longest(total_q, seqlen_q) && is_longest(total_k, seqlen_k));
}

int Problem::best_B_r(bool packed) const {
  constexpr long long rows_per_tile = 16;
  const auto cost = [&](int B_r) { return tiles_of(rows(packed), B_r) * (B_r + rows_per_tile); };
  return *std::ranges::min_element(tile_rows, {}, cost);
}

bool Problem::packing_saves_rows(int packed_B_r, int B_r) const {
  return tiles_of(rows(true), packed_B_r) * packed_B_r < tiles_of(rows(false), B_r) * B_r * (heads_q / heads_kv);
}

unsigned Problem::packing() const {
  if (!is_packable()) return 0;
  auto key = static_cast<unsigned>(best_B_r(true)) / 64;
  for (const int packed_B_r : tile_rows) {
    for (const int B_r : tile_rows) key = key << 1 | (packing_saves_rows(packed_B_r, B_r) ? 1U : 0U);
  }
  return key;
}

Ask Problem::ask() const {
  return {.need = expressions.given_to(Need{.operation = operation,
                                            .dtype = static_cast<int>(dtype),
                                            .head_dim = head_dim,
                                            .head_dim_v = head_dim_of_v() == head_dim ? 0 : head_dim_v,
                                            .paged = paged ? 1 : 0,
                                            .page_multiple = page_multiple(),
                                            .causal = causal && !has_window(*this) ? 1 : 0,
                                            .window = has_window(*this) ? 1 : 0,
                                            .softcap = softcap > 0 ? 1 : 0,
                                            .ragged = ragged ? 1 : 0,
                                            .dropout = dropout ? 1 : 0,
                                            .cut_rows = is_cut(head_dim) || is_cut(head_dim_of_v()) ? 1 : 0,
                                            .gqa_ratio = std::min(heads_q / heads_kv, most_fixed_ratio + 1),
                                            .unmappable = static_cast<int>(unmappable())}),
          .preference = {.B_r = best_B_r(), .packing = packing(), .one_length = one_length()}};
}

std::vector<std::string> problems_of(const Problem& problem) {
  FieldChecks checks = checked_fields(problem);
  checks.heads(problem.heads_q, problem.heads_kv);
  if (problem.paged) {
    checks.room({.page_size = problem.page_size, .pages = problem.pages, .table_width = problem.table_width},
                "seqlen_k", problem.seqlen_k);
  }
  return std::move(checks).take();
}

}  // namespace attune
