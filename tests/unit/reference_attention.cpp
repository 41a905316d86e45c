// The float64 reference against cases that can be worked out by hand, and against properties of softmax.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "runtime/lab/reference.hpp"

using namespace attune;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// batch x seqlen x heads x head_dim in storage type, contiguous.
struct Operand {
  std::vector<std::uint16_t> bits;
  HostTensor tensor;
};

Operand operand(const Problem& problem, int seqlen, int heads, const std::vector<float>& values) {
  Operand result;
  for (const float value : values) result.bits.push_back(to_storage(problem.dtype, value));
  const long long dim = problem.head_dim;
  result.tensor = {
      .data = result.bits.data(), .stride_batch = seqlen * heads * dim, .stride_seq = heads * dim, .stride_head = dim};
  return result;
}

/// Values in [-1, 1] that repeat nowhere in the sizes used here.
std::vector<float> ripple(std::size_t count, float phase) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(phase + 0.7F * static_cast<float>(i));
  return values;
}

std::vector<float> repeated(std::size_t count, float value) { return std::vector<float>(count, value); }

}  // namespace

TEST_CASE("one query and two keys, by hand") {
  const Problem problem{.dtype = Dtype::fp16, .seqlen_q = 1, .seqlen_k = 2, .head_dim = 2};
  const Operand q = operand(problem, 1, 1, {1, 2});
  const Operand k = operand(problem, 2, 1, {1, 0, 0, 1});  // scores 1 and 2
  const Operand v = operand(problem, 2, 1, {10, 20, 30, 40});
  const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
  const double p = 1 / (1 + std::exp(1.0));  // weight of the first key
  CHECK(out.o[0] == doctest::Approx(10 * p + 30 * (1 - p)).epsilon(1e-12));
  CHECK(out.o[1] == doctest::Approx(20 * p + 40 * (1 - p)).epsilon(1e-12));
  CHECK(out.lse[0] == doctest::Approx(std::log(std::exp(1.0) + std::exp(2.0))).epsilon(1e-12));
}

TEST_CASE("O is as wide as V, whose head_dim need not be that of Q and K") {
  const Problem problem{.dtype = Dtype::fp16, .seqlen_q = 1, .seqlen_k = 2, .head_dim = 2, .head_dim_v = 3};
  const Operand q = operand(problem, 1, 1, {1, 2});
  const Operand k = operand(problem, 2, 1, {1, 0, 0, 1});
  Operand v = operand(problem, 2, 1, {10, 20, 30, 40, 50, 60});
  v.tensor.stride_seq = v.tensor.stride_head = 3;
  const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
  const double p = 1 / (1 + std::exp(1.0));
  REQUIRE(out.o.size() == 3);
  for (const int d : {0, 1, 2}) CHECK(out.o[d] == doctest::Approx(10 * (d + 1) * p + 10 * (d + 4) * (1 - p)));
}

TEST_CASE("the scale multiplies the scores") {
  const Problem problem{.dtype = Dtype::fp16, .seqlen_q = 1, .seqlen_k = 2, .head_dim = 2};
  const Operand q = operand(problem, 1, 1, {1, 2});
  const Operand k = operand(problem, 2, 1, {1, 0, 0, 1});
  const Operand v = operand(problem, 2, 1, {0, 1, 1, 0});
  const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 0.5);
  CHECK(out.lse[0] == doctest::Approx(std::log(std::exp(0.5) + std::exp(1.0))).epsilon(1e-12));
}

TEST_CASE("causal is aligned bottom right") {
  // All scores are 0, so a row's LSE is the logarithm of the number of keys it sees and O is their mean.
  const auto visible = [](int seqlen_q, int seqlen_k) {
    const Problem problem{
        .dtype = Dtype::bf16, .seqlen_q = seqlen_q, .seqlen_k = seqlen_k, .head_dim = 8, .causal = true};
    const Operand q = operand(problem, seqlen_q, 1, repeated(8UL * seqlen_q, 0));
    const Operand k = operand(problem, seqlen_k, 1, ripple(8UL * seqlen_k, 0));
    std::vector<float> values(8UL * seqlen_k);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 8);  // v_j = j
    const Operand v = operand(problem, seqlen_k, 1, values);
    const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
    std::vector<int> counts;
    for (int row = 0; row < seqlen_q; ++row) {
      const int count = static_cast<int>(std::lround(std::exp(out.lse[row])));
      counts.push_back(count);
      CHECK(out.o[8UL * row] == doctest::Approx(count == 0 ? 0.0 : (count - 1) / 2.0));
    }
    return counts;
  };
  CHECK(visible(3, 3) == std::vector{1, 2, 3});
  CHECK(visible(2, 5) == std::vector{4, 5});
  CHECK(visible(5, 2) == std::vector{0, 0, 0, 1, 2});
  CHECK(visible(1, 4) == std::vector{4});
  CHECK(visible(4, 1) == std::vector{0, 0, 0, 1});
}

