#include "tests/harness/decode_image.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/lab/random_values.hpp"
#include "tests/harness/check_outputs.hpp"
#include "tests/harness/random_choice.hpp"

namespace attune::testing {
namespace {

/// Tokens of a page; packed keys are one here.
int page_tokens(const DecodeProblem& problem) { return problem.packed_keys ? problem.total_k : problem.page_size; }

}  // namespace

int DecodeCase::length(int sequence) const {
  if (problem.packed_keys) return keys_before(sequence);
  const std::int64_t keys = std::int64_t{lengths[static_cast<std::size_t>(sequence)]} + problem.seqlen_new;
  return static_cast<int>(std::clamp<std::int64_t>(keys, 0, problem.max_seqlen_k));
}

int DecodeCase::keys_before(int sequence) const {
  const std::int32_t told = lengths[static_cast<std::size_t>(sequence)];
  if (!problem.packed_keys) return std::clamp(told, 0, problem.max_seqlen_k);
  const auto begin = cu_seqlens_k.begin() + sequence;
  const int most = std::min(begin[1] - begin[0], problem.max_seqlen_k);
  return has_lengths ? std::clamp(told, 0, most) : most;
}

int DecodeCase::first_key(int sequence) const {
  return leftpad.empty() ? 0 : std::clamp(leftpad[static_cast<std::size_t>(sequence)], 0, length(sequence));
}

std::pair<int, int> DecodeCase::queries_of(int sequence) const {
  if (!problem.ragged) return {sequence * problem.seqlen_q, (sequence + 1) * problem.seqlen_q};
  const auto begin = cu_seqlens_q.begin() + sequence;
  const int rows = std::min(begin[1] - begin[0], problem.seqlen_q);
  return {begin[0],
          begin[0] + (seqused_q.empty() ? rows : std::clamp(seqused_q[static_cast<std::size_t>(sequence)], 0, rows))};
}

std::string DecodeCase::text() const {
  return fmt::format("{} page_size {} lengths {} cu_seqlens_q {} cu_seqlens_k {} leftpad {} seqused_q {}{}{}{}",
                     problem.text(), problem.page_size, fmt::join(lengths, ","), fmt::join(cu_seqlens_q, ","),
                     fmt::join(cu_seqlens_k, ","), fmt::join(leftpad, ","), fmt::join(seqused_q, ","),
                     heads_outermost ? " heads outermost" : "", has_table ? " table" : "",
                     has_lengths ? "" : " no lengths");
}

DecodeCase random_decode_case(Random& random, int most_keys) {
  DecodeCase one;
  DecodeProblem& problem = one.problem;
  constexpr std::array ratios{1, 2, 3, 4, 6, 8, 16};
  constexpr std::array head_dims{40, 59, 64, 80, 96, 111, 128, 192, 256};
  constexpr std::array page_sizes{1, 16, 24, 48, 64, 256};
  constexpr std::array split_counts{0, 0, 1, 2, 5};
  problem.dtype = up_to(random, 1) == 0 ? Dtype::bf16 : Dtype::fp16;
  problem.batch = 1 + up_to(random, 3);
  problem.seqlen_q = up_to(random, 1) == 0 ? 1 : 1 + up_to(random, 15);
  problem.heads_kv = 1 + up_to(random, 1);
  problem.heads_q = problem.heads_kv * one_of(random, ratios);
  problem.head_dim = one_of(random, head_dims);
  problem.splits = one_of(random, split_counts);
  problem.max_seqlen_k = up_to(random, most_keys);
  if (up_to(random, 2) > 0) problem.window_right = 0;
  if (up_to(random, 3) == 0) problem.window_left = up_to(random, 100);
  if (up_to(random, 7) == 0) problem.window_right = up_to(random, 5);

  one.heads_outermost = up_to(random, 1) == 1;
  one.has_lengths = up_to(random, 5) > 0;
  const std::array edges{0, 1, 63, 64, 65, 127, 128, 129, problem.max_seqlen_k, problem.max_seqlen_k + 5};
  for (int i = 0; i < problem.batch; ++i) {
    const int length = up_to(random, 1) == 0 ? one_of(random, edges) : up_to(random, problem.max_seqlen_k);
    one.lengths.push_back(one.has_lengths ? length : problem.max_seqlen_k);
  }
  if (up_to(random, 2) > 0) {
    problem.page_size = one_of(random, page_sizes);
    problem.table_width =
        std::max(2, (problem.max_seqlen_k + problem.page_size - 1) / problem.page_size + up_to(random, 1));
    problem.pages = problem.batch * problem.table_width + up_to(random, 3);
  } else {
    problem.page_size = std::max(1, problem.max_seqlen_k + up_to(random, 3));
    one.has_table = up_to(random, 1) == 1;
    problem.pages = problem.batch + up_to(random, 2);
  }
  return one;
}

DecodeCase random_append_case(Random& random, int most_keys) {
  struct Kind {
    Dtype dtype;
    int head_dim;
    Rotary rotary;
    float softcap;
    bool appends;
  };
  constexpr std::array kinds{
      Kind{Dtype::bf16, 59, Rotary::none, 0, true},      Kind{Dtype::fp16, 128, Rotary::none, 0, true},
      Kind{Dtype::fp16, 128, Rotary::halves, 0, true},   Kind{Dtype::bf16, 64, Rotary::interleaved, 0, true},
      Kind{Dtype::bf16, 77, Rotary::halves, 20, true},   Kind{Dtype::fp16, 200, Rotary::interleaved, 1, true},
      Kind{Dtype::bf16, 128, Rotary::none, 1000, false}, Kind{Dtype::fp16, 40, Rotary::none, 0.5F, false}};
  const Kind kind = one_of(random, kinds);
  DecodeCase one = random_decode_case(random, most_keys);
  DecodeProblem& problem = one.problem;
  problem.dtype = kind.dtype;
  problem.head_dim = kind.head_dim;
  problem.softcap = kind.softcap;
  if (!kind.appends || problem.max_seqlen_k == 0) return one;
  one.has_lengths = true;
  problem.seqlen_new = 1 + up_to(random, std::min(problem.max_seqlen_k, up_to(random, 1) == 0 ? 1 : 20) - 1);
  constexpr std::array wild{-1, -3, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
  for (std::int32_t& length : one.lengths) {
    if (up_to(random, 9) == 0) length = one_of(random, wild);
    if (up_to(random, 2) == 0) length = std::max(0, problem.max_seqlen_k - problem.seqlen_new);
  }
  problem.rotary = kind.rotary;
  if (!problem.rotates()) return one;
  problem.rotary_dim = 16 * (1 + up_to(random, problem.head_dim / 16 - 1));
  problem.rotations = 1 + up_to(random, 2 * most_keys);
  return one;
}

DecodeCase random_ragged_case(Random& random, int most_keys) {
  struct Kind {
    Dtype dtype;
    int head_dim;
  };
  constexpr std::array kinds{Kind{Dtype::bf16, 64}, Kind{Dtype::fp16, 128}, Kind{Dtype::bf16, 255},
                             Kind{Dtype::fp16, 33}};
  DecodeCase one = random_decode_case(random, most_keys);
  DecodeProblem& problem = one.problem;
  const Kind kind = one_of(random, kinds);
  problem.dtype = kind.dtype;
  problem.head_dim = kind.head_dim;
  problem.ragged = true;
  one.cu_seqlens_q.push_back(up_to(random, 3) == 0 ? 2 : 0);
  for (int i = 0; i < problem.batch; ++i) {
    // Of more queries than the longest is said to have only so many count.
    const int queries = up_to(random, 9) == 0 ? problem.seqlen_q + 2 : up_to(random, problem.seqlen_q);
    one.cu_seqlens_q.push_back(one.cu_seqlens_q.back() + queries);
  }
  problem.total_q = one.cu_seqlens_q.back() + (up_to(random, 3) == 0 ? 3 : 0);
  if (up_to(random, 2) > 0) return one;
  for (int i = 0; i < problem.batch; ++i) {
    const auto begin = one.cu_seqlens_q.begin() + i;
    const int rows = begin[1] - begin[0];
    one.seqused_q.push_back(one_of(random, std::array{rows, up_to(random, rows), up_to(random, rows), rows + 5, -1}));
  }
  return one;
}

DecodeCase random_packed_case(Random& random, int most_keys) {
  DecodeCase one = random_ragged_case(random, most_keys);
  DecodeProblem& problem = one.problem;
  problem.packed_keys = true;
  problem.page_size = problem.pages = problem.table_width = 1;
  one.has_table = false;
  one.has_lengths = up_to(random, 1) == 1;
  one.cu_seqlens_k.push_back(up_to(random, 3) == 0 ? 2 : 0);
  for (std::int32_t& length : one.lengths) {
    const int rows = up_to(random, 2) == 0 ? length : up_to(random, problem.max_seqlen_k);
    one.cu_seqlens_k.push_back(one.cu_seqlens_k.back() + rows);
    length = one_of(random, std::array{rows, up_to(random, rows), rows + 5, -1});
  }
  problem.total_k = one.cu_seqlens_k.back() + (up_to(random, 3) == 0 ? 3 : 0);
  if (up_to(random, 5) == 0) problem.max_seqlen_k += 5000;  // more than there are
  return one;
}

void pad_at_the_left(Random& random, DecodeCase& one) {
  constexpr std::array wild{-1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
  for (int i = 0; i < one.problem.batch; ++i) {
    const int keys = one.length(i);
    const std::array likely{
        0, keys, std::max(0, keys - 1), std::min(keys, 64), up_to(random, keys), up_to(random, keys)};
    one.leftpad.push_back(up_to(random, 11) == 0 ? one_of(random, wild) : one_of(random, likely));
  }
}

DecodeCase random_leftpad_case(Random& random, int most_keys) {
  constexpr std::array kinds{random_decode_case, random_append_case, random_ragged_case, random_packed_case};
  DecodeCase one = one_of(random, kinds)(random, most_keys);
  pad_at_the_left(random, one);
  return one;
}

attune_decode_args only_sequence(attune_decode_args args, int sequence) {
  args.batch = 1;
  args.q.data = static_cast<std::uint16_t*>(args.q.data) + sequence * args.q.stride_batch;
  args.o.data = static_cast<std::uint16_t*>(args.o.data) + sequence * args.o.stride_batch;
  if (args.lse != nullptr) args.lse += static_cast<std::ptrdiff_t>(sequence) * args.heads_q * args.seqlen_q;
  if (args.seqlens_k != nullptr) args.seqlens_k += sequence;
  if (args.leftpad_k != nullptr) args.leftpad_k += sequence;
  for (attune_tensor* tensor : {&args.k_new, &args.v_new}) {
    if (tensor->data != nullptr) {
      tensor->data = static_cast<std::uint16_t*>(tensor->data) + sequence * tensor->stride_batch;
    }
  }
  if (args.block_table != nullptr) args.block_table += static_cast<std::ptrdiff_t>(sequence) * args.table_width;
  return args;
}

std::size_t DecodeImage::rows() const {
  const DecodeProblem& problem = case_.problem;
  return static_cast<std::size_t>(problem.stored_sequences()) * problem.heads_q * problem.stored_queries();
}

DecodeImage::DecodeImage(DecodeCase one, std::uint64_t seed) : case_(std::move(one)) {
  const DecodeProblem& problem = case_.problem;
  Random random(seed);
  for (const auto* part :
       {&case_.lengths, &case_.cu_seqlens_q, &case_.cu_seqlens_k, &case_.leftpad, &case_.seqused_q}) {
    lengths_.insert(lengths_.end(), part->begin(), part->end());
  }
  if (!problem.packed_keys) place_pages(random);
  Places places;
  const auto placed = [&](Layout layout, int batch, int seqlen, int heads, int head_dim) {
    return PlacedTensor::laid_out(layout, batch, seqlen, heads, head_dim).in(places);
  };
  const std::size_t angles = static_cast<std::size_t>(problem.rotations) * problem.rotary_dim / 2;
  const Layout cache = layout_of(case_.heads_outermost);
  q_ = placed(Layout::bshd, problem.stored_sequences(), problem.stored_queries(), problem.heads_q, problem.head_dim);
  k_ = placed(cache, problem.pages, page_tokens(problem), problem.heads_kv, problem.head_dim);
  v_ = placed(cache, problem.pages, page_tokens(problem), problem.heads_kv, problem.head_dim);
  // A token's keys, then its values.
  const PlacedTensor both =
      placed(Layout::bshd, problem.batch, problem.seqlen_new, 2 * problem.heads_kv, padded_head_dim(problem.head_dim));
  new_k_ = new_v_ = both;
  new_v_.first += static_cast<std::size_t>(problem.heads_kv * both.stride_head);
  cos_ = places.add(2 * angles) / 2;
  sin_ = places.add(2 * angles) / 2;
  o_ = placed(Layout::bshd, problem.stored_sequences(), problem.stored_queries(), problem.heads_q, problem.head_dim);
  lse_place_ = places.add(rows() * sizeof(float));
  lengths_place_ = places.add(lengths_);
  table_place_ = places.add(table_);
  memory_ = places.memory();
  put(memory_, lengths_place_, lengths_);
  put(memory_, table_place_, table_);
  q_.fill(memory_, random_values(problem.dtype, q_.elements(), seed));
  q_.padding().for_each([&](std::size_t to, std::size_t) { memory_[to] = 0; });
  both.fill(memory_, random_values(problem.dtype, both.elements(), seed + 1000));
  const Angles tables = random_angles(problem.dtype, angles, seed);
  put(memory_, 2 * cos_, tables.cos);
  put(memory_, 2 * sin_, tables.sin);
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    const int length = case_.keys_before(sequence);
    const std::size_t count = static_cast<std::size_t>(length) * problem.heads_kv * problem.head_dim;
    const std::vector<std::uint16_t> values = random_values(problem.dtype, 2 * count, seed * 31 + sequence + 1);
    auto next = values.begin();
    for (int key = std::min(case_.first_key(sequence), length); key < length; ++key) {
      for (int head = 0; head < problem.heads_kv; ++head) {
        for (const PlacedTensor& tensor : {k_, v_}) {
          std::copy_n(next, problem.head_dim, memory_.begin() + key_offset(tensor, sequence, key, head));
          next += problem.head_dim;
        }
      }
    }
  }
}

/// Gives each sequence pages of its own, in any order.
void DecodeImage::place_pages(Random& random) {
  const DecodeProblem& problem = case_.problem;
  std::vector<std::int32_t> order(static_cast<std::size_t>(problem.pages));
  std::iota(order.begin(), order.end(), 0);
  if (case_.has_table) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::uint32_t>(i)))]);
    }
  }
  constexpr std::array<std::int32_t, 4> nowhere{-1, std::numeric_limits<std::int32_t>::max(),
                                                std::numeric_limits<std::int32_t>::min(), 0};
  auto next = order.begin();
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int i = 0; i < problem.table_width; ++i) {
      const std::int64_t first = std::int64_t{i} * problem.page_size;
      const std::int64_t end = std::int64_t{case_.lengths[static_cast<std::size_t>(sequence)]} + problem.seqlen_new;
      const bool seen = first < case_.length(sequence) && first + problem.page_size > case_.first_key(sequence);
      const bool has_keys = seen || (problem.appends() && first < end);
      table_.push_back(has_keys || !case_.has_table ? *next++ : one_of(random, nowhere));
    }
  }
}

