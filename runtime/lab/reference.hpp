// Attention in float64 on the CPU, one row at a time as the definition reads: what kernels are held to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/storage.hpp"
#include "runtime/lab/dropout_mask.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// One operand in host memory: batch x seqlen x heads x its head_dim, storage type of the problem, strides in
/// elements, last dimension contiguous.
struct HostTensor {
  const std::uint16_t* data = nullptr;
  long long stride_batch = 0;
  long long stride_seq = 0;
  long long stride_head = 0;

  /// The same without the rows before this one.
  [[nodiscard]] HostTensor from_row(int row) const {
    return {data + row * stride_seq, stride_batch, stride_seq, stride_head};
  }
};

/// O as batch x seqlen_q x heads_q x head_dim of V (contiguous) and LSE as batch x heads_q x seqlen_q, natural log.
struct ReferenceOutput {
  std::vector<double> o;
  std::vector<double> lse;
};

/// softmax(softcap(scale * Q K^T) + mask) V in float64 on `threads` threads (0: all cores). Causal and windows are
/// aligned bottom right. A row with no visible key gives O = 0 and LSE = -infinity. LSE is that of all weights, those
/// that are dropped included.
ReferenceOutput reference_attention(const Problem& problem, const HostTensor& q, const HostTensor& k,
                                    const HostTensor& v, double scale, int threads = 0, const DropoutMask& mask = {});

/// The same formula done naively in the storage type: S, P and O rounded to it at every step, sums in
/// fp32. Its distance from float64 is the unit in which tolerances are counted.
ReferenceOutput naive_attention(const Problem& problem, const HostTensor& q, const HostTensor& k, const HostTensor& v,
                                double scale, int threads = 0, const DropoutMask& mask = {});

/// Where the sequences of a ragged batch are, or keys in pages, as a kernel is told.
struct Sequences {
  std::vector<std::int32_t> cu_seqlens_q;
  std::vector<std::int32_t> cu_seqlens_k;
  std::vector<std::int32_t> seqused_k;         ///< may be empty, but not with pages
  std::vector<std::int32_t> block_table = {};  ///< of a paged problem: batch x table_width
  std::vector<std::int32_t> seqused_q = {};    ///< of a ragged problem; may be empty

  /// The rows of Q and O that a sequence of a ragged batch has: from first up to second.
  [[nodiscard]] std::pair<int, int> queries_of(std::size_t sequence) const;
};

/// Either of the above.
using AttentionFunction = ReferenceOutput(const Problem&, const HostTensor&, const HostTensor&, const HostTensor&,
                                          double, int, const DropoutMask&);

/// The same of a ragged batch: O as total_q x heads_q x head_dim of V and LSE as heads_q x total_q, NaN in rows that no
/// sequence has or uses.
ReferenceOutput ragged_attention(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                                 const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale);

/// The same of keys and values in pages: O and LSE as queries have them, one after the other or batch x seqlen_q.
ReferenceOutput paged_attention(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                                const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale);

/// The one of these that the problem is for; with the usual dropout where it has some.
ReferenceOutput attention_of(AttentionFunction& attention, const Problem& problem, const Sequences& sequences,
                             const HostTensor& q, const HostTensor& k, const HostTensor& v, double scale);

/// How an output compares with the reference.
struct Comparison {
  double max_error = 0;    ///< max |out - reference| over O
  double naive_error = 0;  ///< max |naive - reference| over O
  double lse_error = 0;    ///< max |lse - reference| over finite rows
  double tolerance = 0;    ///< 2 * naive_error, and never below one ulp of the largest |reference|
  double lse_tolerance = 0;
  long long unwritten = 0;  ///< NaN where the reference is finite
  bool agrees = false;
};

/// Compares storage-type O (contiguous, batch x seqlen_q x heads_q x head_dim of V) and fp32 LSE (may be null)
/// with the reference.
Comparison compare(const Problem& problem, const std::uint16_t* o, const float* lse, const ReferenceOutput& reference,
                   const ReferenceOutput& naive);

}  // namespace attune
