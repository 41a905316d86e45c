#include "tests/harness/backward_image.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "generator/expression/pool.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/call/window.hpp"
#include "runtime/lab/arguments.hpp"
#include "runtime/lab/random_values.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::testing {
namespace {

int number_of(const std::string& text, expression::Use use) {
  return text.empty() ? 0 : expression::number_of_text(text, use).value();
}

}  // namespace

BackwardProblem BackwardCase::problem() const {
  const Problem& of = prefill.problem;
  BackwardProblem result{.dtype = of.dtype,
                         .batch = of.batch,
                         .heads_q = of.heads_q,
                         .heads_kv = of.heads_kv,
                         .seqlen_q = of.seqlen_q,
                         .seqlen_k = of.seqlen_k,
                         .head_dim = of.head_dim,
                         .head_dim_v = head_dim_v,
                         .causal = of.causal,
                         .window_left = of.window_left,
                         .window_right = of.window_right,
                         .softcap = of.softcap,
                         .ragged = of.ragged,
                         .total_q = of.total_q,
                         .total_k = of.total_k,
                         .dropout = of.dropout,
                         .expressions = expressions(),
                         .any_order = any_order};
  take_limits(result);
  set_window(result, result.window_left, result.window_right);
  return result;
}

CallExpressions BackwardCase::expressions() const {
  return {.score = number_of(score, expression::Use::score), .mask = number_of(mask, expression::Use::mask)};
}

std::string BackwardCase::text() const {
  return fmt::format("{}, {}{}{}{}{}", problem().text(), name_of(prefill.layout), has_dlse ? ", dlse" : "",
                     prefill.poisoned >= 0 ? fmt::format(", sequence {} poisoned", prefill.poisoned) : "",
                     prefill.sequences.seqused_q.empty() ? "" : ", seqused_q",
                     prefill.sequences.seqused_k.empty() ? "" : ", seqused_k");
}

BackwardCase random_backward_case(Random& random, int most_rows) {
  BackwardCase one{.prefill = random_prefill_case(random, most_rows)};
  int& head_dim = one.prefill.problem.head_dim;
  head_dim = (head_dim + 7) / 8 * 8;
  one.has_dlse = random.below(2) == 0;
  one.any_order = random.below(2) == 0;
  if (one.prefill.layout != Layout::packed && random.below(4) == 0) {
    one.head_dim_v = one_of(random, std::array{16, 64, 128, 200});
    if (one.head_dim_v == one.prefill.problem.head_dim) one.head_dim_v = 0;
  }
  return one;
}

BackwardCase random_expressed_backward_case(Random& random, int most_rows) {
  BackwardCase one = random_backward_case(random, most_rows);
  one.prefill.poisoned = -1;
  const auto which = random.below(4);
  if (which != 0) one.mask = random_expression(random, expression::Use::mask);
  if (which != 1) {
    one.score = random_additive_score(random);
    one.prefill.problem.softcap = 0;
  }
  return one;
}

BackwardCase far_apart_case(int head_dim, int head_dim_v, int heads_q, int heads_kv) {
  BackwardCase one;
  one.head_dim_v = head_dim_v;
  one.prefill.layout = Layout::gaps;
  one.prefill.problem = {.batch = 3,
                         .heads_q = heads_q,
                         .heads_kv = heads_kv,
                         .seqlen_q = 40,
                         .seqlen_k = 60,
                         .head_dim = head_dim,
                         .ragged = true,
                         .total_q = 500,  // more than thread blocks for the longest sequence have at once
                         .total_k = 900};
  one.prefill.sequences.cu_seqlens_q = {3, 33, 33, 73};
  one.prefill.sequences.cu_seqlens_k = {7, 57, 67, 127};
  one.prefill.sequences.seqused_q = {30, 0, 25};
  one.prefill.sequences.seqused_k = {41, 10, 60};
  return one;
}

Problem BackwardImage::whole() const {
  Problem problem = case_.prefill.problem;
  problem.head_dim_v = case_.head_dim_v;
  problem.expressions = case_.expressions();
  return problem;
}

PlacedTensor BackwardImage::place(int seqlen, int heads, int head_dim, int gap) {
  const PrefillCase& prefill = case_.prefill;
  return PlacedTensor::laid_out(prefill.layout, prefill.problem.stored_sequences(), seqlen, heads, head_dim, gap)
      .in(places_);
}

