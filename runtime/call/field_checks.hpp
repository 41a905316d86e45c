// What the checks of every operation's problem share: what single fields may be, and the rules that relate some of
// them.
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// Elements of 16 bytes, what one copy instruction moves: rows begin at multiples of it.
inline constexpr int head_dim_step = 8;

/// Columns that a row of Q or O has in memory. Those beyond head_dim are zeros, or any finite numbers, in Q and are
/// written in O.
constexpr auto padded_head_dim(std::integral auto head_dim) {
  return (head_dim + head_dim_step - 1) / head_dim_step * head_dim_step;
}

/// Whether rows of K and V, which have no columns beyond head_dim, end inside such a copy.
constexpr bool is_cut(int head_dim) { return head_dim % head_dim_step != 0; }

/// Columns that are rotated are multiples of it: 16 bytes of each half.
inline constexpr int rotary_dim_step = 16;

/// Lengths and rows of a tile's head: positions and tile edges beyond them stay inside an int.
inline constexpr int most_rows = 1 << 30;

/// Of softcap and softmax_scale: 2^64. A cap that far above scores changes none in float32, and below it neither its
/// product with log2 e nor a score of fp16 inputs (at most 2^40, scaled) leaves that type.
inline constexpr float largest_scale = 0x1p64F;

/// The whole numbers that a field may be. Choices, flags and floats have the same range wherever they occur.
struct FieldRange {
  int minimum = 0;
  int maximum = std::numeric_limits<int>::max();
  int step = 1;                ///< a multiple of it
  const char* zero = nullptr;  ///< the field that 0, below the minimum, stands for

  [[nodiscard]] constexpr bool has(int value) const {
    return (value >= minimum && value <= maximum && value % step == 0) || (value == 0 && zero != nullptr);
  }
};

inline constexpr FieldRange any_number{.minimum = std::numeric_limits<int>::min()};
inline constexpr FieldRange any_length{.minimum = 0, .maximum = most_rows};
inline constexpr FieldRange any_head_dim{.minimum = 1, .maximum = 256};
inline constexpr FieldRange whole_head_dim{.minimum = head_dim_step, .maximum = 256, .step = head_dim_step};
inline constexpr FieldRange any_bound{.minimum = -1, .maximum = most_rows - 1};  ///< of a window; -1: unlimited
inline constexpr FieldRange at_least_one{.minimum = 1};
inline constexpr FieldRange any_extent{.minimum = 1, .maximum = most_rows};

/// The pages of a cache.
struct CacheShape {
  int page_size;
  int pages;
  int table_width;  ///< pages that a sequence may have
};

/// Collects a line for each field that no kernel could serve: its name, its value and the accepted range. Nothing is
/// allocated where nothing is wrong.
class FieldChecks {
 public:
  void value(const char* key, const FieldRange& range, int value) {
    if (!range.has(value)) [[unlikely]]
      add_number(key, range, value);
  }
  void value(const char* key, const FieldRange& range, float value);
  void value(const char* key, const FieldRange& range, Dtype value);
  void value(const char* key, const FieldRange& range, Rotary value);
  void value(const char* /*key*/, const FieldRange& /*range*/, bool /*value*/) {}

  /// Whether heads_kv divides heads_q; a line where it does not, and none about a value that is no number of heads.
  bool heads(int heads_q, int heads_kv);

  /// Whether a sequence's pages hold the most keys that one may have, whose field is `field`.
  void room(const CacheShape& cache, const char* field, int seqlen_k);

  /// Of the first rotary_dim columns; nothing where nothing is rotated.
  void rotation(Rotary rotary, int rotary_dim, int head_dim);

  void add(std::string line) { found_.push_back(std::move(line)); }
  [[nodiscard]] std::vector<std::string> take() && { return std::move(found_); }

 private:
  void add_number(const char* key, const FieldRange& range, int value);

  std::vector<std::string> found_;
};

}  // namespace attune
