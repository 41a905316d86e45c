// What a caller has: the operation, its shapes and its element type, no pointers.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// One dense forward attention (prefill) problem.
struct Problem {
  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int heads_q = 1;
  int heads_kv = 1;
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 128;
  bool causal = false;
  bool mappable_strides = true;  ///< those of Q, K and V are such that tensor maps can describe them

  auto operator<=>(const Problem&) const = default;

  /// Whether a kernel can read Q, K and V through tensor maps, which hold at least one key.
  [[nodiscard]] bool has_tensor_maps() const { return mappable_strides && seqlen_k > 0; }

  /// How many queries a tile had best hold, of 64, 128 and 192. A tile reads all keys and values once, which costs about
  /// as much as 16 more queries; so larger ones win unless they compute many queries that do not exist.
  [[nodiscard]] int best_B_r() const;

  /// "bf16 d128 b2 hq32 hk8 lq1024 lk1024 causal"
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const Problem& problem);

}  // namespace attune
