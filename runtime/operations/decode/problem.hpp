// What a caller of decode has: shapes and element type, no pointers; and what is left to combine after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/call_expressions.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/call/problem_view.hpp"
#include "runtime/operations/store/problem.hpp"

namespace attune {

/// Queries of a sequence, and heads that share keys and values, that decode takes.
inline constexpr int most_decode_queries = 16;
inline constexpr int most_shared_heads = 256;

/// The merge of the results that decode's thread blocks leave.
struct CombineProblem {
  static constexpr Operation operation = Operation::combine;
  static constexpr const char* word = "combine";

  Dtype dtype = Dtype::bf16;
  int head_dim = 128;   ///< of a row of O, a multiple of 8
  bool ragged = false;  ///< as DecodeProblem has it

  static const ProblemFacts facts;

  auto operator<=>(const CombineProblem&) const = default;

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const;

  /// "combine bf16 d128 ragged"
  [[nodiscard]] std::string text() const;
};

/// Attention of few queries to a cache. The cache is pages of page_size tokens; a contiguous one is a page for each of
/// its sequences.
struct DecodeProblem {
  static constexpr Operation operation = Operation::decode;
  static constexpr const char* word = "decode";  ///< as Problem has it

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int seqlen_q = 1;
  int heads_q = 1;
  int heads_kv = 1;
  int head_dim = 128;
  int max_seqlen_k = 1;        ///< no sequence has more keys
  bool equal_lengths = false;  ///< each has as many; else how many it has is known on the device alone
  int page_size = 1;
  int pages = 1;
  int table_width = 1;            ///< pages that a sequence may have
  int splits = 0;                 ///< parts of the keys of each sequence; 0: as attune.h has it
  int window_left = -1;           ///< keys that a query sees before its own position; -1: all
  int window_right = -1;          ///< and after it; 0: causal, -1: all
  float softcap = 0;              ///< scores x, scaled, become softcap * tanh(x / softcap); 0: they stay
  CallExpressions expressions{};  ///< of scores and masks. No field of records and tables

  int seqlen_new = 0;            ///< keys that the call appends to each sequence, max_seqlen_k with them
  Rotary rotary = Rotary::none;  ///< of these keys and of the queries
  int rotary_dim = 0;            ///< as StoreProblem has it
  int rotations = 0;

  bool ragged = false;  ///< each sequence has up to seqlen_q queries, how many is known on the device alone;
                        ///< its calls append no keys
  int total_q = 0;      ///< rows of a ragged Q and O
  int longest_q = 0;    ///< where it is more than seqlen_q, sequences may have so many queries, and those of more than
                        ///< seqlen_q are left out. No field of records and tables

  bool packed_keys = false;  ///< of a ragged batch: its keys lie one sequence after the other, in no pages
  int total_k = 0;           ///< rows of a packed K and V

  static const ProblemFacts facts;

  auto operator<=>(const DecodeProblem&) const = default;

  /// As Problem::usual() and Problem::complete(). A cache with a page_size has several pages, one without is
  /// contiguous; with a rotation a key
  /// comes along, and all columns that can be rotated are; with total_k keys are packed.
  [[nodiscard]] static DecodeProblem usual();
  void complete();

  /// Whether a sequence's keys may lie in several pages.
  [[nodiscard]] bool paged() const { return table_width > 1; }

  /// What kernels are made for: 16 where pages are multiples of 16 tokens, else 1.
  [[nodiscard]] int page_multiple() const {
    constexpr int piece = 16;
    return paged() && page_size % piece == 0 ? piece : 1;
  }

  /// All sequences have the same number of keys, as a single one has though the device alone knows it.
  [[nodiscard]] bool one_length() const { return equal_lengths || batch == 1; }

  /// No sequence has more keys that count.
  [[nodiscard]] int longest_keys() const { return packed_keys ? std::min(max_seqlen_k, total_k) : max_seqlen_k; }

  static constexpr int line_columns = 64;  ///< of K and V, whose bytes are a line of L2

  /// Whether rows of keys are parts of such lines, which neighbouring heads share.
  [[nodiscard]] bool shares_lines() const { return head_dim % line_columns != 0 && heads_kv > 1; }

  /// Queries of all heads that share a K/V head.
  [[nodiscard]] int rows() const { return seqlen_q * (heads_q / heads_kv); }

  /// Rows of a tile: one for all of them up to 128, or 64 where sequences are few and O is wide, else several alike.
  [[nodiscard]] int best_B_r() const;

  /// As Preference has it: parts of many rows are much to write and read beside few keys, and where rows and keys are
  /// few a second kernel takes long beside the first, for which kernels ship. Not where a mask's expression leaves out
  /// keys, as clusters read them.
  [[nodiscard]] Clusters clusters() const;

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const;

  [[nodiscard]] bool appends() const { return seqlen_new > 0; }
  [[nodiscard]] bool rotates() const { return rotary != Rotary::none; }

  /// Extents of Q and O as they lie in memory: a ragged batch is one sequence there.
  [[nodiscard]] int stored_sequences() const { return ragged ? 1 : batch; }
  [[nodiscard]] int stored_queries() const { return ragged ? total_q : seqlen_q; }

  /// What brings the new keys into the cache; empty where there are none.
  [[nodiscard]] StoreProblem store() const;

  /// What merges the results of its parts.
  [[nodiscard]] CombineProblem merge() const {
    return {.dtype = dtype, .head_dim = padded_head_dim(head_dim), .ragged = ragged};
  }

  /// "decode bf16 d128 b2 hq32 hk8 lq1 lk4096 page16 splits2 left128 right0 softcap30 new1 halves64": at most 4096
  /// keys, one of them new, rotated in 64 columns; what is unlimited, one page or left to the library is not named.
  /// "ragged tq5" ends that of a ragged batch of 5 queries, "ragged tq5 tk700" where its keys are 700 packed ones
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const DecodeProblem& problem);

}  // namespace attune
