// One attention call as host memory, in any layout and surrounded by poison, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <string>

#include "attune/attune.h"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune::testing {

/// How a tensor batch x seqlen x heads x head_dim lies in memory.
enum class Layout {
  bshd,    ///< batch, seqlen, heads, head_dim
  bhsd,    ///< batch, heads, seqlen, head_dim
  packed,  ///< Q, K and V side by side in one buffer, the heads of each position one after the other
  gaps,    ///< BSHD with unused memory after every row, every position and every sequence, more in V than in K
};

std::string name_of(Layout layout);

/// Sets a tensor's strides, in elements. `gap`: elements that are unused after a row, where there are any.
template <class Placement>
void set_strides(Placement& at, Layout layout, int seqlen, int heads, std::int64_t head_dim, int gap) {
  const bool gaps = layout == Layout::gaps;
  at.stride_head = gaps ? head_dim + gap : head_dim;
  at.stride_seq = at.stride_head * heads + (gaps ? 24 : 0);
  at.stride_batch = at.stride_seq * seqlen + (gaps ? 64 : 0);
  if (layout != Layout::bhsd) return;
  at.stride_seq = head_dim;
  at.stride_head = head_dim * seqlen;
}

/// Every element that is not Q, K, V or of an array is NaN, O and LSE included; but zero beyond the columns of Q where
/// head_dim is no multiple of 8.
class CallImage {
 public:
  /// Packed needs seqlen_q == seqlen_k. Of a ragged or paged problem `sequences` says where they are; keys that do not
  /// count and rows that no sequence has are NaN.
  CallImage(const Problem& problem, Layout layout, std::uint64_t seed, Sequences sequences = {});

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Sequences& sequences() const { return sequences_; }

  /// Makes all of a ragged batch's sequence NaN, which shares no page; its own results are then not compared.
  void poison_sequence(int sequence);

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is.
  [[nodiscard]] attune_prefill_args args(void* memory) const;

  /// Reads the memory after the call.
  [[nodiscard]] Outputs outputs(Memory after) const;

  /// Against the float64 reference, with the tolerance that the naive formula sets.
  [[nodiscard]] Comparison compare_with_reference(const Outputs& outputs, double scale) const;

  /// CHECKs that the outputs agree and that nothing else was written.
  void check(Outputs outputs, double scale) const;

 private:
  /// Strides in elements and the place of the first one.
  struct Placement {
    int head_dim = 0;
    std::size_t first = 0;
    std::int64_t stride_batch = 0;
    std::int64_t stride_seq = 0;
    std::int64_t stride_head = 0;
  };

  Placement place(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap = 8);
  template <class Function>
  static void for_each_element(const Placement& at, int batch, int seqlen, int heads, const Function& visit);
  template <class Function>
  static void for_each_padding(const Placement& at, int batch, int seqlen, int heads, const Function& visit);
  [[nodiscard]] HostTensor host_tensor(const Placement& at) const;
  [[nodiscard]] Expected expected(double scale) const;
  template <class O, class Lse>
  void fill_poisoned_rows(O& o, Lse& lse, typename O::value_type nan) const;

  void poison_rows(const Placement& at, int heads, int first, int end, int batch = 0);
  void poison_unused_keys();

  Problem problem_;
  Sequences sequences_;
  int poisoned_ = -1;  ///< a sequence, or none
  Places places_;
  Placement q_;
  Placement k_;
  Placement v_;
  Placement o_;
  std::size_t lse_ = 0;  ///< places of arrays, in bytes
  std::size_t cu_seqlens_q_ = 0;
  std::size_t cu_seqlens_k_ = 0;
  std::size_t seqused_q_ = 0;
  std::size_t seqused_k_ = 0;
  std::size_t block_table_ = 0;
  Memory memory_;
};

}  // namespace attune::testing
