#include "runtime/cli/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "generator/variant.hpp"
#include "runtime/base/random.hpp"
#include "runtime/call/page_counts.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/problem_options.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"

namespace attune::cli {

namespace {

/// Calls `visit` with the fields that are sizes or, where those are not asked for, choices of a variant, of those that
/// the command line has.
template <class Visitor>
void for_each_option(bool sizes, const Visitor& visit) {
  for_each_field<Problem>([&](const auto& field) {
    const bool is_size = field.topic == Topic::batch || field.topic == Topic::heads || field.topic == Topic::lengths;
    if (field.doc != nullptr && is_size == sizes) visit(field);
  });
}

bool any_given(const CLI::App& app, bool sizes) {
  bool given = false;
  for_each_option(sizes, [&](const auto& field) { given = given || app.count(option_name(field)) > 0; });
  return given;
}

}  // namespace

void ProblemOptions::add_sizes(CLI::App& app) {
  for_each_option(true, [&](const auto& field) { add_field_option(app, "Problem", field, named); });
}

void ProblemOptions::add_choices(CLI::App& app) {
  for_each_option(false, [&](const auto& field) { add_field_option(app, "Problem", field, named); });
}

bool ProblemOptions::given(const CLI::App& app) { return any_given(app, true); }

bool ProblemOptions::choices_given(const CLI::App& app) { return any_given(app, false); }

Problem ProblemOptions::problem() const {
  Problem result = named;
  result.complete();
  result.set_window(named.window_left, named.window_right);
  return result;
}

Problem ProblemOptions::problem_for(const Variant& variant) const {
  Problem result = problem();
  result.dtype = static_cast<Dtype>(variant.dtype);
  result.head_dim = variant.head_dim;
  result.head_dim_v = variant.head_dim_v;
  result.causal = variant.causal != 0;
  if (variant.window != 0) result.set_window(result.seqlen_k / 4, 0);
  if (variant.softcap != 0) result.softcap = 30;
  if (variant.ragged != 0) make_ragged(result);
  if (variant.paged != 0) make_paged(result);
  if (variant.gqa_ratio > 0 && named.heads_kv == left_out && result.heads_q % variant.gqa_ratio == 0) {
    result.heads_kv = result.heads_q / variant.gqa_ratio;
  }
  return result;
}

namespace {

void throw_all(const std::vector<std::string>& problems) {
  std::vector<Diagnostic> found;
  for (const std::string& text : problems) found.push_back({.where = {}, .what = text, .fix = {}});
  throw_any(std::move(found));
}

}  // namespace

void require_sound(const Problem& problem) { throw_all(problems_of(problem)); }

void require_sound(const DecodeProblem& problem) { throw_all(problems_of(problem)); }

std::size_t query_elements(const Problem& problem) { return query_rows(problem) * problem.head_dim; }

std::size_t output_elements(const Problem& problem) { return query_rows(problem) * problem.head_dim_of_v(); }

std::size_t query_rows(const Problem& problem) {
  return static_cast<std::size_t>(problem.stored_sequences()) * problem.heads_q * problem.stored_rows();
}

std::size_t key_elements(const Problem& problem) {
  return static_cast<std::size_t>(problem.stored_key_sequences()) * problem.stored_keys() * problem.heads_kv *
         problem.head_dim;
}

std::size_t value_elements(const Problem& problem) {
  return static_cast<std::size_t>(problem.stored_key_sequences()) * problem.stored_keys() * problem.heads_kv *
         problem.head_dim_of_v();
}

Angles random_angles(Dtype dtype, std::size_t count, std::uint64_t seed) {
  constexpr double full_turn = 6.283185307179586;
  Random random(seed);
  Angles angles;
  for (std::size_t i = 0; i < count; ++i) {
    const double angle = random.uniform() * full_turn;
    angles.cos.push_back(to_storage(dtype, static_cast<float>(std::cos(angle))));
    angles.sin.push_back(to_storage(dtype, static_cast<float>(std::sin(angle))));
  }
  return angles;
}

std::vector<std::uint16_t> random_values(Dtype dtype, std::size_t count, std::uint64_t seed) {
  // Box and Muller for the first million, then the same again shifted: large inputs must not take minutes to draw.
  constexpr std::size_t period = (std::size_t{1} << 20) - 3;
  std::vector<std::uint16_t> values(count);
  Random random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    if (i < period) {
      const double radius = std::sqrt(-2 * std::log(random.uniform()));
      values[i] = to_storage(dtype, static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.uniform())));
    } else {
      values[i] = values[i - period];
    }
  }
  return values;
}

namespace {

/// The i-th of a batch's lengths where they fall off as 1 / i, from `scale` times `longest` on; the first is `longest`.
int length_of(int i, int longest, double scale) {
  return i == 0 ? longest : static_cast<int>(std::min<double>(longest, scale * longest / (i + 1)));
}

}  // namespace

std::vector<std::int32_t> cumulative_lengths(int batch, int most, int total) {
  const int longest = std::min(most, total);
  const auto rows = [&](double scale) {
    long long sum = 0;
    for (int i = 0; i < batch; ++i) sum += length_of(i, longest, scale);
    return sum;
  };
  constexpr int finest = -30;
  double scale = 0;
  for (int exponent = std::bit_width(static_cast<unsigned>(batch)); exponent >= finest; --exponent) {
    const double step = std::ldexp(1.0, exponent);
    if (rows(scale + step) <= total) scale += step;
  }
  std::vector<std::int32_t> result{0};
  for (int i = 0; i < batch; ++i) result.push_back(result.back() + length_of(i, longest, scale));
  return result;
}

