#include "runtime/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "generator/variant.hpp"
#include "runtime/field_checks.hpp"

namespace attune {
namespace {

constexpr int most_packed_heads = 64;  // the rows of a warpgroup

long long tiles_of(long long rows, int B_r) { return (rows + B_r - 1) / B_r; }

}  // namespace

std::string Problem::text() const {
  const std::string v = head_dim_of_v() == head_dim ? "" : fmt::format("v{}", head_dim_v);
  return fmt::format("{} d{}{} b{} hq{} hk{} lq{} lk{}{}", dtype == Dtype::fp16 ? "fp16" : "bf16", head_dim, v, batch,
                     heads_q, heads_kv, seqlen_q, seqlen_k, causal ? " causal" : "");
}

long long Problem::rows(bool packed) const {
  return packed ? static_cast<long long>(seqlen_q) * (heads_q / heads_kv) : seqlen_q;
}

bool Problem::is_packable() const {
  const int ratio = heads_q / heads_kv;
  return ratio >= 2 && ratio <= most_packed_heads && std::has_single_bit(static_cast<unsigned>(ratio)) &&
         rows(true) <= most_rows;
}

int Problem::best_B_r(bool packed) const {
  constexpr long long rows_per_tile = 16;
  return *std::ranges::min_element(tile_rows, {},
                                   [&](int B_r) { return tiles_of(rows(packed), B_r) * (B_r + rows_per_tile); });
}

bool Problem::packing_saves_rows(int packed_B_r, int B_r) const {
  return tiles_of(rows(true), packed_B_r) * packed_B_r < tiles_of(rows(false), B_r) * B_r * (heads_q / heads_kv);
}

unsigned Problem::packing_key() const {
  if (!is_packable()) return 0;
  auto key = static_cast<unsigned>(best_B_r(true)) / 64;
  for (const int packed_B_r : tile_rows) {
    for (const int B_r : tile_rows) key = key << 1 | (packing_saves_rows(packed_B_r, B_r) ? 1U : 0U);
  }
  return key;
}

std::vector<std::string> problems_of(const Problem& problem) {
  FieldChecks checks;
  checks.dtype(problem.dtype);
  checks.at_least("batch", problem.batch, 0);
  checks.in_range("seqlen_q", problem.seqlen_q, 0, most_rows);
  checks.in_range("seqlen_k", problem.seqlen_k, 0, most_rows);
  checks.heads(problem.heads_q, problem.heads_kv);
  checks.head_dim("head_dim", problem.head_dim);
  if (problem.head_dim_v != 0) checks.head_dim("head_dim_v", problem.head_dim_v, ", or 0 where it is head_dim");
  return std::move(checks).take();
}

}  // namespace attune