std::size_t DecodeImage::key_offset(const PlacedTensor& cache, int sequence, int key, int head) const {
  const DecodeProblem& problem = case_.problem;
  if (problem.packed_keys) return cache.of(0, case_.cu_seqlens_k[static_cast<std::size_t>(sequence)] + key, head);
  const std::size_t entry = static_cast<std::size_t>(sequence) * problem.table_width + key / problem.page_size;
  return cache.of(table_[entry], key % problem.page_size, head);
}

/// Whether the cache has room for this key of a sequence.
bool DecodeImage::has_place(int sequence, std::int64_t key) const {
  const DecodeProblem& problem = case_.problem;
  if (key < 0 || key >= static_cast<std::int64_t>(problem.table_width) * problem.page_size) return false;
  const std::size_t entry = static_cast<std::size_t>(sequence) * problem.table_width + key / problem.page_size;
  return table_[entry] >= 0 && table_[entry] < problem.pages;
}

HostRotation DecodeImage::rotation() const {
  const DecodeProblem& problem = case_.problem;
  return {problem.dtype,     problem.rotary,        problem.rotary_dim,
          problem.rotations, memory_.data() + cos_, memory_.data() + sin_};
}

std::vector<std::uint16_t> DecodeImage::row_at(const Memory& memory, std::size_t offset) const {
  const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + case_.problem.head_dim};
}

