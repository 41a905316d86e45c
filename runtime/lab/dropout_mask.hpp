// Which weights dropout keeps, as kernels decide it (templates/blocks/weight_dropout.cuh), one weight at a time.
#pragma once

#include <cstdint>

#include "attune/attune.h"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

struct DropoutMask {
  std::int64_t seed = 0;
  std::int64_t offset = 0;
  unsigned kept = 256;           ///< of the 256 values of a byte
  std::uint32_t first_head = 0;  ///< of the sequences that a problem begins with, among those of a whole batch

  /// Whether it keeps the weight of a row and a key in the `head`-th head of all sequences.
  [[nodiscard]] bool keeps(int head, int row, int key) const;

  /// By which kept weights are multiplied.
  [[nodiscard]] double scale() const { return 256.0 / kept; }

  /// The same of sequences that begin with this one.
  [[nodiscard]] DropoutMask from(int sequence, int heads_q) const;
};

/// What a call of the lab has where its problem has dropout: three tenths of the weights go.
attune_dropout usual_dropout(bool dropout);

/// The mask of that.
DropoutMask usual_mask(bool dropout);

}  // namespace attune
