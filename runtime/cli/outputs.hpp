// What a launch is given and what it leaves, the same for a GPU and for the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attune/attune.h"
#include "runtime/operations/prefill/problem.hpp"

namespace attune::cli {

/// O and LSE of a problem in host memory. Both start poisoned with NaN and end in guards that no kernel may touch.
struct Outputs {
  static constexpr std::size_t guard = 256;  ///< elements

  explicit Outputs(const Problem& problem);

  /// Whether all behind O and LSE is still poison.
  [[nodiscard]] bool guards_intact() const;

  std::vector<std::uint16_t> o;  ///< batch x seqlen_q x heads_q x head_dim of V
  std::vector<float> lse;        ///< batch x heads_q x seqlen_q
};

/// The operands of a problem, in device memory or in host memory.
struct Operands {
  void* q = nullptr;
  void* k = nullptr;
  void* v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  const std::int32_t* cu_seqlens_q = nullptr;  ///< of a ragged problem
  const std::int32_t* cu_seqlens_k = nullptr;
  const std::int32_t* seqused_k = nullptr;  ///< of a paged problem
  const std::int32_t* block_table = nullptr;
};

/// The call that computes the problem over contiguous operands, batch x seqlen x heads x head_dim.
attune_prefill_args contiguous_args(const Problem& problem, const Operands& operands);

}  // namespace attune::cli
