// Gradients of attention in float64 on the CPU, one row at a time as the definition reads: what kernels of the backward
// pass are held to.
#pragma once

#include <span>
#include <vector>

#include "runtime/lab/reference.hpp"
#include "runtime/operations/prefill/problem.hpp"

namespace attune {

/// What attention was given, and the gradients of what it gave.
struct GradientInputs {
  HostTensor q;
  HostTensor k;
  HostTensor v;
  HostTensor dout;              ///< of O, in the problem's storage type
  std::span<const float> dlse;  ///< of LSE, laid out as ReferenceOutput::lse; empty: zeros
  double scale = 1;
  DropoutMask dropout = {};
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

/// Either of the above.
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
  double tolerance = 0;     ///< 3 * naive_error, and never below one ulp of the largest |reference|
  long long unwritten = 0;  ///< NaN where the reference is finite
  bool agrees = false;
};

/// Compares a contiguous gradient of the storage type with the reference; where that is NaN anything will do.
GradientComparison compare_gradient(Dtype dtype, std::span<const std::uint16_t> found,
                                    std::span<const double> reference, std::span<const double> naive);

}  // namespace attune
