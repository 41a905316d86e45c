#include "tests/harness/backward_image.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

Problem BackwardImage::whole() const {
  Problem problem = case_.prefill.problem;
  problem.head_dim_v = case_.head_dim_v;
  problem.expressions = case_.expressions();
  return problem;
}

BackwardImage::Placement BackwardImage::place(int seqlen, int heads, int head_dim, int gap) {
  const Problem& problem = case_.prefill.problem;
  Placement at{.batch = problem.stored_sequences(), .seqlen = seqlen, .heads = heads, .head_dim = head_dim};
  set_strides(at, case_.prefill.layout, seqlen, heads, head_dim, gap);
  at.first = places_.add(static_cast<std::size_t>(at.stride_batch) * at.batch * sizeof(std::uint16_t)) / 2;
  return at;
}

/// Three tensors side by side in one.
void BackwardImage::place_packed(Tensor first, int columns_v) {
  const Problem& problem = case_.prefill.problem;
  REQUIRE(problem.stored_rows() == problem.stored_keys());
  const int Q_row = problem.heads_q * problem.head_dim;
  const int K_row = problem.heads_kv * problem.head_dim;
  Placement all = place(problem.stored_rows(), 1, Q_row + K_row + problem.heads_kv * columns_v, 0);
  all.stride_head = all.head_dim = problem.head_dim;
  all.heads = problem.heads_q;
  Placement keys = all;
  keys.heads = problem.heads_kv;
  keys.first += static_cast<std::size_t>(Q_row);
  Placement values = keys;
  values.first += static_cast<std::size_t>(K_row);
  values.stride_head = values.head_dim = columns_v;
  std::ranges::copy(std::array{all, keys, values}, at_.begin() + first);
}

