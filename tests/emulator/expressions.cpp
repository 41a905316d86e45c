// Kernels with expressions on the emulator against the float64 reference that evaluates the same text.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <span>
#include <utility>

#include "generator/check.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/memory.hpp"
#include "runtime/lab/random_values.hpp"
#include "runtime/lab/trial.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"
#include "tests/harness/stored_arrays.hpp"

namespace attune::emulator_tests {
namespace {

using expression::Use;
using testing::once_in;
using testing::one_of;
using testing::up_to;

const Device h200 = device_of(*find_arch("sm_90"));

struct Texts {
  std::string score;  ///< empty: none
  std::string mask;
  bool sink = false;
};

CallExpressions numbers_of(const Texts& texts) {
  CallExpressions result;
  if (!texts.score.empty()) result.score = expression::number_of_text(texts.score, Use::score).value();
  if (!texts.mask.empty()) result.mask = expression::number_of_text(texts.mask, Use::mask).value();
  result.sink = texts.sink ? 1 : 0;
  return result;
}

/// A call in host memory, with poison around everything, keys that do not count included.
class ExpressedCall {
 public:
  ExpressedCall(const Problem& problem, Sequences sequences, Texts texts, std::uint64_t seed)
      : problem_(problem), sequences_(std::move(sequences)), texts_(std::move(texts)) {
    problem_.expressions = numbers_of(texts_);
    const std::size_t keys = key_rows() * problem_.head_dim;
    q_ = places_.add(query_rows(problem_) * problem_.head_dim * sizeof(std::uint16_t));
    k_ = places_.add(keys * sizeof(std::uint16_t));
    v_ = places_.add(keys * sizeof(std::uint16_t));
    o_ = places_.add(output_elements(problem_) * sizeof(std::uint16_t));
    lse_ = places_.add(query_rows(problem_) * sizeof(float));
    stored_ = testing::StoredArrays(problem_, seed, places_);
    sink_ = places_.add(stored_.values().sink);
    memory_ = places_.memory();
    draw(q_, query_rows(problem_) * problem_.head_dim, 3 * seed);
    draw(k_, keys, 3 * seed + 1);
    draw(v_, keys, 3 * seed + 2);
    stored_.put(memory_);
    put(memory_, sink_, stored_.values().sink);
    before_ = memory_;
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }

  /// Runs it as prefill, and CHECKs what it leaves.
  void check_prefill(const EmulatedKernel& kernel, std::uint64_t seed) {
    CAPTURE(kernel.variant.name());
    CAPTURE(problem_.text());
    Memory memory = memory_;
    attune_prefill_args args = arguments_of(problem_);
    place(args, memory);
    if (!sequences_.seqused_k.empty()) args.seqused_k = sequences_.seqused_k.data();
    const Problem checked = check_arguments(args);
    CHECK(checked.expressions == problem_.expressions);
    const std::size_t bytes = plan(kernel.variant, checked, kernel.device).workspace_bytes;
    std::vector<float> workspace(bytes / sizeof(float) + 4);
    FixedKernels found{&kernel};
    if (kernels_ != nullptr && bytes > 0) {
      args.workspace = workspace.data();
      args.workspace_bytes = bytes;
      found.add((*kernels_)[choose_own(MaskBlocksProblem{problem_.expressions.mask}, kernel.device).variant]);
    }
    const emulator::Report report = run_emulated(found, args, checked, {.seed = seed});
    REQUIRE_MESSAGE(report.ok(), report.fault);
    check_results(std::move(memory), args.softmax_scale);
  }

  /// Has a kernel tell which blocks a mask leaves, where what it looks up says so.
  void tell_blocks(HostKernels& kernels) { kernels_ = &kernels; }

  /// Gives an array of integers these values.
  void set_array(std::string_view name, const std::function<int(int)>& value) {
    stored_.set(name, value);
    stored_.put(memory_);
    stored_.put(before_);
  }

