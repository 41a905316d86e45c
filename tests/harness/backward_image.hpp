// One call of the backward pass as host memory, in any layout and surrounded by poison, and what a correct one leaves
// there.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "runtime/lab/memory.hpp"
#include "runtime/lab/reference_gradient.hpp"
#include "runtime/operations/backward/problem.hpp"
#include "tests/harness/random_prefill.hpp"
#include "tests/harness/stored_arrays.hpp"

namespace attune::testing {

/// A problem, where its sequences are, and what decides about its memory.
struct BackwardCase {
  PrefillCase prefill;
  int head_dim_v = 0;      ///< 0: as head_dim
  bool has_dlse = false;   ///< LSE has a gradient
  bool any_order = false;  ///< as BackwardProblem has it
  std::string score = {};  ///< an expression; empty: none
  std::string mask = {};   ///< likewise
  float sharpness = 1;     ///< by which the usual scale of the scores is multiplied

  /// As a checked call has it (runtime/call/limits.hpp).
  [[nodiscard]] BackwardProblem problem() const;
  [[nodiscard]] CallExpressions expressions() const;
  [[nodiscard]] std::string text() const;
};

/// A case of any kind that the backward pass serves, with at most so many rows and keys a sequence.
BackwardCase random_backward_case(Random& random, int most_rows);

/// The same with a score, a mask or both, which gradients pass.
BackwardCase random_expressed_backward_case(Random& random, int most_rows);

/// Three sequences of a ragged batch, one without queries that count, far fewer rows than the tensors have.
BackwardCase far_apart_case(int head_dim, int head_dim_v, int heads_q, int heads_kv);

/// Every element that is not an input is NaN, gradients and workspace included; so are keys and rows of inputs that do
/// not count. O and LSE are the reference's.
class BackwardImage {
 public:
  BackwardImage(const BackwardCase& one, std::uint64_t seed);

  [[nodiscard]] const BackwardCase& origin() const { return case_; }
  [[nodiscard]] BackwardProblem problem() const { return case_.problem(); }

  /// What the call finds.
  [[nodiscard]] const Memory& memory() const { return memory_; }

  /// The call on a copy of that, wherever it is.
  [[nodiscard]] attune_backward_args args(void* memory) const;

  /// Bytes of the workspace that args() has, which any kernel's will do.
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Whether gradients agree with the reference and nothing else was written; "" or what is wrong, with figures.
  [[nodiscard]] std::string wrong(Memory after) const;

  /// CHECKs that nothing is.
  void check(const Memory& after) const;

  /// dQ, dK and dV as the call left them, contiguous.
  [[nodiscard]] std::array<std::vector<std::uint16_t>, 3> gradients(const Memory& after) const;

 private:
  enum Tensor : std::size_t { q, k, v, o, dout, dq, dk, dv, tensors };

  void place_tensors();
  PlacedTensor place(int seqlen, int heads, int head_dim, int gap);
  void poison_unused_rows();
  void put_forward();
  [[nodiscard]] Problem whole() const;
  [[nodiscard]] GradientInputs inputs() const;
  [[nodiscard]] double scale() const;

  BackwardCase case_;
  Places places_;
  std::array<PlacedTensor, tensors> at_;
  std::size_t lse_ = 0;  ///< places of arrays, in bytes
  std::size_t dlse_ = 0;
  PlacedSequences sequences_;
  std::size_t workspace_ = 0;
  std::size_t workspace_bytes_ = 0;
  std::vector<float> dlse_values_;
  StoredArrays arrays_;
  mutable std::vector<attune_named_array> named_arrays_;  ///< of the last args()
  Memory memory_;
  Gradients reference_;
  Gradients naive_;
};

}  // namespace attune::testing