/// The memory that a correct call leaves.
Memory DecodeImage::with_new_keys() const {
  const DecodeProblem& problem = case_.problem;
  Memory memory = memory_;
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    for (int token = 0; token < problem.seqlen_new; ++token) {
      const std::int64_t key = std::int64_t{case_.lengths[static_cast<std::size_t>(sequence)]} + token;
      if (!has_place(sequence, key)) continue;
      for (int head = 0; head < problem.heads_kv; ++head) {
        const auto to = [&](const PlacedTensor& cache) {
          return memory.begin() + static_cast<std::ptrdiff_t>(key_offset(cache, sequence, static_cast<int>(key), head));
        };
        const std::vector<std::uint16_t> k = row_at(memory_, new_k_.of(sequence, token, head));
        std::ranges::copy(rotated_row(rotation(), k, key), to(k_));
        std::ranges::copy(row_at(memory_, new_v_.of(sequence, token, head)), to(v_));
      }
    }
  }
  return memory;
}

std::vector<std::uint16_t> DecodeImage::rotated_queries() const {
  const DecodeProblem& problem = case_.problem;
  const bool in_order = problem.window_left >= 0 || problem.window_right >= 0;
  std::vector<std::uint16_t> queries;
  for (int sequence = 0; sequence < problem.stored_sequences(); ++sequence) {
    for (int query = 0; query < problem.stored_queries(); ++query) {
      const std::int64_t before = case_.lengths[static_cast<std::size_t>(sequence)];
      for (int head = 0; head < problem.heads_q; ++head) {
        const auto row =
            rotated_row(rotation(), row_at(memory_, q_.of(sequence, query, head)), before + (in_order ? query : 0));
        queries.insert(queries.end(), row.begin(), row.end());
      }
    }
  }
  return queries;
}