  /// The same as decode, whose cache is in pages.
  void check_decode(HostKernels& kernels, const Device& device, int splits, std::uint64_t seed,
                    const std::function<void(Variant&)>& change = {}) {
    DecodeProblem problem{.dtype = problem_.dtype,
                          .batch = problem_.batch,
                          .seqlen_q = problem_.seqlen_q,
                          .heads_q = problem_.heads_q,
                          .heads_kv = problem_.heads_kv,
                          .head_dim = problem_.head_dim,
                          .max_seqlen_k = problem_.seqlen_k,
                          .page_size = problem_.page_size,
                          .pages = problem_.pages,
                          .table_width = problem_.table_width,
                          .splits = splits,
                          .window_left = problem_.window_left,
                          .window_right = problem_.causal ? 0 : problem_.window_right,
                          .softcap = problem_.softcap,
                          .expressions = problem_.expressions};
    OwnChoice own = choose_own(problem, device);
    REQUIRE(own.refusals.empty());
    if (change) change(own.variant);
    REQUIRE(check(own.variant).empty());
    CAPTURE(own.variant.name());
    CAPTURE(problem.text());
    Memory memory = memory_;
    attune_decode_args args = arguments_of(problem);
    place(args, memory);
    args.seqlens_k = sequences_.seqused_k.data();
    const EmulatedKernel& kernel = kernels[own.variant];
    FixedKernels found{&kernel};
    for (const Variant& other : companions_of(own.variant, device)) found.add(kernels[other]);
    const DecodePlan planned = plan(kernel.variant, problem, kernel.device);
    std::vector<float> workspace(planned.workspace_bytes / sizeof(float) + 4);
    args.workspace = workspace.data();
    args.workspace_bytes = planned.workspace_bytes;
    const emulator::Report report = run_emulated(found, args, check_arguments(args), {.seed = seed});
    REQUIRE_MESSAGE(report.ok(), report.fault);
    check_results(std::move(memory), args.softmax_scale);
  }

  /// Makes K and V of these keys of every sequence NaN in what the kernel reads, where a page is a sequence or none is.
  void poison_keys(int first, int end) {
    for (const std::size_t tensor : {k_, v_}) {
      for (int batch = 0; batch < problem_.batch; ++batch) {
        const int row = problem_.heads_kv * problem_.head_dim;
        std::uint16_t* const rows = at<std::uint16_t>(memory_.data(), tensor) + batch * problem_.seqlen_k * row;
        std::fill(rows + first * row, rows + end * row, poison);
      }
    }
  }

 private:
  [[nodiscard]] std::size_t key_rows() const {
    return static_cast<std::size_t>(problem_.stored_key_sequences()) * problem_.stored_keys() * problem_.heads_kv;
  }

  void draw(std::size_t place, std::size_t elements, std::uint64_t seed) {
    draw_values(problem_.dtype, seed, std::span(at<std::uint16_t>(memory_.data(), place), elements));
  }

  template <class Args>
  void place(Args& args, Memory& memory) {
    void* const first = memory.data();
    const auto tensor = [&](std::size_t place, int seqlen, int heads) {
      const HostTensor strides = contiguous(nullptr, seqlen, heads, problem_.head_dim);
      return attune_tensor{at<void>(first, place), strides.stride_batch, strides.stride_seq, strides.stride_head};
    };
    args.q = tensor(q_, problem_.stored_rows(), problem_.heads_q);
    args.o = tensor(o_, problem_.stored_rows(), problem_.heads_q);
    args.k = tensor(k_, problem_.stored_keys(), problem_.heads_kv);
    args.v = tensor(v_, problem_.stored_keys(), problem_.heads_kv);
    args.lse = at<float>(first, lse_);
    if (problem_.ragged) args.cu_seqlens_q = sequences_.cu_seqlens_q.data();
    if (problem_.ragged && !problem_.paged) args.cu_seqlens_k = sequences_.cu_seqlens_k.data();
    if (problem_.paged) args.block_table = sequences_.block_table.data();
    args.score = texts_.score.empty() ? nullptr : texts_.score.c_str();
    args.mask = texts_.mask.empty() ? nullptr : texts_.mask.c_str();
    arrays_ = stored_.named(first);
    args.params = arrays_.data();
    args.param_count = static_cast<std::int32_t>(arrays_.size());
    args.sink = stored_.values().sink.empty() ? nullptr : at<float>(first, sink_);
  }

