// One decode call as host memory, its cache in pages and surrounded by poison, and what a correct one leaves there.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/lab/reference_rotation.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "tests/harness/placed_tensor.hpp"

namespace attune::testing {

/// A problem and what decides about its memory.
struct DecodeCase {
  DecodeProblem problem;
  std::vector<std::int32_t> lengths;  ///< one for each sequence, as the device sees them
  bool heads_outermost = false;       ///< in a page
  bool has_table = true;
  std::vector<std::int32_t> cu_seqlens_q = {};  ///< of a ragged batch
  bool has_lengths =
      true;  ///< else every sequence has max_seqlen_k keys, and `lengths` says so too; of packed ones all
  std::vector<std::int32_t> cu_seqlens_k = {};  ///< of packed keys
  std::vector<std::int32_t> leftpad = {};       ///< one for each sequence, as the device sees them, or none
  std::vector<std::int32_t> seqused_q = {};     ///< likewise, of a ragged batch

  /// The keys of a sequence, those that the call appends among them.
  [[nodiscard]] int length(int sequence) const;

  /// Those that are there before.
  [[nodiscard]] int keys_before(int sequence) const;

  /// The first of a sequence's keys; those in front of it do not exist, though length() and keys_before() count them.
  [[nodiscard]] int first_key(int sequence) const;

  /// Which rows of Q and O a sequence has: from first up to second.
  [[nodiscard]] std::pair<int, int> queries_of(int sequence) const;

  [[nodiscard]] std::string text() const;
};

/// A case of any kind that decode serves, with at most so many keys a sequence.
DecodeCase random_decode_case(Random& random, int most_keys);

/// Of kinds that the library compiles few kernels for: with new keys, rotated or not, and softcaps.
DecodeCase random_append_case(Random& random, int most_keys);

/// Of ragged batches, in which rows may belong to no sequence and sequences may have none.
DecodeCase random_ragged_case(Random& random, int most_keys);

/// The same with packed keys, of which some belong to no sequence, and some are not used.
DecodeCase random_packed_case(Random& random, int most_keys);

/// The same with sequences that are padded at the left, by any part of their keys, all of them, or wildly.
void pad_at_the_left(Random& random, DecodeCase& one);

/// Any of the above, padded at the left.
DecodeCase random_leftpad_case(Random& random, int most_keys);

/// The call for one of its sequences.
attune_decode_args only_sequence(attune_decode_args args, int sequence);

/// Every element that is not Q, of an array or a key or value of a sequence is NaN: what lies beyond a sequence's end
/// (where new keys belong) or in front of its first key, columns beyond head_dim where that is no multiple of 8 (zeros
/// in Q, numbers in new rows), pages that no sequence has, O and LSE. Table entries for such keys alone name no page or
/// any.
class DecodeImage {
 public:
  DecodeImage(DecodeCase one, std::uint64_t seed);

  [[nodiscard]] const DecodeProblem& problem() const { return case_.problem; }
  [[nodiscard]] const std::vector<std::int32_t>& table() const { return table_; }

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The part of it that says how long sequences are: after the lengths stand cu_seqlens_q, cu_seqlens_k, leftpad and
  /// seqused_q.
  [[nodiscard]] const std::vector<std::int32_t>& lengths() const { return lengths_; }
  [[nodiscard]] std::size_t lengths_place() const { return lengths_place_; }

  /// The call on a copy of the memory, wherever it is; without a workspace.
  [[nodiscard]] attune_decode_args args(void* memory) const;

  /// Reads the memory after the call: nothing but O and LSE was written if the cache has the new keys and values, to
  /// the bit.
  [[nodiscard]] Outputs outputs(Memory after) const;

  /// CHECKs that, and that the outputs agree with the float64 reference.
  void check(const Memory& after) const;

 private:
  void place_pages(Random& random);
  [[nodiscard]] std::size_t key_offset(const PlacedTensor& cache, int sequence, int key, int head) const;
  [[nodiscard]] bool has_place(int sequence, std::int64_t key) const;
  [[nodiscard]] std::size_t rows() const;
  [[nodiscard]] HostRotation rotation() const;
  [[nodiscard]] std::vector<std::uint16_t> row_at(const Memory& memory, std::size_t offset) const;
  [[nodiscard]] Memory with_new_keys() const;
  [[nodiscard]] std::vector<std::uint16_t> rotated_queries() const;
  [[nodiscard]] ReferenceOutput expected(AttentionFunction& attention) const;

  DecodeCase case_;
  PlacedTensor q_;
  PlacedTensor k_;
  PlacedTensor v_;
  PlacedTensor new_k_;
  PlacedTensor new_v_;
  PlacedTensor o_;
  std::size_t cos_ = 0;  ///< the first element
  std::size_t sin_ = 0;
  std::size_t lse_place_ = 0;  ///< in bytes, as are those of arrays
  std::size_t lengths_place_ = 0;
  std::size_t table_place_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int32_t> table_;  ///< batch x table_width; what a call without a table means, too
  Memory memory_;
};

}  // namespace attune::testing
