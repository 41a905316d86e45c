// What a caller has who wants the gradients of attention: shapes and element type, no pointers; and what each of the
// launches needs that follow.
#pragma once

#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/call_expressions.hpp"
#include "runtime/call/problem_view.hpp"
#include "runtime/call/window.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

struct BackwardProblem;

/// One of the launches of a backward pass besides that for dK and dV.
template <Operation operation_>
struct BackwardPart;

/// The gradients of a prefill problem without pages.
struct BackwardProblem {
  static constexpr Operation operation = Operation::backward;
  static constexpr const char* word = "backward";  ///< as Problem has it

  Dtype dtype = Dtype::bf16;
  int batch = 1;
  int heads_q = 1;
  int heads_kv = 1;
  int seqlen_q = 1;
  int seqlen_k = 1;
  int head_dim = 128;
  int head_dim_v = 0;  ///< of V and O; 0: as head_dim
  bool causal = false;
  int window_left = -1;           ///< as Problem has them
  int window_right = -1;          ///< likewise
  float softcap = 0;              ///< likewise
  bool ragged = false;            ///< likewise
  int total_q = 0;                ///< rows of a ragged Q and O
  int total_k = 0;                ///< and of K and V
  bool mappable_strides = true;   ///< as Problem has them
  bool dropout = false;           ///< of weights
  CallExpressions expressions{};  ///< as Problem has them
  bool any_order = false;  ///< sums may have any order, so that results differ in their last bits from call to call

  static const ProblemFacts facts;

  auto operator<=>(const BackwardProblem&) const = default;

  /// As Problem::usual() and Problem::complete().
  [[nodiscard]] static BackwardProblem usual();
  void complete();

  /// The problem of prefill whose gradients these are, and the gradients of one without pages.
  [[nodiscard]] Problem attention() const;
  [[nodiscard]] static BackwardProblem of(const Problem& attention, bool any_order);

  /// Of V and O.
  [[nodiscard]] int head_dim_of_v() const { return head_dim_v == 0 ? head_dim : head_dim_v; }

  /// Extents as they lie in memory: a ragged batch is one sequence there.
  [[nodiscard]] int stored_sequences() const { return ragged ? 1 : batch; }
  [[nodiscard]] int stored_rows() const { return ragged ? total_q : seqlen_q; }
  [[nodiscard]] int stored_keys() const { return ragged ? total_k : seqlen_k; }

  /// No sequence has more.
  [[nodiscard]] int longest_queries() const { return ragged && total_q < seqlen_q ? total_q : seqlen_q; }
  [[nodiscard]] int longest_keys() const { return ragged && total_k < seqlen_k ? total_k : seqlen_k; }

  /// Rows of the workspace that a sequence has in each head, and all sequences.
  [[nodiscard]] long long padded_seqlen_q() const;
  [[nodiscard]] long long padded_rows() const;

  /// Why tensor maps cannot describe its tensors.
  [[nodiscard]] Unmappable unmappable() const;

  /// As Problem::ask(); of the kernel that gives dK and dV, or of that of another launch.
  [[nodiscard]] Ask ask() const { return ask_of(operation); }
  [[nodiscard]] Ask ask_of(Operation part) const;

  /// The problems of the kernel before it, and of the two that may give dQ: one of its own, or a conversion of sums.
  [[nodiscard]] BackwardPart<Operation::backward_rows> rows() const;
  [[nodiscard]] BackwardPart<Operation::backward_queries> queries() const;
  [[nodiscard]] BackwardPart<Operation::backward_convert> conversion() const;

  /// "backward bf16 d128 b2 hq32 hk8 lq1024 lk1024 causal any_order"
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string text_of(Operation part) const;
};

/// What no launch of a variant can hold of one of the launches, as ProblemFacts has it.
std::vector<std::string> part_refusals(Operation part, const BackwardProblem& whole, const Variant& variant);

template <Operation operation_>
struct BackwardPart {
  static constexpr Operation operation = operation_;

  BackwardProblem whole;

  static const ProblemFacts facts;

  /// As Problem::ask(): the part of the whole that its kernels depend on.
  [[nodiscard]] Ask ask() const { return whole.ask_of(operation); }

  /// "backward_rows of backward bf16 ..."
  [[nodiscard]] std::string text() const { return whole.text_of(operation); }

 private:
  static std::vector<std::string> refusals(const void* part, const Variant& variant) {
    return part_refusals(operation, static_cast<const BackwardPart*>(part)->whole, variant);
  }
};

template <Operation operation_>
const ProblemFacts BackwardPart<operation_>::facts = usual_facts<BackwardPart<operation_>>(refusals);

/// What stops this problem from being served by any kernel, each naming the field and the value.
std::vector<std::string> problems_of(const BackwardProblem& problem);

/// Whether there is no gradient to write, so that nothing has to be launched.
bool is_empty(const BackwardProblem& problem);

}  // namespace attune