  void check_results(Memory after, double scale) {
    const auto operand = [&](std::size_t place, int seqlen, int heads) {
      return contiguous(at<std::uint16_t>(before_.data(), place), seqlen, heads, problem_.head_dim);
    };
    const ExpressedOutput expected = expressed_attention(problem_, sequences_, stored_.values(),
                                                         {.q = operand(q_, problem_.stored_rows(), problem_.heads_q),
                                                          .k = operand(k_, problem_.stored_keys(), problem_.heads_kv),
                                                          .v = operand(v_, problem_.stored_keys(), problem_.heads_kv)},
                                                         scale);
    const auto o = take<std::uint16_t>(after, o_, output_elements(problem_));
    const auto lse = take<float>(after, lse_, query_rows(problem_));
    const Comparison found = compare(problem_, o.data(), lse.data(), expected.reference, expected.naive);
    CAPTURE(found.max_error);
    CAPTURE(found.tolerance);
    CAPTURE(found.lse_error);
    CAPTURE(found.lse_tolerance);
    CHECK(found.unwritten == 0);
    CHECK(found.agrees);
  }

  Problem problem_;
  Sequences sequences_;
  Texts texts_;
  testing::StoredArrays stored_;
  std::vector<attune_named_array> arrays_;
  Places places_;
  std::size_t q_ = 0;
  std::size_t k_ = 0;
  std::size_t v_ = 0;
  std::size_t o_ = 0;
  std::size_t lse_ = 0;
  std::size_t sink_ = 0;
  Memory memory_;
  Memory before_;  ///< without poisoned keys
  HostKernels* kernels_ = nullptr;
};

enum class Kind { dense, ragged, paged };

/// Lengths from none up to the longest, one of which is.
std::vector<std::int32_t> random_lengths(Random& random, int batch, int longest) {
  std::vector<std::int32_t> lengths{longest};
  while (static_cast<int>(lengths.size()) < batch) lengths.push_back(up_to(random, longest));
  return lengths;
}

std::vector<std::int32_t> summed(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> sums{0};
  for (const std::int32_t length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

/// Gives a problem pages in any order, and its sequences' lengths.
void make_paged(Random& random, Problem& problem, Sequences& sequences) {
  problem.paged = true;
  problem.page_size = one_of(random, std::array{16, 3});
  problem.table_width = (problem.seqlen_k + problem.page_size - 1) / problem.page_size;
  problem.pages = problem.batch * problem.table_width;
  sequences.seqused_k = random_lengths(random, problem.batch, problem.seqlen_k);
  for (int page = problem.pages - 1; page >= 0; --page) sequences.block_table.push_back(page);
}

struct Drawn {
  Problem problem;
  Sequences sequences;
};

Drawn random_problem(Random& random, Kind kind, int most_queries, int most_keys) {
  Drawn drawn;
  Problem& problem = drawn.problem;
  problem.dtype = one_of(random, std::array{Dtype::fp16, Dtype::bf16});
  problem.head_dim = 64;
  problem.batch = 1 + up_to(random, 1);
  problem.heads_kv = 1 + up_to(random, 1);
  problem.heads_q = problem.heads_kv * one_of(random, std::array{1, 2, 4});
  problem.seqlen_q = 1 + up_to(random, most_queries - 1);
  problem.seqlen_k = 1 + up_to(random, most_keys - 1);
  problem.causal = once_in(random, 3);
  if (once_in(random, 4)) problem.set_window(up_to(random, 80), up_to(random, 40));
  if (once_in(random, 4)) problem.softcap = 5;
  if (kind == Kind::ragged) {
    problem.ragged = true;
    drawn.sequences.cu_seqlens_q = summed(random_lengths(random, problem.batch, problem.seqlen_q));
    drawn.sequences.cu_seqlens_k = summed(random_lengths(random, problem.batch, problem.seqlen_k));
    problem.total_q = drawn.sequences.cu_seqlens_q.back();
    problem.total_k = drawn.sequences.cu_seqlens_k.back();
  } else if (kind == Kind::paged) {
    make_paged(random, problem, drawn.sequences);
  }
  return drawn;
}

Texts random_texts(Random& random) {
  Texts texts;
  const auto which = random.below(4);
  if (which != 0) texts.mask = testing::random_expression(random, Use::mask);
  if (which != 1) texts.score = testing::random_expression(random, Use::score);
  return texts;
}

/// How many random expressions are tried: few, or as many as a person asks for.
int expression_count() {
  const char* const asked = std::getenv("ATTUNE_TEST_EXPRESSIONS");
  return asked == nullptr ? 24 : std::atoi(asked);
}

/// Tries one pair of expressions on a family.
void try_prefill(HostKernels& kernels, Random& random, const Device& device, Kind kind, const Texts& texts,
                 std::uint64_t seed) {
  const Drawn drawn = random_problem(random, kind, 150, 250);
  ExpressedCall call(drawn.problem, drawn.sequences, texts, seed);
  const OwnChoice own = choose_own(call.problem(), device);
  REQUIRE(own.refusals.empty());
  if (once_in(random, 2)) call.tell_blocks(kernels);
  call.check_prefill(kernels[own.variant], seed);
}

}  // namespace

TEST_CASE("what models use agrees with the reference: slopes, documents, prefixes, windows with first tokens, trees") {
  const std::array<Texts, 7> named{{
      {"s + slope[h] * (k - p) where slope: fp32[head]", ""},
      {"s - slope[b, h] * abs(p - k) where slope: fp32[batch, head]", "k <= p"},
      {"", "k <= p and document[b, p] == document[b, k] where document: int32[batch, position]"},
      {"", "k <= p or k < prefix[b] where prefix: int32[batch]"},
      {"", "k <= p and (p - k < 130 or k < 4)"},
      {"", "k <= p - q or tree[b, q, k - (p - q)] % 2 == 1 where tree: int32[batch, query, 150]"},
      {"20 * tanh(s / 20) + bias[h, max(p - k, 0)] where bias: fp32[head, 100]", "(k // 64 + p // 64) % 3 != 0"},
  }};
  HostKernels kernels;
  Random random(47);
  std::uint64_t seed = 1;
  for (const Texts& texts : named) {
    CAPTURE(texts.score);
    CAPTURE(texts.mask);
    for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
      for (const Device& device : {emulator::device(), h200}) {
        ++seed;
        Drawn drawn = random_problem(random, kind, 140, 700);
        drawn.problem.window_left = drawn.problem.window_right = -1;
        ExpressedCall call(drawn.problem, drawn.sequences, texts, seed);
        const OwnChoice own = choose_own(call.problem(), device);
        REQUIRE(own.refusals.empty());
        call.check_prefill(kernels[own.variant], seed);
        call.tell_blocks(kernels);
        call.check_prefill(kernels[own.variant], seed);
        if (kind != Kind::paged) continue;
        drawn.problem.seqlen_q = 1 + up_to(random, 5);
        ExpressedCall few(drawn.problem, drawn.sequences, texts, seed);
        few.check_decode(kernels, device, up_to(random, 4), seed);
      }
    }
  }
}

TEST_CASE("packed heads know which head a row is of") {
  HostKernels kernels;
  Random random(48);
  const Texts texts{"s + slope[h] * (k - p) - 0.01 * hk where slope: fp32[head]", "k <= p + h and q % 3 != h"};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Drawn drawn = random_problem(random, Kind::dense, 60, 300);
    drawn.problem.window_left = drawn.problem.window_right = -1;
    drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
    ExpressedCall call(drawn.problem, {}, texts, seed);
    Variant packed = choose_own(call.problem(), h200).variant;
    packed.gqa_ratio = 4;
    packed.pack_gqa = 1;
    REQUIRE(check(packed).empty());
    call.check_prefill(kernels[packed], seed);
  }
}

TEST_CASE("weights that expressions made are dropped as others are") {
  HostKernels kernels;
  Random random(50);
  const Texts texts{"s + slope[b, h] * (k - p) where slope: fp32[batch, head]", "k <= p + h and (p - k) % 200 < 90"};
  std::uint64_t seed = 0;
  for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
    for (const Device& device : {emulator::device(), h200}) {
      ++seed;
      Drawn drawn = random_problem(random, kind, 150, 400);
      drawn.problem.dropout = true;
      ExpressedCall call(drawn.problem, drawn.sequences, texts, seed);
      const OwnChoice own = choose_own(call.problem(), device);
      REQUIRE(own.refusals.empty());
      REQUIRE(own.variant.dropout == 1);
      call.check_prefill(kernels[own.variant], seed);
    }
  }
}