attune_decode_args DecodeImage::args(void* memory) const {
  const DecodeProblem& problem = case_.problem;
  const auto* const lengths = at<const std::int32_t>(memory, lengths_place_);
  attune_decode_args args = arguments_of(problem);
  args.q = q_.at(memory);
  args.k = k_.at(memory);
  args.v = v_.at(memory);
  args.o = o_.at(memory);
  args.lse = at<float>(memory, lse_place_);
  if (problem.ragged) args.cu_seqlens_q = lengths + problem.batch;
  if (problem.packed_keys) args.cu_seqlens_k = args.cu_seqlens_q + problem.batch + 1;
  args.seqlens_k = case_.has_lengths ? lengths : nullptr;
  const auto* const end_of_lengths = lengths + lengths_.size();
  if (!case_.seqused_q.empty()) args.seqused_q = end_of_lengths - problem.batch;
  if (!case_.leftpad.empty()) args.leftpad_k = end_of_lengths - case_.seqused_q.size() - problem.batch;
  args.block_table = case_.has_table ? at<const std::int32_t>(memory, table_place_) : nullptr;
  if (!problem.appends()) return args;
  args.k_new = new_k_.at(memory);
  args.v_new = new_v_.at(memory);
  args.rotary_cos = at<std::uint16_t>(memory, 2 * cos_);
  args.rotary_sin = at<std::uint16_t>(memory, 2 * sin_);
  return args;
}