void BackwardImage::place_tensors() {
  const Problem& problem = case_.prefill.problem;
  const int dim = problem.head_dim;
  const int dim_v = case_.problem().head_dim_of_v();
  const int rows = problem.stored_rows();
  const int keys = problem.stored_keys();
  if (case_.prefill.layout == Layout::packed) {
    REQUIRE(rows == keys);
    std::tie(at_[q], at_[k], at_[v]) = place_packed(places_, whole());
    std::tie(at_[dq], at_[dk], at_[dv]) = place_packed(places_, whole());
  } else {
    at_[q] = place(rows, problem.heads_q, dim, 8);
    at_[k] = place(keys, problem.heads_kv, dim, 8);
    at_[v] = place(keys, problem.heads_kv, dim_v, 16);
    at_[dq] = place(rows, problem.heads_q, dim, 16);
    at_[dk] = place(keys, problem.heads_kv, dim, 24);
    at_[dv] = place(keys, problem.heads_kv, dim_v, 8);
  }
  at_[o] = place(rows, problem.heads_q, dim_v, 8);
  at_[dout] = place(rows, problem.heads_q, dim_v, 24);
}

BackwardImage::BackwardImage(const BackwardCase& one, std::uint64_t seed) : case_(one) {
  const Problem& problem = case_.prefill.problem;
  const Sequences& sequences = case_.prefill.sequences;
  place_tensors();
  const std::size_t rows = query_rows(problem);
  lse_ = places_.add(rows * sizeof(float));
  dlse_ = places_.add(rows * sizeof(float));
  sequences_ = PlacedSequences(sequences, places_);
  // LSE and D, sums of the largest head_dim, and of every 16 rows a word.
  constexpr std::size_t row_bytes = 8 + 4 * 256 + 8 / 8;
  workspace_bytes_ = static_cast<std::size_t>(case_.problem().padded_rows()) * problem.heads_q * row_bytes;
  // Of heads in parts two sums of the largest head_dim, and of every 64 keys the words of 8 warps.
  constexpr std::size_t key_bytes = 2 * 4 * 256 + 8 * 8 / 64;
  constexpr std::size_t most_keys = 128;  // of a tile
  const std::size_t key_tiles = (case_.problem().longest_keys() + most_keys - 1) / most_keys;
  workspace_bytes_ += static_cast<std::size_t>(problem.batch) * problem.heads_kv * key_tiles * most_keys * key_bytes;
  workspace_ = places_.add(workspace_bytes_);
  arrays_ = StoredArrays(whole(), seed, places_);
  memory_ = places_.memory();
  arrays_.put(memory_);
  sequences_.put(memory_, sequences);
  for (const Tensor tensor : {q, k, v, dout}) {
    at_[tensor].fill(memory_, random_values(problem.dtype, at_[tensor].elements(), 5 * seed + tensor));
  }
  Random random(seed);
  for (std::size_t i = 0; i < rows; ++i) dlse_values_.push_back(static_cast<float>(random.uniform() * 2 - 1));
  put_forward();
  reference_ = gradients_of(reference_gradients, whole(), sequences, inputs());
  naive_ = gradients_of(naive_gradients, whole(), sequences, inputs());
  poison_unused_rows();
}

/// O and LSE of the reference; NaN in rows that no sequence has.
void BackwardImage::put_forward() {
  const Problem problem = whole();
  const Sequences& sequences = case_.prefill.sequences;
  const ReferenceOutput forward =
      problem.expressions.any()
          ? expressed_attention(problem, sequences, arrays_.values(),
                                {.q = at_[q].at(memory_), .k = at_[k].at(memory_), .v = at_[v].at(memory_)}, scale())
                .reference
          : attention_of(reference_attention, problem, sequences, at_[q].at(memory_), at_[k].at(memory_),
                         at_[v].at(memory_), scale());
  std::vector<std::uint16_t> out;
  for (const double x : forward.o) out.push_back(to_storage(problem.dtype, static_cast<float>(x)));
  at_[o].fill(memory_, out);
  put(memory_, lse_, std::vector<float>(forward.lse.begin(), forward.lse.end()));
  std::vector<float> dlse = dlse_values_;
  for (std::size_t i = 0; i < dlse.size(); ++i) {
    if (!std::isfinite(forward.lse[i])) dlse[i] = std::numeric_limits<float>::quiet_NaN();
  }
  put(memory_, dlse_, dlse);
}

/// Of a ragged batch what no sequence has or uses, and all of a poisoned one, whose gradients are then anything.
void BackwardImage::poison_unused_rows() {
  const Problem& problem = case_.prefill.problem;
  const Sequences& sequences = case_.prefill.sequences;
  if (!problem.ragged) return;
  const auto poison_all = [&](std::initializer_list<Tensor> of, int first, int end) {
    for (const Tensor tensor : of) at_[tensor].poison_rows(memory_, first, end);
  };
  int row = 0;
  int key = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem.batch); ++i) {
    const auto [first, end] = sequences.queries_of(i);
    const int first_key = sequences.cu_seqlens_k[i];
    int end_key = sequences.cu_seqlens_k[i + 1];
    if (!sequences.seqused_k.empty()) end_key = std::min(end_key, first_key + sequences.seqused_k[i]);
    poison_all({q, o, dout}, row, first);
    poison_all({k, v}, key, first_key);
    row = end;
    key = end_key;
    if (static_cast<int>(i) != case_.prefill.poisoned) continue;
    poison_all({q, o, dout}, first, end);
    poison_all({k, v}, first_key, end_key);
    const auto forget = [](std::vector<double>& gradient, const PlacedTensor& at, int from, int to) {
      const std::ptrdiff_t elements = static_cast<std::ptrdiff_t>(at.heads) * at.head_dim;
      // Infinite: of no size, but written.
      std::fill(gradient.begin() + from * elements, gradient.begin() + to * elements,
                std::numeric_limits<double>::infinity());
    };
    forget(reference_.dq, at_[dq], first, end);
    forget(reference_.dk, at_[dk], first_key, end_key);
    forget(reference_.dv, at_[dv], first_key, end_key);
  }
  poison_all({q, o, dout}, row, problem.total_q);
  poison_all({k, v}, key, problem.total_k);
}