TEST_CASE("sinks are in the softmax of every row, one that sees nothing too, once however its keys are divided") {
  HostKernels kernels;
  Random random(51);
  const std::array<Texts, 3> texts{{{"", "", true},
                                    {"s + slope[h] * (k - p) where slope: fp32[head]", "", true},
                                    {"", "k % 97 < 80 and p - k < 300 + h", true}}};
  std::uint64_t seed = 0;
  for (const Texts& one : texts) {
    for (const Kind kind : {Kind::dense, Kind::ragged, Kind::paged}) {
      for (const Device& device : {emulator::device(), h200}) {
        ++seed;
        Drawn drawn = random_problem(random, kind, 150, 400);
        drawn.problem.dropout = kind == Kind::dense && one.mask.empty();
        ExpressedCall call(drawn.problem, drawn.sequences, one, seed);
        const OwnChoice own = choose_own(call.problem(), device);
        REQUIRE(own.refusals.empty());
        REQUIRE(own.variant.sink == 1);
        call.check_prefill(kernels[own.variant], seed);
      }
    }
    for (int splits = 0; splits <= 3; ++splits) {
      ++seed;
      Drawn drawn = random_problem(random, Kind::paged, 4, 700);
      drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
      drawn.sequences.seqused_k[0] = splits == 2 ? 0 : drawn.sequences.seqused_k[0];
      ExpressedCall call(drawn.problem, drawn.sequences, one, seed);
      call.check_decode(kernels, emulator::device(), splits, seed);
      if (splits == 0) continue;
      call.check_decode(kernels, h200, splits, seed, [&](Variant& variant) {
        variant.cluster = 1;
        variant.interleave = splits % 2;
      });
      call.check_decode(kernels, h200, splits, seed, [](Variant& variant) {
        variant.interleave = 1;
        variant.gqa_ratio = 4;
      });
    }
  }
}

