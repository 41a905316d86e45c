// A call of attention on random inputs whose answer the reference knows: its memory, its launches, and what they should
// leave. What an operation has of its own is in its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "attune/attune.h"
#include "generator/expression/pool.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/lab/arguments.hpp"
#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/lab/reference.hpp"

namespace attune {

/// Rows of Q, which are the elements of LSE, and elements of O.
std::size_t query_rows(const Problem& problem);
std::size_t output_elements(const Problem& problem);

/// What a call left.
struct Outputs {
  std::vector<std::uint16_t> o;  ///< batch x seqlen_q (ragged: total_q) x heads_q x head_dim of V
  std::vector<float> lse;        ///< batch x heads_q x seqlen_q (ragged: total_q)
  bool guards_intact = true;     ///< nothing was written around them and the workspace

  bool operator==(const Outputs& other) const;  ///< to the bit
};

/// The reference and the naive result of a trial.
struct Expected {
  ReferenceOutput reference;
  ReferenceOutput naive;
};

/// So many rows of so many columns.
struct ResultRows {
  std::size_t rows;
  int columns;
};

/// The launches of a trial with some kernels.
struct TrialPlan {
  std::size_t workspace_bytes = 0;
  bool one_kernel = true;  ///< else others run after the first

  /// Queues them on the default stream. `memory` is a Trial's, with a workspace of as many bytes or more.
  std::function<void(void* memory, Executor& executor)> run;
};

/// Its memory begins with the inputs and goes on with the results: O, LSE and a workspace, all of it poison at first.
/// Where head_dim is no multiple of 8 rows are longer than it: by zeros in Q, by poison in K and V.
class Trial {
 public:
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  virtual ~Trial() = default;

  [[nodiscard]] virtual ProblemView problem() const = 0;

  /// Plans launches of the kernel for the problem's operation, and of those that go with it. The kernels and the trial
  /// outlive the result. Throws Error.
  [[nodiscard]] virtual TrialPlan plan_with(FixedKernels kernels) const = 0;

  /// The same as a problem of prefill, which has as many outputs.
  [[nodiscard]] const Problem& attention() const { return attention_; }

  /// Where its sequences are; of keys that a call appends, as it leaves them.
  [[nodiscard]] const Sequences& sequences() const { return sequences_; }

  /// Draws the inputs, normally distributed. They are a multiple of 256 bytes.
  [[nodiscard]] Memory inputs() const;

  /// What stands after the inputs before a call.
  [[nodiscard]] Memory poisoned_results(std::size_t workspace_bytes) const;

  /// Reads that after a call.
  [[nodiscard]] virtual Outputs outputs(Memory results) const;

  [[nodiscard]] virtual Expected expected(const Memory& inputs) const;

  [[nodiscard]] virtual Comparison compare(const Outputs& outputs, const Expected& expected) const;

  /// What max_error of a comparison is of, for messages.
  [[nodiscard]] virtual const char* measured() const { return "O"; }

  /// What Outputs::o consists of, one after the other.
  [[nodiscard]] virtual std::vector<ResultRows> result_rows() const {
    return {{query_rows(attention_), attention_.head_dim_of_v()}};
  }

 protected:
  /// The call appends so many of the keys of each sequence, the last ones.
  Trial(const Problem& attention, Sequences sequences, std::uint64_t seed, int appended = 0);

  /// Bytes from the beginning of the memory.
  struct InputPlaces {
    std::size_t q;
    std::size_t k;
    std::size_t v;
    std::size_t cu_seqlens_q;
    std::size_t cu_seqlens_k;
    std::size_t lengths;
    std::size_t block_table;
  };

