// One attention call as host memory, in any layout and surrounded by poison, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/lab/reference.hpp"
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

/// Every element that is not Q, K or V is NaN, O and LSE included.
class CallImage {
 public:
  /// Packed needs seqlen_q == seqlen_k. Of a ragged or paged problem `sequences` says where they are; keys that do not
  /// count and rows that no sequence has are NaN.
  CallImage(const Problem& problem, Layout layout, std::uint64_t seed, Sequences sequences = {});

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Sequences& sequences() const { return sequences_; }

  /// Makes all of a ragged batch's sequence NaN, which shares no page; its own results are then not compared.
  void poison_sequence(int sequence);

  [[nodiscard]] const std::vector<std::uint16_t>& in() const { return in_; }  ///< the memory that holds Q, K and V
  [[nodiscard]] std::vector<std::uint16_t> poisoned_out() const;
  [[nodiscard]] std::vector<float> poisoned_lse() const;

  /// Where the arrays of sequences() are, for a ragged problem.
  struct Arrays {
    const std::int32_t* cu_seqlens_q = nullptr;
    const std::int32_t* cu_seqlens_k = nullptr;
    const std::int32_t* seqused_k = nullptr;
    const std::int32_t* block_table = nullptr;
    const std::int32_t* seqused_q = nullptr;
  };
  [[nodiscard]] Arrays own_arrays() const;

  /// The call on memories of these sizes, wherever they are.
  [[nodiscard]] attune_prefill_args args(void* in, void* out, void* lse, const Arrays& arrays) const;
  [[nodiscard]] attune_prefill_args args(void* in, void* out, void* lse) const {
    return args(in, out, lse, own_arrays());
  }

  struct Output {
    std::vector<std::uint16_t> o;  ///< contiguous, batch x seqlen_q (ragged: total_q) x heads_q x head_dim of V
    std::vector<float> lse;
    bool surroundings_intact = true;  ///< nothing but O and LSE was written
    bool operator==(const Output&) const;
  };
  /// Reads the memories after the call.
  [[nodiscard]] Output output(std::vector<std::uint16_t> out, std::vector<float> lse,
                              const std::vector<std::uint16_t>& in_after) const;

  /// Against the float64 reference, with the tolerance that the naive formula sets.
  [[nodiscard]] Comparison compare_with_reference(const Output& output, double scale) const;

  /// CHECKs that the output agrees and that nothing else was written.
  void check(const Output& output, double scale) const;

 private:
  /// Strides in elements and the place of the first one in its memory.
  struct Placement {
    int head_dim = 0;
    std::size_t first = 0;
    std::int64_t stride_batch = 0;
    std::int64_t stride_seq = 0;
    std::int64_t stride_head = 0;
  };

  static Placement place(Layout layout, int batch, int seqlen, int heads, int head_dim, std::size_t& cursor,
                         int gap = 8);
  template <class Function>
  static void for_each_element(const Placement& at, int batch, int seqlen, int heads, const Function& visit);
  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] HostTensor host_tensor(const Placement& at) const;

  void poison_rows(const Placement& at, int heads, int first, int end, int batch = 0);
  void poison_unused_keys();
  [[nodiscard]] bool unowned_rows_intact(const Output& output) const;

  Problem problem_;
  Sequences sequences_;
  int poisoned_ = -1;  ///< a sequence, or none
  Placement q_;
  Placement k_;
  Placement v_;
  Placement o_;
  std::size_t out_elements_ = 0;
  std::vector<std::uint16_t> in_;
};

}  // namespace attune::testing