TEST_CASE("packed rows have the sinks of their own heads") {
  HostKernels kernels;
  Random random(52);
  Drawn drawn = random_problem(random, Kind::dense, 60, 300);
  drawn.problem.window_left = drawn.problem.window_right = -1;
  drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
  ExpressedCall call(drawn.problem, {}, {"", "", true}, 3);
  Variant packed = choose_own(call.problem(), h200).variant;
  packed.gqa_ratio = 4;
  packed.pack_gqa = 1;
  REQUIRE(check(packed).empty());
  call.check_prefill(kernels[packed], 3);
}

TEST_CASE("decode's schedules and fixed sizes change nothing about where a score stands") {
  HostKernels kernels;
  Random random(49);
  const Texts texts{"s + slope[h] * (k - p) - 0.01 * hk where slope: fp32[head]", "k % 97 < 80 and p - k < 300 + h"};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Drawn drawn = random_problem(random, Kind::paged, 3, 700);
    drawn.problem.heads_q = 4 * drawn.problem.heads_kv;
    const int splits = 1 + static_cast<int>(seed % 3);
    ExpressedCall call(drawn.problem, drawn.sequences, texts, seed);
    call.check_decode(kernels, h200, splits, seed, [&](Variant& variant) {
      variant.cluster = 1;
      variant.interleave = static_cast<int>(seed % 2);
    });
    call.check_decode(kernels, h200, splits, seed, [](Variant& variant) {
      variant.interleave = 1;
      variant.gqa_ratio = 4;
    });
  }
}

