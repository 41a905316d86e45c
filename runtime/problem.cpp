#include "runtime/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "generator/variant.hpp"

namespace attune {
namespace {

constexpr int head_dim_step = 8;  // 16 bytes: what one copy instruction moves
constexpr int head_dim_limit = 256;
constexpr int seqlen_limit = 1 << 30;  // positions and tile edges beyond them stay inside an int

}  // namespace

std::string Problem::text() const {
  return fmt::format("{} d{} b{} hq{} hk{} lq{} lk{}{}", dtype == Dtype::fp16 ? "fp16" : "bf16", head_dim, batch,
                     heads_q, heads_kv, seqlen_q, seqlen_k, causal ? " causal" : "");
}

int Problem::best_B_r() const {
  constexpr long long queries_per_tile = 16;
  constexpr std::array candidates{64, 128, 192};
  return *std::ranges::min_element(candidates, {}, [&](int B_r) {
    const long long tiles = (seqlen_q + B_r - 1LL) / B_r;
    return tiles * (B_r + queries_per_tile);
  });
}

std::vector<std::string> problems_of(const Problem& problem) {
  std::vector<std::string> found;
  const auto at_least = [&found](const char* field, int value, int minimum) {
    if (value < minimum) found.push_back(fmt::format("{} is {}; it must be at least {}", field, value, minimum));
  };
  if (problem.dtype != Dtype::fp16 && problem.dtype != Dtype::bf16) {
    found.push_back(fmt::format("dtype is {}; it must be 0 (fp16) or 1 (bf16)", static_cast<int>(problem.dtype)));
  }
  at_least("batch", problem.batch, 0);
  for (const auto& [field, value] : {std::pair{"seqlen_q", problem.seqlen_q}, {"seqlen_k", problem.seqlen_k}}) {
    if (value < 0 || value > seqlen_limit) {
      found.push_back(fmt::format("{} is {}; it must be from 0 to {}", field, value, seqlen_limit));
    }
  }
  at_least("heads_q", problem.heads_q, 1);
  at_least("heads_kv", problem.heads_kv, 1);
  if (problem.heads_q >= 1 && problem.heads_kv >= 1 && problem.heads_q % problem.heads_kv != 0) {
    found.push_back(
        fmt::format("heads_kv is {}; it must divide heads_q, which is {}", problem.heads_kv, problem.heads_q));
  }
  if (problem.head_dim < head_dim_step || problem.head_dim > head_dim_limit || problem.head_dim % head_dim_step != 0) {
    found.push_back(fmt::format("head_dim is {}; it must be a multiple of {} from {} to {}", problem.head_dim,
                                head_dim_step, head_dim_step, head_dim_limit));
  }
  return found;
}

}  // namespace attune
