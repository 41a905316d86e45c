#include "tests/harness/expressed_image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "generator/expression/pool.hpp"
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
  const std::size_t queries = query_rows(problem_) * problem_.head_dim;
  q_ = places_.add(queries * sizeof(std::uint16_t));
  k_ = places_.add(key_elements() * sizeof(std::uint16_t));
  v_ = places_.add(key_elements() * sizeof(std::uint16_t));
  o_ = places_.add(output_elements(problem_) * sizeof(std::uint16_t));
  lse_ = places_.add(query_rows(problem_) * sizeof(float));
  stored_ = StoredArrays(problem_, seed, places_);
  sink_ = places_.add(stored_.values().sink);
  const std::array arrays{
      std::pair{&cu_seqlens_q_, &sequences_.cu_seqlens_q}, std::pair{&cu_seqlens_k_, &sequences_.cu_seqlens_k},
      std::pair{&seqused_k_, &sequences_.seqused_k}, std::pair{&block_table_, &sequences_.block_table}};
  for (const auto& [at, values] : arrays) *at = places_.add(*values);
  memory_ = places_.memory();
  draw(q_, queries, 3 * seed);
  draw(k_, key_elements(), 3 * seed + 1);
  draw(v_, key_elements(), 3 * seed + 2);
  stored_.put(memory_);
  put(memory_, sink_, stored_.values().sink);
  for (const auto& [at, values] : arrays) put(memory_, *at, *values);
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
  args.cu_seqlens_q = array_at(memory, cu_seqlens_q_, sequences_.cu_seqlens_q);
  args.cu_seqlens_k = array_at(memory, cu_seqlens_k_, sequences_.cu_seqlens_k);
  args.seqused_k = array_at(memory, seqused_k_, sequences_.seqused_k);
  return args;
}

attune_decode_args ExpressedImage::decode_args(void* memory, int splits) const {
  attune_decode_args args = arguments_of(decode_problem(splits));
  place(args, memory);
  args.seqlens_k = array_at(memory, seqused_k_, sequences_.seqused_k);
  return args;
}

void ExpressedImage::set_array(std::string_view name, const std::function<int(int)>& value) {
  stored_.set(name, value);
  stored_.put(memory_);
  stored_.put(whole_);
  expected_.reset();
}

void ExpressedImage::poison_keys(int first, int end) {
  const int row = problem_.heads_kv * problem_.head_dim;
  for (const std::size_t tensor : {k_, v_}) {
    for (int batch = 0; batch < problem_.batch; ++batch) {
      std::uint16_t* const rows = at<std::uint16_t>(memory_.data(), tensor) + batch * problem_.seqlen_k * row;
      std::fill(rows + first * row, rows + end * row, poison);
    }
  }
}

std::string ExpressedImage::wrong(Memory after) const {
  const auto o = take<std::uint16_t>(after, o_, output_elements(problem_));
  const auto lse = take<float>(after, lse_, query_rows(problem_));
  const Comparison found = compare(problem_, o.data(), lse.data(), expected().reference, expected().naive);
  if (found.unwritten != 0) return fmt::format("{} elements are not written", found.unwritten);
  if (!found.agrees) {
    return fmt::format("O is off by {} where {} is allowed, LSE by {} where {} is", found.max_error, found.tolerance,
                       found.lse_error, found.lse_tolerance);
  }
  return after == memory_ ? "" : "something else than O and LSE was written";
}

std::size_t ExpressedImage::key_elements() const {
  return static_cast<std::size_t>(problem_.stored_key_sequences()) * problem_.stored_keys() * problem_.heads_kv *
         problem_.head_dim;
}

void ExpressedImage::draw(std::size_t place, std::size_t elements, std::uint64_t seed) {
  draw_values(problem_.dtype, seed, std::span(at<std::uint16_t>(memory_.data(), place), elements));
}

template <class Args>
void ExpressedImage::place(Args& args, void* memory) const {
  const auto tensor = [&](std::size_t place, int seqlen, int heads) {
    const HostTensor strides = contiguous(nullptr, seqlen, heads, problem_.head_dim);
    return attune_tensor{at<void>(memory, place), strides.stride_batch, strides.stride_seq, strides.stride_head};
  };
  args.q = tensor(q_, problem_.stored_rows(), problem_.heads_q);
  args.o = tensor(o_, problem_.stored_rows(), problem_.heads_q);
  args.k = tensor(k_, problem_.stored_keys(), problem_.heads_kv);
  args.v = tensor(v_, problem_.stored_keys(), problem_.heads_kv);
  args.lse = at<float>(memory, lse_);
  args.block_table = array_at(memory, block_table_, sequences_.block_table);
  args.score = texts_.score.empty() ? nullptr : texts_.score.c_str();
  args.mask = texts_.mask.empty() ? nullptr : texts_.mask.c_str();
  arrays_ = stored_.named(memory);
  args.params = arrays_.data();
  args.param_count = static_cast<std::int32_t>(arrays_.size());
  args.sink = texts_.sink ? at<float>(memory, sink_) : nullptr;
}

const ExpressedOutput& ExpressedImage::expected() const {
  if (!expected_) {
    const auto operand = [&](std::size_t place, int seqlen, int heads) {
      return contiguous(whole_.data() + place / sizeof(std::uint16_t), seqlen, heads, problem_.head_dim);
    };
    expected_ = expressed_attention(problem_, sequences_, stored_.values(),
                                    {.q = operand(q_, problem_.stored_rows(), problem_.heads_q),
                                     .k = operand(k_, problem_.stored_keys(), problem_.heads_kv),
                                     .v = operand(v_, problem_.stored_keys(), problem_.heads_kv)},
                                    arguments_of(problem_).softmax_scale);
  }
  return *expected_;
}

}  // namespace attune::testing
