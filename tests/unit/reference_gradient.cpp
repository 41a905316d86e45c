// The float64 reference of the backward pass against finite differences of the forward reference.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/lab/reference_gradient.hpp"

using namespace attune;

namespace {

/// A tensor batch x seqlen x heads x head_dim of multiples of 2^-9, which fp16 holds with room for small steps.
struct Operand {
  std::vector<std::uint16_t> bits;
  HostTensor tensor;

  Operand(Random& random, int batch, int seqlen, int heads, int dim)
      : bits(static_cast<std::size_t>(batch) * seqlen * heads * dim) {
    for (std::uint16_t& one : bits) one = to_storage(Dtype::fp16, (static_cast<float>(random.below(1025)) - 512) / 512);
    tensor = {bits.data(), static_cast<long long>(seqlen) * heads * dim, static_cast<long long>(heads) * dim, dim};
  }

  [[nodiscard]] double at(std::size_t i) const { return from_storage(Dtype::fp16, bits[i]); }
};

struct Inputs {
  Operand q;
  Operand k;
  Operand v;
  Operand dout;
  std::vector<float> dlse;

  Inputs(const Problem& problem, Random& random)
      : q(random, problem.batch, problem.seqlen_q, problem.heads_q, problem.head_dim),
        k(random, problem.batch, problem.seqlen_k, problem.heads_kv, problem.head_dim),
        v(random, problem.batch, problem.seqlen_k, problem.heads_kv, problem.head_dim_of_v()),
        dout(random, problem.batch, problem.seqlen_q, problem.heads_q, problem.head_dim_of_v()) {
    for (int i = 0; i < problem.batch * problem.heads_q * problem.seqlen_q; ++i) {
      dlse.push_back(static_cast<float>(random.uniform()) - 0.5F);
    }
  }

  [[nodiscard]] GradientInputs gradients(double scale) const {
    return {q.tensor, k.tensor, v.tensor, dout.tensor, dlse, scale};
  }
};

constexpr double scale = 0.7;

/// The sum of dO O and of dLSE LSE, whose gradients are those that the backward pass gives.
double loss(const Problem& problem, const Inputs& inputs) {
  const ReferenceOutput out = reference_attention(problem, inputs.q.tensor, inputs.k.tensor, inputs.v.tensor, scale, 1);
  double sum = 0;
  for (std::size_t i = 0; i < out.o.size(); ++i) sum += out.o[i] * inputs.dout.at(i);
  for (std::size_t i = 0; i < out.lse.size(); ++i) {
    if (std::isfinite(out.lse[i])) sum += out.lse[i] * inputs.dlse[i];
  }
  return sum;
}

/// The derivative by one element, from steps in both directions of one and two units of 2^-9.
double derivative(const Problem& problem, const Inputs& inputs, Operand& operand, std::size_t i) {
  constexpr double unit = 0x1p-9;
  const double before = operand.at(i);
  const auto moved = [&](int steps) {
    operand.bits[i] = to_storage(Dtype::fp16, static_cast<float>(before + steps * unit));
    return loss(problem, inputs);
  };
  const double slope = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * unit);
  moved(0);
  return slope;
}

void check_problem(const Problem& problem) {
  CAPTURE(problem.text());
  Random random(5);
  Inputs inputs(problem, random);
  const Gradients found = reference_gradients(problem, inputs.gradients(scale), 1);
  double worst = 0;
  const auto check = [&](Operand& operand, const std::vector<double>& gradient) {
    REQUIRE(gradient.size() == operand.bits.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      worst = std::max(worst, std::abs(derivative(problem, inputs, operand, i) - gradient[i]));
    }
  };
  check(inputs.q, found.dq);
  check(inputs.k, found.dk);
  check(inputs.v, found.dv);
  CHECK(worst < 1e-8);
}

}  // namespace

TEST_CASE("the reference's gradients are those of finite differences, for every mask and with grouped heads") {
  Problem problem{.dtype = Dtype::fp16, .batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 5, .seqlen_k = 6};
  problem.head_dim = 4;
  check_problem(problem);
  problem.head_dim_v = 3;
  check_problem(problem);
  problem.causal = true;
  check_problem(problem);
  problem.seqlen_k = 3;  // the first two queries see no key
  check_problem(problem);
  problem.causal = false;
  problem.seqlen_k = 6;
  set_window(problem, 1, 1);
  check_problem(problem);
  problem.softcap = 0.8F;
  check_problem(problem);
}

