// What a problem asks of a kernel, and whether a variant meets it: by the field table alone, for every operation.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// Why tensor maps cannot describe Q, K and V.
enum class Unmappable : int {
  no = 0,        ///< they can
  seqlen_k = 1,  ///< no sequence has a key
  total_k = 2,   ///< of a ragged batch no sequence has one
  strides = 3,
  queries = 4,  ///< of a backward pass no sequence has a query
  pages = 5,    ///< a cache has none
};

/// The part of a Variant that a problem dictates; the rest (tile, schedule) is free. Each member but the first and the
/// last has the name of its field in the table, and stays at its default where an operation's kernels do not depend on
/// it. Problems of one operation with equal needs are served by the same kernel, where they prefer the same
/// (Preference).
struct Need {
  Operation operation = Operation::prefill;
  int dtype = static_cast<int>(Dtype::bf16);
  int head_dim = 128;
  int head_dim_v = 0;  ///< 0: as head_dim
  int paged = 0;
  int page_multiple = 1;  ///< of the problem's page size: the largest that kernels are made for
  int rotary = static_cast<int>(Rotary::none);
  int causal = 0;  ///< 0 with a window, which has the mask among its bounds
  int window = 0;
  int softcap = 0;
  int score = 0;  ///< the number of an expression; 0: none
  int mask = 0;   ///< likewise
  int sink = 0;
  int ragged = 0;
  int dropout = 0;
  int cut_rows = 0;                                   ///< head_dim is no multiple of 8
  int gqa_ratio = 0;                                  ///< heads of Q per head of K and V
  int one_query = 0;                                  ///< each sequence has one query
  int deterministic = 1;                              ///< sums have one order; 0: they may have any
  int unmappable = static_cast<int>(Unmappable::no);  ///< what families with tensor maps cannot meet

  auto operator<=>(const Need&) const = default;

  /// Of V and O.
  [[nodiscard]] constexpr int head_dim_of_v() const { return head_dim_v == 0 ? head_dim : head_dim_v; }

  /// Equal for equal needs.
  [[nodiscard]] std::uint64_t hash() const;
};

/// Why this variant's kernel cannot meet the need, each naming the field and both values; empty when it can. GPUs and
/// sizes apart.
std::vector<std::string> refusals(const Variant& variant, const Need& need);

/// The same as a word, without the reasons.
bool meets(const Variant& variant, const Need& need);

/// The variant made for more problems: its fields that fit one value alone (gqa_ratio) fit any.
Variant relaxed(const Variant& variant);

}  // namespace attune
