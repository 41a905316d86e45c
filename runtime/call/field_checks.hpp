// What the checks of every operation's problem share: fields against what kernels take.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generator/variant.hpp"

namespace attune {

/// Head dimensions are multiples of it: 16 bytes, what one copy instruction moves.
inline constexpr int head_dim_step = 8;

/// Lengths and rows of a tile's head: positions and tile edges beyond them stay inside an int.
inline constexpr int most_rows = 1 << 30;

/// Of softcap and softmax_scale: 2^64. A cap that far above scores changes none in float32, and below it neither its
/// product with log2 e nor a score of fp16 inputs (at most 2^40, scaled) leaves that type.
inline constexpr float largest_scale = 0x1p64F;

/// The pages of a cache.
struct CacheShape {
  int page_size;
  int pages;
  int table_width;  ///< pages that a sequence may have
};

/// Collects a line for each field that no kernel could serve: its name, its value and the accepted range.
class FieldChecks {
 public:
  void at_least(const char* field, int value, int minimum);
  void in_range(const char* field, int value, int minimum, int maximum);
  void dtype(Dtype value);
  void heads(int heads_q, int heads_kv);
  void softcap(float value);

  /// `field` is the most keys that a sequence may have.
  void cache(const CacheShape& cache, const char* field, int seqlen_k);

  /// `otherwise` is said behind the range.
  void head_dim(const char* field, int value, const char* otherwise = "");

  /// Of the first rotary_dim columns, for positions below `rotations`.
  void rotation(Rotary rotary, int rotary_dim, int rotations, int head_dim);

  [[nodiscard]] bool empty() const { return found_.empty(); }
  void add(std::string line) { found_.push_back(std::move(line)); }
  [[nodiscard]] std::vector<std::string> take() && { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

}  // namespace attune
