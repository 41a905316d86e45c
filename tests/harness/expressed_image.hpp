// Calls with expressions as scores and masks, as host memory, for prefill and decode, and what a correct one leaves
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attune/attune.h"
#include "runtime/base/random.hpp"
#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/operations/decode/problem.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "tests/harness/placed_tensor.hpp"
#include "tests/harness/stored_arrays.hpp"

namespace attune::testing {

/// What is said of scores; empty: nothing.
struct ExpressedTexts {
  std::string score;
  std::string mask;
  bool sink = false;         ///< heads have one
  bool sink_like_q = false;  ///< of the dtype of q, not fp32

  [[nodiscard]] CallExpressions numbers() const;
};

/// How keys are stored.
enum class KeyStorage { dense, ragged, paged };

/// A problem, where its sequences are, and what is said of its scores; the problem's own expressions are those.
struct ExpressedCase {
  Problem problem;
  Sequences sequences;
  ExpressedTexts texts;
};

/// Heads, lengths, masks and soft caps of any kind, without expressions, at head_dim 64.
ExpressedCase random_expressed_case(Random& random, KeyStorage storage, int most_queries, int most_keys);

/// A score, a mask or both.
ExpressedTexts random_texts(Random& random);

/// Every element that is not Q, K, V or an array is NaN, O and LSE included.
class ExpressedImage {
 public:
  ExpressedImage(const ExpressedCase& one, std::uint64_t seed);

  /// With what the texts say of limits and caps in the fields for them, as a checked call has it. The call itself and
  /// the reference have the texts as they are.
  [[nodiscard]] Problem problem() const;

  /// The same queries and keys as a problem of decode, whose cache is in pages. `splits`: 0 lets the plan choose.
  [[nodiscard]] DecodeProblem decode_problem(int splits) const;

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is, without a workspace. args.params points into the
  /// image, and is valid until the next call of either function.
  [[nodiscard]] attune_prefill_args prefill_args(void* memory) const;
  [[nodiscard]] attune_decode_args decode_args(void* memory, int splits) const;

  /// Gives an array of integers these values.
  void set_array(std::string_view name, const std::function<int(int)>& value);

  /// Makes K and V of these keys of every sequence NaN in what the kernel reads, where a page is a sequence or none is.
  void poison_keys(int first, int end);

  /// Whether O and LSE agree with the reference and nothing else was written; "" or what is wrong, with figures.
  [[nodiscard]] std::string wrong(Memory after) const;

 private:
  template <class Args>
  void place(Args& args, void* memory) const;
  [[nodiscard]] const ExpressedOutput& expected() const;

  Problem problem_;
  Sequences sequences_;
  ExpressedTexts texts_;
  StoredArrays stored_;
  mutable std::vector<attune_named_array> arrays_;
  Places places_;
  PlacedTensor q_;
  PlacedTensor k_;
  PlacedTensor v_;
  PlacedTensor o_;
  std::size_t lse_ = 0;  ///< places, in bytes
  std::size_t sink_ = 0;
  std::vector<std::uint16_t> short_sink_;  ///< the logits as those of q are stored
  PlacedSequences placed_;
  Memory memory_;
  Memory whole_;  ///< without poisoned keys
  mutable std::optional<ExpressedOutput> expected_;
};

}  // namespace attune::testing