TEST_CASE("naive gradients are near the reference's, and as far from it as their storage type rounds") {
  Problem problem{.dtype = Dtype::fp16, .heads_q = 2, .heads_kv = 1, .seqlen_q = 40, .seqlen_k = 50, .head_dim = 16};
  problem.causal = true;
  Random random(6);
  const Inputs inputs(problem, random);
  const Gradients exact = reference_gradients(problem, inputs.gradients(scale));
  const Gradients naive = naive_gradients(problem, inputs.gradients(scale));
  double error = 0;
  for (std::size_t i = 0; i < exact.dk.size(); ++i) error = std::max(error, std::abs(exact.dk[i] - naive.dk[i]));
  CHECK(error < 0x1p-6);
  CHECK(error > 0x1p-14);
}

TEST_CASE("the terms of gradients bound them, and are what a gradient that cancels is measured by") {
  Problem problem{.dtype = Dtype::fp16, .heads_q = 2, .heads_kv = 1, .seqlen_q = 20, .seqlen_k = 30, .head_dim = 16};
  problem.softcap = 2;
  Random random(8);
  const Inputs inputs(problem, random);
  const Gradients exact = reference_gradients(problem, inputs.gradients(scale));
  const Gradients terms = gradient_terms(problem, inputs.gradients(scale));
  for (const auto& [gradient, bound] :
       {std::pair{&exact.dq, &terms.dq}, {&exact.dk, &terms.dk}, {&exact.dv, &terms.dv}}) {
    REQUIRE(bound->size() == gradient->size());
    for (std::size_t i = 0; i < bound->size(); ++i) CHECK((*bound)[i] >= std::abs((*gradient)[i]));
  }

  set_window(problem, 0, 0);  // of one key, whose weight is 1 whatever the scores are
  GradientInputs without_dlse = inputs.gradients(scale);
  without_dlse.dlse = {};
  const Gradients zeros = reference_gradients(problem, without_dlse);
  const Gradients cancelled = gradient_terms(problem, without_dlse);
  double largest = 0;
  for (std::size_t i = 0; i < zeros.dq.size(); ++i) {
    CHECK(std::abs(zeros.dq[i]) < 1e-14);
    largest = std::max(largest, cancelled.dq[i]);
  }
  CHECK(largest > 0.5);
  for (const auto& [share, agrees] : {std::pair{0x1p-21, true}, {0x1p-19, false}}) {
    const std::vector found(zeros.dq.size(), to_storage(Dtype::fp16, static_cast<float>(largest * share)));
    CHECK(compare_gradient(Dtype::fp16, found, zeros.dq, zeros.dq, cancelled.dq).agrees == agrees);
  }
}

TEST_CASE("gradients of a ragged batch are those of its sequences") {
  Problem problem{.dtype = Dtype::fp16, .batch = 2, .heads_q = 2, .heads_kv = 2, .seqlen_q = 5, .seqlen_k = 7};
  problem.head_dim = 4;
  problem.causal = true;
  problem.ragged = true;
  problem.total_q = 9;
  problem.total_k = 12;
  Problem all = problem;
  all.ragged = false;
  all.batch = 1;
  all.seqlen_q = 9;
  all.seqlen_k = 12;
  Random random(7);
  const Inputs inputs(all, random);
  const Sequences sequences{
      .cu_seqlens_q = {1, 4, 9}, .cu_seqlens_k = {0, 5, 12}, .seqused_k = {5, 6}, .seqused_q = {3, 4}};
  const Gradients found = gradients_of(reference_gradients, problem, sequences, inputs.gradients(scale));

  Problem second = all;
  second.seqlen_q = 4;
  second.seqlen_k = 6;
  GradientInputs own = inputs.gradients(scale);
  own.q.data += 4 * own.q.stride_seq;
  own.k.data += 5 * own.k.stride_seq;
  own.v.data += 5 * own.v.stride_seq;
  own.dout.data += 4 * own.dout.stride_seq;
  std::vector<float> dlse;
  for (const int head : {0, 1}) {
    for (int row = 4; row < 8; ++row) dlse.push_back(inputs.dlse[static_cast<std::size_t>(head) * 9 + row]);
  }
  own.dlse = dlse;
  const Gradients expected = reference_gradients(second, own);
  constexpr std::size_t row = 8;  // heads x head_dim
  CHECK(std::isnan(found.dq[0]));
  for (std::size_t i = 0; i < expected.dq.size(); ++i) CHECK(found.dq[4 * row + i] == expected.dq[i]);
  CHECK(std::isnan(found.dq[8 * row]));
  for (std::size_t i = 0; i < expected.dk.size(); ++i) CHECK(found.dk[5 * row + i] == expected.dk[i]);
  for (std::size_t i = 0; i < expected.dv.size(); ++i) CHECK(found.dv[5 * row + i] == expected.dv[i]);
  CHECK(std::isnan(found.dk[11 * row]));
}