TEST_CASE("blocks that belong to other documents are not read, whichever kernel is told so") {
  HostKernels kernels;
  const Texts texts{"", "document[b, p] == document[b, k] and k <= p where document: int32[batch, position]"};
  // Two documents: the first has 256 keys, and queries are all of the second.
  const Problem problem{.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 90, .seqlen_k = 700, .head_dim = 64};
  for (const Device& device : {emulator::device(), h200}) {
    ExpressedCall call(problem, {}, texts, 5);
    call.set_array("document", [](int i) { return i % 700 < 256 ? 3 : 4; });
    call.tell_blocks(kernels);
    call.poison_keys(0, 256);
    Variant variant = choose_own(call.problem(), device).variant;
    call.check_prefill(kernels[variant], 5);
    if (!family_of(variant).tensor_maps) continue;
    variant.pack_gqa = 1;
    variant.gqa_ratio = 2;
    call.check_prefill(kernels[variant], 6);
  }
}

TEST_CASE("words of a mask's blocks are as many as its tiles, of heads where it depends on them") {
  Problem problem{.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 300, .seqlen_k = 5000, .head_dim = 64};
  problem.expressions = numbers_of({"", "flag[h, k // 1000] <= p where flag: int32[head, 5]"});
  const Variant variant = choose_own(problem, h200).variant;
  const MaskBlocksPlan planned = plan_mask_blocks(variant, problem);
  CHECK(planned.heads == 2);
  CHECK(planned.tile_words == (5000 / variant.B_c + 32) / 32);
  CHECK(planned.bytes() == static_cast<std::size_t>(planned.tiles) * planned.tile_words * 2 * 8);
  problem.expressions = numbers_of({"", "flag[k // 1000] <= p where flag: int32[5]"});
  CHECK(plan_mask_blocks(variant, problem).heads == 1);
  problem.expressions = numbers_of({"", "k <= p"});
  CHECK(plan_mask_blocks(variant, problem).bytes() == 0);
}

TEST_CASE("blocks that a mask hides from all rows of a tile are not read") {
  HostKernels kernels;
  const Texts texts{"", "k < 16 or p - k < 100"};
  Problem problem{.batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 60, .seqlen_k = 700, .head_dim = 64};
  for (const Device& device : {emulator::device(), h200}) {
    ExpressedCall call(problem, {}, texts, 5);
    call.poison_keys(128, 512);
    call.check_prefill(kernels[choose_own(call.problem(), device).variant], 5);
  }
  problem.paged = true;  // a page is as a sequence here
  problem.page_size = 700;
  problem.pages = 2;
  problem.table_width = 1;
  Sequences sequences;
  sequences.seqused_k = {700, 700};
  sequences.block_table = {0, 1};
  ExpressedCall paged(problem, sequences, texts, 5);
  paged.poison_keys(128, 512);
  paged.check_prefill(kernels[choose_own(paged.problem(), emulator::device()).variant], 5);
  problem.seqlen_q = 3;
  for (const int splits : {0, 1}) {  // more parts might have dead blocks alone, of which one stays
    ExpressedCall call(problem, sequences, texts, 6);
    call.poison_keys(128, 512);
    call.check_decode(kernels, emulator::device(), splits, 6);
  }
}

TEST_CASE("random expressions agree with the reference in prefill, dense, ragged and paged, and in decode") {
  HostKernels kernels;
  Random random(46);
  for (int i = 0; i < expression_count(); ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + 1;
    CAPTURE(i);
    const Texts texts = random_texts(random);
    CAPTURE(texts.score);
    CAPTURE(texts.mask);
    switch (i % 4) {
      case 0:
        try_prefill(kernels, random, emulator::device(), one_of(random, std::array{Kind::dense, Kind::ragged}), texts,
                    seed);
        break;
      case 1:
        try_prefill(kernels, random, h200, one_of(random, std::array{Kind::dense, Kind::ragged}), texts, seed);
        break;
      case 2:
        try_prefill(kernels, random, emulator::device(), Kind::paged, texts, seed);
        break;
      default: {
        const Drawn drawn = random_problem(random, Kind::paged, 4, 400);
        ExpressedCall call(drawn.problem, drawn.sequences, texts, seed);
        call.check_decode(kernels, i % 8 == 3 ? emulator::device() : h200, up_to(random, 3), seed);
      }
    }
  }
}

}  // namespace attune::emulator_tests