void BackwardImage::place_tensors() {
  const Problem& problem = case_.prefill.problem;
  const int dim = problem.head_dim;
  const int dim_v = case_.problem().head_dim_of_v();
  const int rows = problem.stored_rows();
  const int keys = problem.stored_keys();
  if (case_.prefill.layout == Layout::packed) {
    place_packed(q, dim_v);
    place_packed(dq, dim_v);
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

template <class Function>
void BackwardImage::for_each_element(const Placement& at, const Function& visit) {
  std::size_t index = 0;
  for (int b = 0; b < at.batch; ++b) {
    for (int s = 0; s < at.seqlen; ++s) {
      for (int h = 0; h < at.heads; ++h) {
        for (int d = 0; d < at.head_dim; ++d) visit(at.of(b, s, h) + static_cast<std::size_t>(d), index++);
      }
    }
  }
}

void BackwardImage::fill(Tensor tensor, const std::vector<std::uint16_t>& values) {
  for_each_element(at_[tensor], [&](std::size_t to, std::size_t i) { memory_[to] = values[i]; });
}

BackwardImage::BackwardImage(const BackwardCase& one, std::uint64_t seed) : case_(one) {
  const Problem& problem = case_.prefill.problem;
  const Sequences& sequences = case_.prefill.sequences;
  place_tensors();
  const std::size_t rows = query_rows(problem);
  lse_ = places_.add(rows * sizeof(float));
  dlse_ = places_.add(rows * sizeof(float));
  cu_seqlens_q_ = places_.add(sequences.cu_seqlens_q);
  cu_seqlens_k_ = places_.add(sequences.cu_seqlens_k);
  seqused_q_ = places_.add(sequences.seqused_q);
  seqused_k_ = places_.add(sequences.seqused_k);
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
  put(memory_, cu_seqlens_q_, sequences.cu_seqlens_q);
  put(memory_, cu_seqlens_k_, sequences.cu_seqlens_k);
  put(memory_, seqused_q_, sequences.seqused_q);
  put(memory_, seqused_k_, sequences.seqused_k);
  for (const Tensor tensor : {q, k, v, dout}) {
    fill(tensor, random_values(problem.dtype, at_[tensor].elements(), 5 * seed + tensor));
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
          ? expressed_attention(problem, sequences, arrays_.values(), {.q = host(q), .k = host(k), .v = host(v)},
                                scale())
                .reference
          : attention_of(reference_attention, problem, sequences, host(q), host(k), host(v), scale());
  std::vector<std::uint16_t> out;
  for (const double x : forward.o) out.push_back(to_storage(problem.dtype, static_cast<float>(x)));
  fill(o, out);
  put(memory_, lse_, std::vector<float>(forward.lse.begin(), forward.lse.end()));
  std::vector<float> dlse = dlse_values_;
  for (std::size_t i = 0; i < dlse.size(); ++i) {
    if (!std::isfinite(forward.lse[i])) dlse[i] = std::numeric_limits<float>::quiet_NaN();
  }
  put(memory_, dlse_, dlse);
}

void BackwardImage::poison_rows(Tensor tensor, int first, int end) {
  for (int row = first; row < end; ++row) {
    for (int head = 0; head < at_[tensor].heads; ++head) {
      const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(at_[tensor].of(0, row, head));
      std::fill(from, from + at_[tensor].head_dim, poison);
    }
  }
}

/// Of a ragged batch what no sequence has or uses, and all of a poisoned one, whose gradients are then anything.
void BackwardImage::poison_unused_rows() {
  const Problem& problem = case_.prefill.problem;
  const Sequences& sequences = case_.prefill.sequences;
  if (!problem.ragged) return;
  const auto poison_all = [&](std::initializer_list<Tensor> of, int first, int end) {
    for (const Tensor tensor : of) poison_rows(tensor, first, end);
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
    const auto forget = [](std::vector<double>& gradient, const Placement& at, int from, int to) {
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

HostTensor BackwardImage::host(Tensor tensor) const {
  const Placement& at = at_[tensor];
  return {memory_.data() + at.first, at.stride_batch, at.stride_seq, at.stride_head};
}

GradientInputs BackwardImage::inputs() const {
  return {.q = host(q),
          .k = host(k),
          .v = host(v),
          .dout = host(dout),
          .dlse = case_.has_dlse ? std::span<const float>(dlse_values_) : std::span<const float>(),
          .scale = static_cast<float>(scale()),
          .dropout = usual_mask(case_.prefill.problem.dropout),
          .values = &arrays_.values()};
}

attune_backward_args BackwardImage::args(void* memory) const {
  const BackwardProblem problem = case_.problem();
  const Sequences& sequences = case_.prefill.sequences;
  const auto tensor = [&](Tensor of) {
    const Placement& placed = at_[of];
    return attune_tensor{static_cast<std::uint16_t*>(memory) + placed.first, placed.stride_batch, placed.stride_seq,
                         placed.stride_head};
  };
  attune_backward_args args = arguments_of(problem);
  args.q = tensor(q);
  args.k = tensor(k);
  args.v = tensor(v);
  args.o = tensor(o);
  args.dout = tensor(dout);
  args.dq = tensor(dq);
  args.dk = tensor(dk);
  args.dv = tensor(dv);
  args.lse = at<const float>(memory, lse_);
  args.dlse = case_.has_dlse ? at<const float>(memory, dlse_) : nullptr;
  args.workspace = at<void>(memory, workspace_);
  args.workspace_bytes = workspace_bytes_;
  args.head_dim_v = problem.head_dim_v;
  args.softmax_scale = static_cast<float>(scale());
  args.cu_seqlens_q = array_at(memory, cu_seqlens_q_, sequences.cu_seqlens_q);
  args.cu_seqlens_k = array_at(memory, cu_seqlens_k_, sequences.cu_seqlens_k);
  args.seqused_q = array_at(memory, seqused_q_, sequences.seqused_q);
  args.seqused_k = array_at(memory, seqused_k_, sequences.seqused_k);
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
    for_each_element(at_[dq + i], [&](std::size_t from, std::size_t) { result[i].push_back(after[from]); });
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
    // What the reference has no value for must be as it was.
    for_each_element(at_[dq + i], [&](std::size_t to, std::size_t element) {
      if (!std::isnan((*references[i])[element])) after[to] = memory_[to];
    });
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
