// What a caller has: the operation, its shapes and its element type, no pointers.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/call_expressions.hpp"
#include "runtime/call/problem_view.hpp"
#include "runtime/call/window.hpp"

namespace attune {

/// The B_r of kernels that stay for many tiles: one to three warpgroups of 64 rows.
inline constexpr std::array tile_rows{64, 128, 192};

/// One dense forward attention (prefill) problem.
struct Problem {
  static constexpr Operation operation = Operation::prefill;
  static constexpr const char* word = "prefill";  ///< in records and tables

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int heads_q = 1;
  int heads_kv = 1;
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 128;
  int head_dim_v = 0;  ///< of V and O; 0: as head_dim
  bool causal = false;
  int window_left = -1;           ///< keys that a query sees before its own position; -1: all
  int window_right = -1;          ///< and after it; -1: all. Causal means none, whatever this is
  float softcap = 0;              ///< scores x become softcap * tanh(x / softcap); 0: they stay
  bool ragged = false;            ///< sequences one after the other, of lengths that only the device knows;
                                  ///< seqlen_q and seqlen_k are their maxima
  int total_q = 0;                ///< rows of a ragged Q and O
  int total_k = 0;                ///< and of K and V
  bool paged = false;             ///< K and V are pages that tables name; how many keys a sequence has is known on the
                                  ///< device alone, seqlen_k is the most
  int page_size = 0;              ///< keys of a page
  int pages = 0;                  ///< of the cache
  int table_width = 0;            ///< pages that a sequence may have
  bool dropout = false;           ///< of weights
  CallExpressions expressions{};  ///< of scores and masks. No field of records and tables
  bool mappable_strides = true;   ///< those of Q, K, V and O are such that kernels with tensor maps can read them
  bool mappable_pages = true;     ///< and those of K and V in pages such that maps describe these, too

  static const ProblemFacts facts;

  auto operator<=>(const Problem&) const = default;

  /// What a row of a table, a list of problems or a command line begins with: sizes of a usual layer, and `left_out`
  /// (runtime/call/problem_fields.hpp) where other fields say what is meant.
  [[nodiscard]] static Problem usual();

  /// Gives what is left out its value, and the fields of pages theirs: keys and values are in pages where a page_size
  /// is given, as many as there are keys for.
  void complete();

  /// Of V and O.
  [[nodiscard]] int head_dim_of_v() const { return head_dim_v == 0 ? head_dim : head_dim_v; }

  /// Extents of Q and O as they lie in memory: a ragged batch is one sequence there.
  [[nodiscard]] int stored_sequences() const { return ragged ? 1 : batch; }
  [[nodiscard]] int stored_rows() const { return ragged ? total_q : seqlen_q; }

  /// And of K and V, where a page is as a sequence.
  [[nodiscard]] int stored_key_sequences() const { return paged ? pages : stored_sequences(); }
  [[nodiscard]] int stored_keys() const { return paged ? page_size : ragged ? total_k : seqlen_k; }

  /// The keys [first, end) that query `row` sees, whose position is row + seqlen_k - seqlen_q; none where end <= first.
  struct Keys {
    int first;
    int end;
  };
  [[nodiscard]] Keys visible_keys(int row) const;

  /// The largest divisor of page_size that kernels are made for: 16 where boxes of a tensor map can hold rows of pages,
  /// else 1.
  [[nodiscard]] int page_multiple() const;

  /// Whether all sequences are as long as the longest, as far as the host knows: by a ragged batch's totals.
  [[nodiscard]] bool one_length() const;

  /// What choices are made for: a ragged batch is as many sequences of its longest as its queries make, as only the
  /// device knows the others, and long sequences take most of the time; any other is itself.
  [[nodiscard]] Problem typical() const;

  /// Why no kernel can read Q, K and V through tensor maps, which hold at least one key.
  [[nodiscard]] Unmappable unmappable() const;

  /// Rows that hold all queries of a head or, `packed`, of the heads that share keys and values.
  [[nodiscard]] long long rows(bool packed) const;

  /// Whether there is a kernel with pack_gqa for the ratio of heads, and it can count their rows.
  [[nodiscard]] bool is_packable() const;

  /// The best number of rows of a tile, of `tile_rows`. A tile reads all keys and values once, which costs about as
  /// much as 16 more rows; so larger B_r win unless they compute many rows that do not exist.
  [[nodiscard]] int best_B_r(bool packed = false) const;

  /// Whether packed tiles of `packed_B_r` rows compute fewer rows for all heads, those that do not exist included, than
  /// tiles of `B_r` queries.
  [[nodiscard]] bool packing_saves_rows(int packed_B_r, int B_r) const;

  /// Which packed tile of `tile_rows` is best, and whether each saves rows against each of the others: 11 bits. 0 where
  /// no kernel with pack_gqa can serve.
  [[nodiscard]] unsigned packing() const;

  /// What it asks of a kernel, and which of those that do it prefers.
  [[nodiscard]] Ask ask() const;

  /// "bf16 d128 b2 hq32 hk8 lq1024 lk1024 causal"; "d192v128" where V has another head_dim; in pages "page16"
  [[nodiscard]] std::string text() const;
};

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const Problem& problem);

}  // namespace attune
