// Gradients of attention in float64 on the CPU, one row at a time as the definition reads: what kernels of the backward
// pass are held to.
#pragma once

#include <span>
#include <vector>

#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/reference.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// The inputs of attention, and the gradients of its results.
struct GradientInputs {
  HostTensor q;
  HostTensor k;
  HostTensor v;
  HostTensor dout;              ///< of O, in the problem's storage type
  std::span<const float> dlse;  ///< of LSE, laid out as ReferenceOutput::lse; empty: zeros
  double scale = 1;
  DropoutMask dropout = {};
  const ExpressionValues* values = nullptr;  ///< what the problem's expressions look up, whose score has the slope one
  int first_sequence = 0;                    ///< as expressions count it
};

/// Contiguous: dQ as batch x seqlen_q x heads_q x head_dim, dK as batch x seqlen_k x heads_kv x head_dim, dV likewise
/// with the head_dim of V.
struct Gradients {
  std::vector<double> dq;
  std::vector<double> dk;
  std::vector<double> dv;
};

/// In float64, on `threads` threads (0: all cores). Of a row with no visible key nothing is known, whatever its
/// gradients are: it adds nothing.
Gradients reference_gradients(const Problem& problem, const GradientInputs& inputs, int threads = 0);

/// The same formulas done naively in the storage type: S, P, dP, dS and the gradients rounded to it at every step, sums
/// in fp32. Its distance from float64 is the unit in which tolerances are counted.
Gradients naive_gradients(const Problem& problem, const GradientInputs& inputs, int threads = 0);

/// In float64, of each gradient the sum of the magnitudes of its terms. Where terms cancel, fp32 leaves an error that
/// they, not the gradient, measure: a query that sees one key has dP = D and so no gradient, but dP and D are sums over
/// head_dim_v in two orders.
Gradients gradient_terms(const Problem& problem, const GradientInputs& inputs, int threads = 0);

/// One of the above.
using GradientFunction = Gradients(const Problem&, const GradientInputs&, int);

/// The same of a ragged batch: dQ as total_q x heads_q x head_dim, dK and dV likewise with total_k, `dlse` as heads_q x
/// total_q. NaN in rows that no sequence has or uses.
Gradients ragged_gradients(GradientFunction& gradients, const Problem& problem, const Sequences& sequences,
                           const GradientInputs& inputs);

/// The one of these that the problem is for; keys are not in pages.
Gradients gradients_of(GradientFunction& gradients, const Problem& problem, const Sequences& sequences,
                       const GradientInputs& inputs);

/// How one gradient compares with the reference.
struct GradientComparison {
  double max_error = 0;     ///< max |out - reference|
  double naive_error = 0;   ///< max |naive - reference|
  double tolerance = 0;     ///< 3 * naive_error, and never below one ulp of the largest |reference| or 2^-20 of `terms`
  long long unwritten = 0;  ///< NaN where the reference is finite
  bool agrees = false;
};

/// Compares a contiguous gradient of the storage type with the reference; where that is NaN anything will do. `terms`,
/// the magnitudes of its terms, may be empty: then terms do not cancel, or the naive formula is off where they do.
GradientComparison compare_gradient(Dtype dtype, std::span<const std::uint16_t> found,
                                    std::span<const double> reference, std::span<const double> naive,
                                    std::span<const double> terms = {});

}  // namespace attune