TEST_CASE("a row without keys gives zero and minus infinity") {
  SUBCASE("causal, more queries than keys") {
    const Problem problem{.seqlen_q = 3, .seqlen_k = 1, .head_dim = 8, .causal = true};
    const Operand q = operand(problem, 3, 1, ripple(24, 0));
    const Operand k = operand(problem, 1, 1, ripple(8, 1));
    const Operand v = operand(problem, 1, 1, repeated(8, 3));
    const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
    CHECK(out.lse[0] == -infinity);
    CHECK(out.lse[1] == -infinity);
    CHECK(std::isfinite(out.lse[2]));
    CHECK(out.o == std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3});
  }
  SUBCASE("no keys at all") {
    const Problem problem{.seqlen_q = 2, .seqlen_k = 0, .head_dim = 8};
    const Operand q = operand(problem, 2, 1, ripple(16, 0));
    const ReferenceOutput out = reference_attention(problem, q.tensor, {}, {}, 1.0);
    CHECK(out.o == std::vector<double>(16, 0.0));
    CHECK(out.lse == std::vector<double>(2, -infinity));
  }
  SUBCASE("no queries") {
    const Problem problem{.seqlen_q = 0, .seqlen_k = 4, .head_dim = 8};
    const ReferenceOutput out = reference_attention(problem, {}, {}, {}, 1.0);
    CHECK(out.o.empty());
    CHECK(out.lse.empty());
  }
}

TEST_CASE("query heads share key and value heads in order") {
  // 4 query heads on 2 key heads: heads 0 and 1 read values 1, heads 2 and 3 values 2; the second batch 3 and 4.
  const Problem problem{.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 1, .seqlen_k = 1, .head_dim = 8};
  const Operand q = operand(problem, 1, 4, ripple(2UL * 4 * 8, 0));
  const Operand k = operand(problem, 1, 2, ripple(2UL * 2 * 8, 1));
  std::vector<float> values;
  for (const float head : {1.0F, 2.0F, 3.0F, 4.0F}) values.insert(values.end(), 8, head);
  const Operand v = operand(problem, 1, 2, values);
  const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
  std::vector<double> by_head;
  for (std::size_t head = 0; head < 8; ++head) by_head.push_back(out.o[head * 8]);
  CHECK(by_head == std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4});
}

TEST_CASE("strides are honoured") {
  const Problem problem{
      .batch = 2, .heads_q = 2, .heads_kv = 2, .seqlen_q = 3, .seqlen_k = 3, .head_dim = 8, .causal = true};
  const std::size_t count = 2UL * 3 * 2 * 8;
  const Operand q = operand(problem, 3, 2, ripple(count, 0));
  const Operand k = operand(problem, 3, 2, ripple(count, 1));
  const Operand v = operand(problem, 3, 2, ripple(count, 2));
  const ReferenceOutput contiguous = reference_attention(problem, q.tensor, k.tensor, v.tensor, 0.4);

  // The same values as one packed tensor batch x heads x seqlen x (q, k, v) x head_dim, gaps filled with NaN.
  const long long stride_seq = 3 * 8 + 8;
  const long long stride_head = 3 * stride_seq + 16;
  const long long stride_batch = 2 * stride_head;
  std::vector<std::uint16_t> packed(2 * stride_batch, 0x7fff);
  for (int b = 0; b < 2; ++b) {
    for (int s = 0; s < 3; ++s) {
      for (int h = 0; h < 2; ++h) {
        for (int d = 0; d < 8; ++d) {
          const std::size_t from = ((b * 3 + s) * 2 + h) * 8 + d;
          const std::size_t to = b * stride_batch + h * stride_head + s * stride_seq + d;
          packed[to] = q.bits[from];
          packed[to + 8] = k.bits[from];
          packed[to + 16] = v.bits[from];
        }
      }
    }
  }
  const auto part = [&](int index) {
    return HostTensor{packed.data() + 8 * index, stride_batch, stride_seq, stride_head};
  };
  const ReferenceOutput strided = reference_attention(problem, part(0), part(1), part(2), 0.4);
  CHECK(strided.o == contiguous.o);
  CHECK(strided.lse == contiguous.lse);
}

