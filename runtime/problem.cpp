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

TileShape Problem::best_tile(bool packed) const {
  constexpr long long rows_per_tile = 16;
  constexpr int many_keys = 2048;
  const auto cost = [&](int B_r) { return tiles_of(rows(packed), B_r) * (B_r + rows_per_tile); };
  return {.B_r = *std::ranges::min_element(tile_rows, {}, cost),
          .B_c = seqlen_k < many_keys ? tile_keys.front() : tile_keys.back()};
}

bool Problem::packing_saves_rows(int packed_B_r, int B_r) const {
  return tiles_of(rows(true), packed_B_r) * packed_B_r < tiles_of(rows(false), B_r) * B_r * (heads_q / heads_kv);
}

unsigned Problem::packing_key() const {
  if (!is_packable()) return 0;
  auto key = static_cast<unsigned>(best_tile(true).B_r) / 64;
  for (const int packed_B_r : tile_rows) {
    for (const int B_r : tile_rows) key = key << 1 | (packing_saves_rows(packed_B_r, B_r) ? 1U : 0U);
  }
  return key;
}

std::uint64_t Problem::key() const {
  const TileShape tile = best_tile();
  const auto step = [](int columns) { return static_cast<std::uint64_t>(columns / head_dim_step - 1); };
  auto key = static_cast<std::uint64_t>(dtype);
  key = key << 1 | (causal ? 1U : 0U);
  key = key << 1 | (has_tensor_maps() ? 1U : 0U);
  key = key << 2 | static_cast<std::uint64_t>(tile.B_r / 64);
  key = key << 1 | (tile.B_c == tile_keys.back() ? 1U : 0U);
  key = key << 11 | packing_key();
  key = key << 5 | step(head_dim);
  key = key << 5 | step(head_dim_of_v());
  return key << 31 | static_cast<std::uint64_t>(heads_q / heads_kv);
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
