// One attention call as host memory, in any layout and surrounded by poison, and what a correct one leaves there.
#pragma once

#include <cstdint>

#include "attune/attune.h"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "tests/harness/placed_tensor.hpp"

namespace attune::testing {

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
  PlacedTensor place(Layout layout, int batch, int seqlen, int heads, int head_dim, int gap = 8);
  [[nodiscard]] Expected expected(double scale) const;
  template <class O, class Lse>
  void fill_poisoned_rows(O& o, Lse& lse, typename O::value_type nan) const;

  void poison_unused_keys();

  Problem problem_;
  Sequences sequences_;
  int poisoned_ = -1;  ///< a sequence, or none
  Places places_;
  PlacedTensor q_;
  PlacedTensor k_;
  PlacedTensor v_;
  PlacedTensor o_;
  std::size_t lse_ = 0;  ///< its place, in bytes
  PlacedSequences arrays_;
  Memory memory_;
};

}  // namespace attune::testing