TEST_CASE("any number of threads gives the same bits") {
  const Problem problem{.batch = 2, .heads_q = 3, .heads_kv = 1, .seqlen_q = 130, .seqlen_k = 67, .head_dim = 16};
  const Operand q = operand(problem, 130, 3, ripple(2UL * 130 * 3 * 16, 0));
  const Operand k = operand(problem, 67, 1, ripple(2UL * 67 * 16, 1));
  const Operand v = operand(problem, 67, 1, ripple(2UL * 67 * 16, 2));
  const ReferenceOutput one = reference_attention(problem, q.tensor, k.tensor, v.tensor, 0.25, 1);
  for (const int threads : {0, 2, 5, 64}) {
    const ReferenceOutput many = reference_attention(problem, q.tensor, k.tensor, v.tensor, 0.25, threads);
    CHECK(many.o == one.o);
    CHECK(many.lse == one.lse);
  }
}

TEST_CASE("large scores do not overflow") {
  const Problem problem{.seqlen_q = 1, .seqlen_k = 2, .head_dim = 8};
  const Operand q = operand(problem, 1, 1, repeated(8, 256));
  const Operand k = operand(problem, 2, 1, repeated(16, 256));
  const Operand v = operand(problem, 2, 1, repeated(16, 5));
  const ReferenceOutput out = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
  CHECK(out.lse[0] == doctest::Approx(8 * 65536.0 + std::log(2.0)).epsilon(1e-12));
  CHECK(out.o[0] == doctest::Approx(5));
}

TEST_CASE("a window leaves a row the keys around its position") {
  // All scores are 0, so O is the mean of the keys that a row sees, and key j has the value j.
  Problem problem{.dtype = Dtype::bf16, .seqlen_q = 5, .seqlen_k = 8, .head_dim = 8};
  std::vector<float> values;
  for (int j = 0; j < 8; ++j) values.insert(values.end(), 8, static_cast<float>(j));
  const Operand q = operand(problem, 5, 1, repeated(40, 0));
  const Operand k = operand(problem, 8, 1, repeated(64, 1));
  const Operand v = operand(problem, 8, 1, values);
  set_window(problem, 2, 1);  // row i, at i + 3, sees i + 1 to i + 4
  for (const ReferenceOutput& out : {reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0),
                                     naive_attention(problem, q.tensor, k.tensor, v.tensor, 1.0)}) {
    for (int i = 0; i < 4; ++i) {
      CHECK(out.o[i * 8] == doctest::Approx(i + 2.5));
      CHECK(out.lse[i] == doctest::Approx(std::log(4.0)));
    }
    CHECK(out.o[4 * 8] == doctest::Approx(6));  // 5, 6 and 7
  }
  set_window(problem, 0, 0);
  const ReferenceOutput own = reference_attention(problem, q.tensor, k.tensor, v.tensor, 1.0);
  for (int i = 0; i < 5; ++i) CHECK(own.o[i * 8] == doctest::Approx(i + 3));
}

TEST_CASE("a soft cap bends the scaled scores") {
  const Problem problem{.dtype = Dtype::fp16, .seqlen_q = 1, .seqlen_k = 2, .head_dim = 2, .softcap = 3};
  const Operand q = operand(problem, 1, 1, {1, 2});
  const Operand k = operand(problem, 2, 1, {1, 0, 0, 1});
  const Operand v = operand(problem, 2, 1, {0, 1, 1, 0});
  const double lse = std::log(std::exp(3 * std::tanh(4.0 / 3)) + std::exp(3 * std::tanh(8.0 / 3)));
  CHECK(reference_attention(problem, q.tensor, k.tensor, v.tensor, 4.0).lse[0] == doctest::Approx(lse).epsilon(1e-12));
  const ReferenceOutput naive = naive_attention(problem, q.tensor, k.tensor, v.tensor, 4.0);
  CHECK(naive.lse[0] == doctest::Approx(lse).epsilon(1e-6));
  CHECK(naive.o[0] == doctest::Approx(std::exp(3 * std::tanh(8.0 / 3) - lse)).epsilon(1e-2));
}