Outputs DecodeImage::outputs(Memory after) const {
  const DecodeProblem& problem = case_.problem;
  const std::size_t o_elements = rows() * padded_head_dim(problem.head_dim);
  Outputs outputs{.o = without_padding(take<std::uint16_t>(after, 2 * o_.first, o_elements), problem.head_dim),
                  .lse = take<float>(after, lse_place_, rows())};
  outputs.guards_intact = after == with_new_keys();
  return outputs;
}

/// Each sequence by itself, over its keys, brought together from their pages.
ReferenceOutput DecodeImage::expected(AttentionFunction& attention) const {
  const DecodeProblem& problem = case_.problem;
  const std::size_t dim = problem.head_dim;
  constexpr double nobodys = std::numeric_limits<double>::quiet_NaN();
  ReferenceOutput all{.o = std::vector<double>(rows() * dim, nobodys), .lse = std::vector<double>(rows(), nobodys)};
  const Memory memory = with_new_keys();
  const std::vector<std::uint16_t> queries = rotated_queries();
  for (int sequence = 0; sequence < problem.batch; ++sequence) {
    const int first_key = case_.first_key(sequence);
    const auto [begin, end] = case_.queries_of(sequence);
    Problem one{.dtype = problem.dtype,
                .heads_q = problem.heads_q,
                .heads_kv = problem.heads_kv,
                .seqlen_q = end - begin,
                .seqlen_k = case_.length(sequence) - first_key,
                .head_dim = problem.head_dim,
                .softcap = problem.softcap};
    set_window(one, problem.window_left, problem.window_right);
    std::vector<std::uint16_t> k;
    std::vector<std::uint16_t> v;
    for (int key = 0; key < one.seqlen_k; ++key) {
      for (int head = 0; head < problem.heads_kv; ++head) {
        for (const auto& [rows, cache] : {std::pair{&k, &k_}, {&v, &v_}}) {
          const auto row = row_at(memory, key_offset(*cache, sequence, first_key + key, head));
          rows->insert(rows->end(), row.begin(), row.end());
        }
      }
    }
    const std::size_t first_row = static_cast<std::size_t>(begin) * problem.heads_q * dim;
    const auto contiguous_rows = [&](const std::uint16_t* rows, int seqlen, int heads) {
      return contiguous(rows, seqlen, heads, one.head_dim);
    };
    const ReferenceOutput output =
        attention(one, contiguous_rows(queries.data() + first_row, one.seqlen_q, one.heads_q),
                  contiguous_rows(k.data(), one.seqlen_k, one.heads_kv),
                  contiguous_rows(v.data(), one.seqlen_k, one.heads_kv), usual_scale(one.head_dim), 1, {});
    std::ranges::copy(output.o, all.o.begin() + static_cast<std::ptrdiff_t>(first_row));
    for (int head = 0; head < problem.heads_q; ++head) {
      const std::ptrdiff_t to = problem.ragged ? std::ptrdiff_t{head} * problem.total_q + begin
                                               : (std::ptrdiff_t{sequence} * problem.heads_q + head) * problem.seqlen_q;
      std::copy_n(output.lse.begin() + std::ptrdiff_t{head} * one.seqlen_q, one.seqlen_q, all.lse.begin() + to);
    }
  }
  return all;
}

void DecodeImage::check(const Memory& after) const {
  CAPTURE(case_.text());
  check_outputs(outputs(after), case_.problem.dtype,
                {.reference = expected(reference_attention), .naive = expected(naive_attention)});
}

}  // namespace attune::testing