int usual_total(int batch, int longest) {
  constexpr long long most = std::numeric_limits<int>::max();
  long long total = 0;
  for (int i = 0; i < batch && total < most; ++i) total += length_of(i, longest, 1);
  return static_cast<int>(std::min(total, most));
}

void make_ragged(Problem& problem) {
  problem.ragged = true;
  problem.total_q = usual_total(problem.batch, problem.seqlen_q);
  problem.total_k = usual_total(problem.batch, problem.seqlen_k);
}

void make_paged(Problem& problem) {
  problem.paged = true;
  problem.page_size = 16;
  problem.table_width = std::max(1, pages_of(problem.seqlen_k, problem.page_size));
  problem.pages = all_pages(problem.batch, problem.table_width);
  problem.total_k = 0;
}

HostInputs::HostInputs(const Problem& problem, std::uint64_t seed)
    : q(random_values(problem.dtype, query_elements(problem), 3 * seed)),
      k(random_values(problem.dtype, key_elements(problem), 3 * seed + 1)),
      v(random_values(problem.dtype, value_elements(problem), 3 * seed + 2)) {
  if (problem.ragged) sequences.cu_seqlens_q = cumulative_lengths(problem.batch, problem.seqlen_q, problem.total_q);
  if (problem.ragged && !problem.paged) {
    sequences.cu_seqlens_k = cumulative_lengths(problem.batch, problem.seqlen_k, problem.total_k);
  }
  if (!problem.paged) return;
  for (int i = 0; i < problem.batch; ++i) sequences.seqused_k.push_back(problem.seqlen_k / (i + 1));
  for (int page = problem.pages - 1; page >= 0; --page) sequences.block_table.push_back(page);
}

HostTensor contiguous(const std::vector<std::uint16_t>& values, int seqlen, int heads, int head_dim) {
  const long long dim = head_dim;
  return {.data = values.data(), .stride_batch = dim * heads * seqlen, .stride_seq = dim * heads, .stride_head = dim};
}

double usual_scale(const Problem& problem) { return 1 / std::sqrt(static_cast<double>(problem.head_dim)); }

Expected expected_output(const Problem& problem, const HostInputs& inputs) {
  const HostTensor q = contiguous(inputs.q, problem.stored_rows(), problem.heads_q, problem.head_dim);
  const HostTensor k = contiguous(inputs.k, problem.stored_keys(), problem.heads_kv, problem.head_dim);
  const HostTensor v = contiguous(inputs.v, problem.stored_keys(), problem.heads_kv, problem.head_dim_of_v());
  const double scale = usual_scale(problem);
  const auto expected = [&](AttentionFunction& attention) {
    return attention_of(attention, problem, inputs.sequences, q, k, v, scale);
  };
  return {.reference = expected(reference_attention), .naive = expected(naive_attention)};
}

namespace {

/// Gives the i-th of a variant's problems what the variant is for.
void add_features(Problem& problem, const Variant& variant, std::size_t i) {
  // Narrow and wide, one side alone, both, and one that most rows see nothing through.
  constexpr std::array<std::pair<int, int>, 5> windows{{{20, 0}, {-1, 5}, {130, 70}, {3, -1}, {0, 0}}};
  if (variant.window != 0) problem.set_window(windows[i % windows.size()].first, windows[i % windows.size()].second);
  if (variant.softcap != 0) problem.softcap = i % 2 == 0 ? 20.0F : 2.0F;
  if (variant.ragged != 0) make_ragged(problem);
  if (variant.ragged != 0 && variant.tile_list != 0) {  // no others are served
    problem.total_q = problem.batch * problem.seqlen_q;
    problem.total_k = problem.batch * problem.seqlen_k;
  }
  if (variant.paged != 0) make_paged(problem);
}

}  // namespace

std::vector<Problem> small_problems(const Variant& variant) {
  struct Shape {
    int batch, ratio, heads_kv, seqlen_q, seqlen_k, less_dim;
  };
  std::vector<Shape> shapes{{{2, 1, 3, 128, 128, 0},
                             {1, 4, 1, 113, 203, 8},
                             {2, 2, 2, 257, 61, 0},
                             {1, 1, 1, 1, 1, 0},
                             {1, 8, 1, 1, 331, 0},
                             {1, 3, 2, 200, 512, 24},
                             {1, 1, 2, 67, 0, 0},
                             {1, 6, 1, 383, 383, 0}}};
  // A few more tiles than the largest GPU has multiprocessors: those are shared.
  if (variant.stream_k != 0) shapes.push_back({3, 1, 53, 60, 700, 8});
  std::vector<Problem> problems;
  for (const Shape& shape : shapes) {
    if (shape.seqlen_k == 0 && family_of(variant).tensor_maps) continue;
    const int ratio = variant.gqa_ratio > 0 ? variant.gqa_ratio : shape.ratio;
    problems.push_back({.dtype = static_cast<Dtype>(variant.dtype),
                        .batch = shape.batch,
                        .heads_q = ratio * shape.heads_kv,
                        .heads_kv = shape.heads_kv,
                        .seqlen_q = shape.seqlen_q,
                        .seqlen_k = shape.seqlen_k,
                        .head_dim = std::max(8, variant.head_dim - shape.less_dim),
                        .head_dim_v = variant.head_dim_v == 0 ? 0 : variant.head_dim_v - shape.less_dim,
                        .causal = variant.causal != 0});
    add_features(problems.back(), variant, problems.size());
  }
  return problems;
}

}  // namespace attune::cli