TEST_CASE("the sequences of a ragged batch are computed apart, and rows of none stay out") {
  const Problem problem{.dtype = Dtype::fp16,
                        .batch = 3,
                        .heads_q = 2,
                        .heads_kv = 1,
                        .seqlen_q = 4,
                        .seqlen_k = 6,
                        .head_dim = 8,
                        .causal = true,
                        .ragged = true,
                        .total_q = 9,
                        .total_k = 12};
  const Operand q = operand(problem, 9, 2, ripple(9 * 2 * 8, 0.1F));
  const Operand k = operand(problem, 12, 1, ripple(12 * 8, 0.2F));
  const Operand v = operand(problem, 12, 1, ripple(12 * 8, 0.3F));
  const Sequences sequences{.cu_seqlens_q = {1, 5, 5, 7}, .cu_seqlens_k = {2, 8, 9, 12}, .seqused_k = {5, 1, 3}};
  const ReferenceOutput out =
      ragged_attention(reference_attention, problem, sequences, q.tensor, k.tensor, v.tensor, 0.5);
  REQUIRE(out.o.size() == 9 * 2 * 8);
  REQUIRE(out.lse.size() == 2 * 9);
  for (const int row : {0, 7, 8}) {
    CHECK(std::isnan(out.o[row * 16]));
    CHECK(std::isnan(out.lse[9 + row]));
  }
  const auto check = [&](int first_q, int seqlen_q, int first_k, int seqlen_k) {
    Problem one = problem;
    one.ragged = false;
    one.batch = 1;
    one.seqlen_q = seqlen_q;
    one.seqlen_k = seqlen_k;
    HostTensor own_q = q.tensor;
    HostTensor own_k = k.tensor;
    HostTensor own_v = v.tensor;
    own_q.data += first_q * 16;
    own_k.data += first_k * 8;
    own_v.data += first_k * 8;
    const ReferenceOutput own = reference_attention(one, own_q, own_k, own_v, 0.5);
    for (int i = 0; i < seqlen_q * 16; ++i) CHECK(out.o[first_q * 16 + i] == own.o[i]);
    for (int row = 0; row < seqlen_q; ++row) {
      for (const int head : {0, 1}) CHECK(out.lse[head * 9 + first_q + row] == own.lse[head * seqlen_q + row]);
    }
  };
  check(1, 4, 2, 5);
  check(5, 2, 9, 3);
}

TEST_CASE("keys in pages are those that the table names, for ragged queries and others") {
  Problem problem{.dtype = Dtype::fp16,
                  .batch = 2,
                  .heads_q = 2,
                  .heads_kv = 2,
                  .seqlen_q = 3,
                  .seqlen_k = 7,
                  .head_dim = 8,
                  .causal = true,
                  .paged = true,
                  .page_size = 3,
                  .pages = 5,
                  .table_width = 3};
  const Operand q = operand(problem, 6, 2, ripple(6 * 2 * 8, 0.1F));
  const Operand k = operand(problem, 15, 2, ripple(15 * 2 * 8, 0.2F));
  const Operand v = operand(problem, 15, 2, ripple(15 * 2 * 8, 0.3F));
  const auto paged = [](HostTensor tensor, int rows) {
    tensor.stride_batch = rows * tensor.stride_seq;
    return tensor;
  };
  Sequences sequences{.cu_seqlens_q = {}, .cu_seqlens_k = {}, .seqused_k = {7, 2}};
  sequences.block_table = {4, 0, 2, 1, -1, -1};
  const auto of = [&](const Problem& which) {
    return attention_of(reference_attention, which, sequences, paged(q.tensor, 3), paged(k.tensor, 3),
                        paged(v.tensor, 3), 0.5);
  };
  const ReferenceOutput out = of(problem);
  REQUIRE(out.o.size() == 2 * 3 * 2 * 8);
  REQUIRE(out.lse.size() == 2 * 2 * 3);
  const std::vector<std::vector<int>> tokens{{12, 13, 14, 0, 1, 2, 6}, {3, 4}};
  for (int sequence = 0; sequence < 2; ++sequence) {
    std::vector<std::uint16_t> keys;
    std::vector<std::uint16_t> values;
    for (const int token : tokens[sequence]) {
      keys.insert(keys.end(), k.tensor.data + token * 16, k.tensor.data + token * 16 + 16);
      values.insert(values.end(), v.tensor.data + token * 16, v.tensor.data + token * 16 + 16);
    }
    Problem one = problem;
    one.paged = false;
    one.batch = 1;
    one.seqlen_k = static_cast<int>(tokens[sequence].size());
    const HostTensor own_q{q.tensor.data + sequence * 48, 0, 16, 8};
    const ReferenceOutput own =
        reference_attention(one, own_q, {keys.data(), 0, 16, 8}, {values.data(), 0, 16, 8}, 0.5);
    for (int i = 0; i < 48; ++i) CHECK(out.o[sequence * 48 + i] == own.o[i]);
    for (int i = 0; i < 6; ++i) CHECK(out.lse[sequence * 6 + i] == own.lse[i]);
  }

  problem.ragged = true;
  problem.total_q = 6;
  sequences.cu_seqlens_q = {0, 3, 6};
  const ReferenceOutput ragged = of(problem);
  CHECK(ragged.o == out.o);
  for (int head = 0; head < 2; ++head) {
    for (int row = 0; row < 6; ++row) CHECK(ragged.lse[head * 6 + row] == out.lse[(row / 3 * 2 + head) * 3 + row % 3]);
  }
}
