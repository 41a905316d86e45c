// Dropout as callers say it: checks, and what kernels are told.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/add_line.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/backend.hpp"
#include "runtime/call/operand.hpp"
#include "templates/dropout.h"

namespace attune {

/// Of the 256 values of a byte those that keep a weight: 1 - dropout_p is rounded to a multiple of 1 / 256, and is that
/// at least. 256: nothing is dropped.
inline unsigned kept_values(float dropout_p) {
  return static_cast<unsigned>(std::clamp(std::lround((1 - dropout_p) * 256), 1L, 256L));
}

/// Adds a line where p is no probability, or where the offset has more bits than kernels use.
inline void check_dropout(std::vector<std::string>& found, const attune_dropout& dropout) {
  constexpr int offset_bits = 44;
  if (!(dropout.p >= 0 && dropout.p < 1)) {
    add_line(found, "dropout_p is {}; it must be at least 0 and less than 1", dropout.p);
  }
  if (dropout.p > 0 && dropout.state == nullptr && dropout.offset >> offset_bits != 0) {
    add_line(found, "dropout.offset is {}; it must be at least 0 and less than 2^{}", dropout.offset, offset_bits);
  }
}

/// What a kernel is told.
inline AttuneDropout kernel_dropout(const attune_dropout& dropout) {
  const unsigned kept = kept_values(dropout.p);
  return {.state = reinterpret_cast<const long long*>(dropout.state),
          .seed = dropout.seed,
          .offset = dropout.offset,
          .kept = kept,
          .scale = 256 / static_cast<float>(kept)};
}

/// Seed and offset in device memory; null where they are not there.
inline Operand dropout_operand(const attune_dropout& dropout) {
  return array_operand("dropout.state", dropout.state, {1, 1, 1, 2});
}

/// Throws where a graph would be captured whose replays all drop the same.
inline void require_replayable(const attune_dropout& dropout, const Backend& backend) {
  if (dropout.state != nullptr || !backend.executor.is_capturing(backend.stream)) return;
  throw Error(ATTUNE_INVALID_ARGUMENT,
              "dropout.state is null, but the stream is being captured; seed and offset must be two int64 in device "
              "memory, or every replay drops the same weights");
}

}  // namespace attune
