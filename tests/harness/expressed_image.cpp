#include "tests/harness/expressed_image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "generator/expression/pool.hpp"
#include "runtime/base/storage.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/call/window.hpp"
#include "runtime/lab/random_values.hpp"
#include "tests/harness/random_choice.hpp"
#include "tests/harness/random_expression.hpp"

namespace attune::testing {

using expression::Use;

CallExpressions ExpressedTexts::numbers() const {
  CallExpressions result;
  if (!score.empty()) result.score = expression::number_of_text(score, Use::score).value();
  if (!mask.empty()) result.mask = expression::number_of_text(mask, Use::mask).value();
  result.sink = sink ? 1 : 0;
  return result;
}

namespace {

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

}  // namespace

ExpressedCase random_expressed_case(Random& random, KeyStorage storage, int most_queries, int most_keys) {
  ExpressedCase drawn;
  Problem& problem = drawn.problem;
  problem.dtype = one_of(random, std::array{Dtype::fp16, Dtype::bf16});
  problem.head_dim = 64;
  problem.batch = 1 + up_to(random, 1);
  problem.heads_kv = 1 + up_to(random, 1);
  problem.heads_q = problem.heads_kv * one_of(random, std::array{1, 2, 4});
  problem.seqlen_q = 1 + up_to(random, most_queries - 1);
  problem.seqlen_k = 1 + up_to(random, most_keys - 1);
  problem.causal = once_in(random, 3);
  if (once_in(random, 4)) set_window(problem, up_to(random, 80), up_to(random, 40));
  if (once_in(random, 4)) problem.softcap = 5;
  if (storage == KeyStorage::ragged) {
    problem.ragged = true;
    drawn.sequences.cu_seqlens_q = summed(random_lengths(random, problem.batch, problem.seqlen_q));
    drawn.sequences.cu_seqlens_k = summed(random_lengths(random, problem.batch, problem.seqlen_k));
    problem.total_q = drawn.sequences.cu_seqlens_q.back();
    problem.total_k = drawn.sequences.cu_seqlens_k.back();
  } else if (storage == KeyStorage::paged) {
    make_paged(random, problem, drawn.sequences);
  }
  return drawn;
}

ExpressedTexts random_texts(Random& random) {
  ExpressedTexts texts;
  const auto which = random.below(4);
  if (which != 0) texts.mask = random_expression(random, Use::mask);
  if (which != 1) texts.score = random_expression(random, Use::score);
  return texts;
}

ExpressedImage::ExpressedImage(const ExpressedCase& one, std::uint64_t seed)
    : problem_(one.problem), sequences_(one.sequences), texts_(one.texts) {
  problem_.expressions = texts_.numbers();
  const auto placed = [&](int batch, int seqlen, int heads) {
    return PlacedTensor::laid_out(Layout::bshd, batch, seqlen, heads, problem_.head_dim).in(places_);
  };
  q_ = placed(problem_.stored_sequences(), problem_.stored_rows(), problem_.heads_q);
  k_ = placed(problem_.stored_key_sequences(), problem_.stored_keys(), problem_.heads_kv);
  v_ = placed(problem_.stored_key_sequences(), problem_.stored_keys(), problem_.heads_kv);
  o_ = placed(problem_.stored_sequences(), problem_.stored_rows(), problem_.heads_q);
  lse_ = places_.add(query_rows(problem_) * sizeof(float));
  stored_ = StoredArrays(problem_, seed, places_);
  for (const float logit : stored_.values().sink) short_sink_.push_back(to_storage(problem_.dtype, logit));
  sink_ = texts_.sink_like_q ? places_.add(short_sink_) : places_.add(stored_.values().sink);
  placed_ = PlacedSequences(sequences_, places_);
  memory_ = places_.memory();
  for (std::uint64_t i = 0; const PlacedTensor& tensor : {q_, k_, v_}) {
    tensor.fill(memory_, random_values(problem_.dtype, tensor.elements(), 3 * seed + i++));
  }
  stored_.put(memory_);
  if (texts_.sink_like_q) {
    put(memory_, sink_, short_sink_);
  } else {
    put(memory_, sink_, stored_.values().sink);
  }
  placed_.put(memory_, sequences_);
  whole_ = memory_;
}

Problem ExpressedImage::problem() const {
  Problem result = problem_;
  take_limits(result);
  set_window(result, result.window_left, result.window_right);
  return result;
}

DecodeProblem ExpressedImage::decode_problem(int splits) const {
  return {.dtype = problem_.dtype,
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
}

attune_prefill_args ExpressedImage::prefill_args(void* memory) const {
  attune_prefill_args args = arguments_of(problem_);
  place(args, memory);
  return args;
}

attune_decode_args ExpressedImage::decode_args(void* memory, int splits) const {
  attune_decode_args args = arguments_of(decode_problem(splits));
  place(args, memory);
  return args;
}

void ExpressedImage::set_array(std::string_view name, const std::function<int(int)>& value) {
  stored_.set(name, value);
  stored_.put(memory_);
  stored_.put(whole_);
  expected_.reset();
}

void ExpressedImage::poison_keys(int first, int end) {
  for (const PlacedTensor& tensor : {k_, v_}) {
    for (int sequence = 0; sequence < problem_.batch; ++sequence) tensor.poison_rows(memory_, first, end, sequence);
  }
}

std::string ExpressedImage::wrong(Memory after) const {
  const auto o = take<std::uint16_t>(after, 2 * o_.first, o_.elements());
  const auto lse = take<float>(after, lse_, query_rows(problem_));
  const Comparison found = compare(problem_, o.data(), lse.data(), expected().reference, expected().naive);
  if (found.unwritten != 0) return fmt::format("{} elements are not written", found.unwritten);
  if (!found.agrees) {
    return fmt::format("O is off by {} where {} is allowed, LSE by {} where {} is", found.max_error, found.tolerance,
                       found.lse_error, found.lse_tolerance);
  }
  return after == memory_ ? "" : "something else than O and LSE was written";
}

template <class Args>
void ExpressedImage::place(Args& args, void* memory) const {
  args.q = q_.at(memory);
  args.o = o_.at(memory);
  args.k = k_.at(memory);
  args.v = v_.at(memory);
  args.lse = at<float>(memory, lse_);
  placed_.say(args, memory, sequences_);
  args.score = texts_.score.empty() ? nullptr : texts_.score.c_str();
  args.mask = texts_.mask.empty() ? nullptr : texts_.mask.c_str();
  arrays_ = stored_.named(memory);
  args.params = arrays_.data();
  args.param_count = static_cast<std::int32_t>(arrays_.size());
  args.sink = texts_.sink ? at<void>(memory, sink_) : nullptr;
  args.sink_like_q = texts_.sink_like_q ? 1 : 0;
}

const ExpressedOutput& ExpressedImage::expected() const {
  if (!expected_) {
    expected_ = expressed_attention(problem_, sequences_, stored_.values(),
                                    {.q = q_.at(whole_), .k = k_.at(whole_), .v = v_.at(whole_)},
                                    arguments_of(problem_).softmax_scale);
  }
  return *expected_;
}

}  // namespace attune::testing