  [[nodiscard]] const InputPlaces& places() const { return in_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  /// A place for an operation's other memory; as long as it is being constructed.
  [[nodiscard]] std::size_t add_input(std::size_t bytes) { return inputs_.add(bytes); }

  /// The same for its results in place of O and LSE.
  [[nodiscard]] std::size_t add_result(std::size_t bytes) { return results_.add(bytes); }

  /// Of the memory that a plan is run in: a result, ...
  template <class T>
  [[nodiscard]] T* result_at(void* memory, std::size_t place) const {
    return at<T>(at<void>(memory, inputs_.end()), place);
  }
  /// ... and the workspace.
  [[nodiscard]] void* workspace_at(void* memory) const { return result_at<void>(memory, results_.end()); }

  /// Whether results, from which all that a call writes has been taken, and the guards of its workspace are poison.
  [[nodiscard]] bool is_untouched(Memory results) const;

  /// Adds to inputs that were drawn, or takes away.
  virtual void complete(Memory& /*inputs*/) const {}

  /// Makes of queries what keys are to meet.
  virtual void rotate(std::vector<std::uint16_t>& /*queries*/, const Memory& /*inputs*/) const {}

  /// Points arguments to contiguous tensors, to the workspace, and to those arrays that the trial has and operations
  /// share: how many keys sequences have is not among them.
  template <class Args>
  void place(Args& args, void* memory, std::size_t workspace_bytes) const;

  /// Says its expressions, if there are any, and where their parameters are.
  template <class Args>
  void place_expressions(Args& args, void* memory) const;

  /// What its expressions look up.
  [[nodiscard]] const ExpressionValues& values() const { return values_; }

  /// How many keys the call is told that each sequence has, without those that it appends; null where it is not.
  [[nodiscard]] const std::int32_t* told_lengths(void* memory) const {
    return array_at(memory, in_.lengths, sequences_.seqused_k);
  }

 private:
  void add_parameters();
  void each_parameter(const std::function<void(const expression::Parameter&, const expression::Array&)>& visit) const;

  Problem attention_;
  Sequences sequences_;
  std::uint64_t seed_;
  int appended_;
  Places inputs_;
  ExpressionValues values_;                         ///< of the expressions' parameters
  mutable std::vector<attune_named_array> arrays_;  ///< the same as a call has them, their places apart
  std::vector<std::size_t> array_places_;
  std::size_t sink_ = 0;
  InputPlaces in_;
  Places results_;  ///< but the workspace
  std::size_t o_;   ///< in the results
  std::size_t lse_;
};

using Trials = std::vector<std::unique_ptr<const Trial>>;

/// On which kernels are timed: each sequence of decode has as many keys as it may have; packed ones as many as there
/// are, their lengths falling off. Gradients are those of a forward pass that is made up, as its results would take the
/// reference minutes: nothing to compare with expected().
std::unique_ptr<const Trial> make_trial(const Problem& problem, std::uint64_t seed);
std::unique_ptr<const Trial> make_trial(const DecodeProblem& problem, std::uint64_t seed);
std::unique_ptr<const Trial> make_trial(const BackwardProblem& problem, std::uint64_t seed);

/// A few small ones that visit a variant's corners. Of prefill: exact and smaller head_dim, one row, odd and prime
/// lengths, longer K than Q and the reverse, no keys where the family takes that, and groups of query heads as the
/// variant allows. Of decode: no keys, one, odd lengths and full ones; few and many rows, exact and smaller head_dim,
/// windows, and keys in one part, in several, and left to the library; where the variant rotates queries the last key
/// of each sequence is new; where it is for ragged batches, sequences have fewer queries one after the other, and,
/// where it reads no pages, keys in a cache as well as packed ones. Of the backward pass: as of prefill, but that no
/// query sees one key alone.
Trials small_trials(const Variant& variant, std::uint64_t seed);
Trials small_prefill_trials(const Variant& variant, std::uint64_t seed);
Trials small_decode_trials(const Variant& variant, std::uint64_t seed);
Trials small_backward_trials(const Variant& variant, std::uint64_t seed);

/// Of one of the kernels of the backward pass, of a problem of prefill without pages.
std::unique_ptr<const Trial> make_backward_trial(const Problem& problem, const Variant& variant, std::uint64_t seed);

/// Whether a variant is of the backward pass.
bool is_backward(const Variant& variant);

/// The other variants that calls of a variant launch.
std::vector<Variant> companions_of(const Variant& variant, const Device& device);
std::vector<Variant> backward_companions(const Variant& variant, const Device& device);

/// Columns that small problems of kernels with cut_rows have fewer than a multiple of 8.
inline constexpr int cut_columns = 5;

/// Gives a problem the rotation that a variant is made for, and a new key in each sequence with it.
void set_rotation(DecodeProblem& problem, const Variant& variant);

/// A contiguous batch x seqlen x heads x head_dim tensor.
HostTensor contiguous(const std::uint16_t* values, int seqlen, int heads, int head_dim);

template <class Args>
void Trial::place(Args& args, void* memory, std::size_t workspace_bytes) const {
  auto* const results = at<void>(memory, inputs_.end());
  const auto tensor = [](void* data, int seqlen, int heads, int head_dim) {
    const HostTensor strides = contiguous(nullptr, seqlen, heads, padded_head_dim(head_dim));
    return attune_tensor{data, strides.stride_batch, strides.stride_seq, strides.stride_head};
  };
  const Problem& problem = attention_;
  args.q = tensor(at<void>(memory, in_.q), problem.stored_rows(), problem.heads_q, problem.head_dim);
  args.k = tensor(at<void>(memory, in_.k), problem.stored_keys(), problem.heads_kv, problem.head_dim);
  args.v = tensor(at<void>(memory, in_.v), problem.stored_keys(), problem.heads_kv, problem.head_dim_of_v());
  args.o = tensor(at<void>(results, o_), problem.stored_rows(), problem.heads_q, problem.head_dim_of_v());
  args.lse = at<float>(results, lse_);
  args.cu_seqlens_q = array_at(memory, in_.cu_seqlens_q, sequences_.cu_seqlens_q);
  args.cu_seqlens_k = array_at(memory, in_.cu_seqlens_k, sequences_.cu_seqlens_k);
  args.block_table = array_at(memory, in_.block_table, sequences_.block_table);
  place_expressions(args, memory);
  args.workspace = workspace_bytes > 0 ? at<void>(results, results_.end()) : nullptr;
  args.workspace_bytes = workspace_bytes;
}

template <class Args>
void Trial::place_expressions(Args& args, void* memory) const {
  const auto text_of = [](int number) { return number == 0 ? nullptr : expression::text_of_number(number).data(); };
  args.score = text_of(attention_.expressions.score);
  args.mask = text_of(attention_.expressions.mask);
  for (std::size_t i = 0; i < arrays_.size(); ++i) arrays_[i].data = at<void>(memory, array_places_[i]);
  args.params = arrays_.data();
  args.param_count = static_cast<std::int32_t>(arrays_.size());
  if constexpr (requires { args.sink; }) args.sink = array_at(memory, sink_, values_.sink);
}

}  // namespace attune