double BackwardImage::scale() const { return usual_scale(case_.prefill.problem.head_dim) * case_.sharpness; }

GradientInputs BackwardImage::inputs() const {
  return {.q = at_[q].at(memory_),
          .k = at_[k].at(memory_),
          .v = at_[v].at(memory_),
          .dout = at_[dout].at(memory_),
          .dlse = case_.has_dlse ? std::span<const float>(dlse_values_) : std::span<const float>(),
          .scale = static_cast<float>(scale()),
          .dropout = usual_mask(case_.prefill.problem.dropout),
          .values = &arrays_.values()};
}

attune_backward_args BackwardImage::args(void* memory) const {
  const BackwardProblem problem = case_.problem();
  attune_backward_args args = arguments_of(problem);
  args.q = at_[q].at(memory);
  args.k = at_[k].at(memory);
  args.v = at_[v].at(memory);
  args.o = at_[o].at(memory);
  args.dout = at_[dout].at(memory);
  args.dq = at_[dq].at(memory);
  args.dk = at_[dk].at(memory);
  args.dv = at_[dv].at(memory);
  args.lse = at<const float>(memory, lse_);
  args.dlse = case_.has_dlse ? at<const float>(memory, dlse_) : nullptr;
  args.workspace = at<void>(memory, workspace_);
  args.workspace_bytes = workspace_bytes_;
  args.head_dim_v = problem.head_dim_v;
  args.softmax_scale = static_cast<float>(scale());
  sequences_.say(args, memory, case_.prefill.sequences);
  args.score = case_.score.empty() ? nullptr : case_.score.c_str();
  args.mask = case_.mask.empty() ? nullptr : case_.mask.c_str();
  named_arrays_ = arrays_.named(memory);
  args.params = named_arrays_.data();
  args.param_count = static_cast<std::int32_t>(named_arrays_.size());
  return args;
}

std::array<std::vector<std::uint16_t>, 3> BackwardImage::gradients(const Memory& after) const {
  std::array<std::vector<std::uint16_t>, 3> result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    at_[dq + i].for_each([&](std::size_t from, std::size_t) { result[i].push_back(after[from]); });
  }
  return result;
}

std::string BackwardImage::wrong(Memory after) const {
  std::string found;
  const std::array<std::vector<std::uint16_t>, 3> all = gradients(after);
  const std::array references{&reference_.dq, &reference_.dk, &reference_.dv};
  const std::array naives{&naive_.dq, &naive_.dk, &naive_.dv};
  constexpr std::array names{"dQ", "dK", "dV"};
  Gradients terms;
  const std::array magnitudes{&terms.dq, &terms.dk, &terms.dv};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto compare = [&] {
      return compare_gradient(case_.prefill.problem.dtype, all[i], *references[i], *naives[i], *magnitudes[i]);
    };
    GradientComparison comparison = compare();
    if (!comparison.agrees && terms.dq.empty()) {  // seldom, and they take as long as the reference
      terms = gradients_of(gradient_terms, whole(), case_.prefill.sequences, inputs());
      comparison = compare();
    }
    if (!comparison.agrees) {
      found += fmt::format("{} is off by {:.3g}, tolerance {:.3g}, {} unwritten; ", names[i], comparison.max_error,
                           comparison.tolerance, comparison.unwritten);
    }
    // Rows for which the reference has no value are cleared.
    bool cleared = true;
    at_[dq + i].for_each([&](std::size_t to, std::size_t element) {
      cleared = cleared && (!std::isnan((*references[i])[element]) || after[to] == 0);
      after[to] = memory_[to];
    });
    if (!cleared) found += fmt::format("{} has rows that no sequence uses and that are not zeros; ", names[i]);
  }
  const auto first = after.begin() + static_cast<std::ptrdiff_t>(workspace_ / 2);
  std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(workspace_ / 2), workspace_bytes_ / 2, first);
  if (after != memory_) found += "something else was written; ";
  return found;
}

void BackwardImage::check(const Memory& after) const {
  CAPTURE(case_.text());
  const std::string found = wrong(after);
  CHECK_MESSAGE(found.empty(), found);
}

}  // namespace attune::testing
