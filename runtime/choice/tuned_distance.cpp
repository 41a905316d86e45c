#include "runtime/choice/tuned_distance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "generator/hash.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune {
namespace {

constexpr std::array<float, 5> weights{1, 1, 0.5F, 0.5F, 0.25F};

float log2_of(long long size) { return std::log2(static_cast<float>(std::max(1LL, size))); }

/// Of `total` rows in `batch` sequences of at most `longest`.
long long mean_length(int total, int batch, int longest) {
  return std::min<long long>(longest, (static_cast<long long>(total) + batch - 1) / std::max(1, batch));
}

/// Keys that a query sees, of so many; -1 is a bound that hides none.
long long seen(long long keys, int left, int right) {
  if (left < 0 || right < 0) return keys;
  return std::min(keys, static_cast<long long>(left) + right + 1);
}

std::array<float, 5> sizes_of(long long seqlen_q, int ratio, long long keys, long long work, int page_size) {
  return {log2_of(seqlen_q), log2_of(ratio), log2_of(keys), log2_of(work), log2_of(page_size)};
}

/// Values of which each combination has its own number: flags of a bit, others of nine.
template <class... Values>
std::uint64_t numbered(Values... values) {
  std::uint64_t number = 0;
  ((number = number << (std::is_same_v<Values, bool> ? 1 : 9) | static_cast<std::uint64_t>(values)), ...);
  return number;
}

constexpr std::size_t index_of(Operation operation) { return static_cast<std::size_t>(operation); }

/// Why what a row has found is not for a problem: refusals of the variant, or that decode's would read keys three times
/// and more, as often as for the row's own problem it does not.
template <class AnyProblem>
std::vector<std::string> reasons_against(const TunedRow& row, const AnyProblem& problem, const Device& device) {
  const Variant variant = variant_for(row, problem);
  std::vector<std::string> reasons = refusals(variant, problem, device);
  if constexpr (AnyProblem::operation == Operation::decode) {
    const auto* const own = std::get_if<DecodeProblem>(&row.problem);
    if (own != nullptr && problem.rows() > std::max(own->rows(), tiles_side_by_side * variant.B_r)) {
      reasons.push_back(
          fmt::format("B_r: {} rows share keys, which tiles of {} read again and again", problem.rows(), variant.B_r));
    }
  }
  return reasons;
}

}  // namespace

TunedShape tuned_shape(const Problem& problem) {
  const std::uint64_t kind =
      numbered(Problem::operation, problem.dtype, problem.head_dim, problem.head_dim_of_v(), problem.causal,
               has_window(problem), problem.softcap > 0, problem.ragged, problem.paged);
  const Problem typical = problem.typical();
  const int left = has_window(problem) ? problem.window_left : -1;
  return {kind,
          sizes_of(typical.seqlen_q, problem.heads_q / problem.heads_kv,
                   seen(typical.seqlen_k, left, problem.causal ? 0 : problem.window_right),
                   static_cast<long long>(typical.batch) * problem.heads_kv, problem.paged ? problem.page_size : 1)};
}

TunedShape tuned_shape(const DecodeProblem& problem) {
  const std::uint64_t kind = numbered(DecodeProblem::operation, problem.dtype, problem.head_dim, problem.rotary,
                                      problem.window_left >= 0, problem.softcap > 0, problem.paged(),
                                      problem.one_length(), problem.ragged, problem.packed_keys, problem.splits);
  const long long seqlen_q =
      problem.ragged ? mean_length(problem.total_q, problem.batch, problem.seqlen_q) : problem.seqlen_q;
  const long long seqlen_k =
      problem.packed_keys ? mean_length(problem.total_k, problem.batch, problem.max_seqlen_k) : problem.max_seqlen_k;
  return {kind,
          sizes_of(seqlen_q, problem.heads_q / problem.heads_kv, seen(seqlen_k, problem.window_left, 0),
                   static_cast<long long>(problem.batch) * problem.heads_kv, problem.paged() ? problem.page_size : 1)};
}

float tuned_distance(const TunedShape& a, const TunedShape& b) {
  float distance = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) distance += weights[i] * std::abs(a.sizes[i] - b.sizes[i]);
  return distance;
}

TunedRows::TunedRows(const TunedTable& table, Device device) : table_(&table), device_(std::move(device)) {
  std::string answers = device_.name;
  for (const TunedRow& row : table.rows) {
    std::visit(
        [&](const auto& problem) {
          shapes_.push_back(tuned_shape(problem));
          has_[index_of(problem.operation)] = true;
          answers += fmt::format("\n{} {} {}", shapes_.back().kind, problem.text(), row.result.variant.name());
        },
        row.problem);
  }
  constexpr int hex = 16;
  id_ = std::max<std::uint64_t>(1, std::stoull(xxh3_hex(answers).substr(0, hex), nullptr, hex));
}

template <class AnyProblem>
unsigned TunedRows::nearest(const AnyProblem& problem) const {
  const TunedShape shape = tuned_shape(problem);
  float least = std::nextafter(tuned_limit, std::numeric_limits<float>::max());
  unsigned number = 0;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].kind != shape.kind) continue;
    const float distance = tuned_distance(shapes_[i], shape);
    if (distance >= least) continue;
    if (!reasons_against(table_->rows[i], problem, device_).empty()) continue;
    least = distance;
    number = static_cast<unsigned>(i) + 1;
  }
  return number;
}

template <class AnyProblem>
unsigned TunedRows::remembered(const AnyProblem& problem) const {
  if (!has_[index_of(AnyProblem::operation)]) return 0;
  struct Entry {
    std::uint64_t id;
    AnyProblem problem;
    unsigned number;
  };
  thread_local std::array<Entry, 16> met{};
  int seqlen_k = 0;
  if constexpr (AnyProblem::operation == Operation::prefill) {
    seqlen_k = problem.seqlen_k;
  } else {
    seqlen_k = problem.max_seqlen_k;
  }
  const std::size_t key = static_cast<std::size_t>(problem.seqlen_q) * 31 + static_cast<std::size_t>(seqlen_k) * 7 +
                          static_cast<std::size_t>(problem.batch) * 3 + static_cast<std::size_t>(problem.heads_q);
  Entry& entry = met[key % met.size()];
  if (entry.id != id_ || entry.problem != problem) entry = {id_, problem, nearest(problem)};
  return entry.number;
}

template <class AnyProblem>
TunedMatch TunedRows::explain(const AnyProblem& problem) const {
  const TunedShape shape = tuned_shape(problem);
  if (const unsigned number = nearest(problem); number > 0) {
    return {.row = row(number), .distance = tuned_distance(shapes_[number - 1], shape), .refusals = {}};
  }
  TunedMatch match;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].kind != shape.kind) continue;
    const double distance = tuned_distance(shapes_[i], shape);
    if (match.row != nullptr && distance >= match.distance) continue;
    match = {.row = &table_->rows[i], .distance = distance, .refusals = {}};
  }
  if (match.row != nullptr) match.refusals = reasons_against(*match.row, problem, device_);
  return match;
}

unsigned TunedRows::number(const ProblemView& problem) const {
  if (const auto* const prefill = problem.get_if<Problem>()) return number(*prefill);
  const auto* const decode = problem.get_if<DecodeProblem>();
  return decode == nullptr ? 0 : number(*decode);
}

TunedMatch TunedRows::match(const ProblemView& problem) const {
  if (const auto* const prefill = problem.get_if<Problem>()) return match(*prefill);
  const auto* const decode = problem.get_if<DecodeProblem>();
  return decode == nullptr ? TunedMatch{} : match(*decode);
}

template unsigned TunedRows::remembered(const Problem&) const;
template unsigned TunedRows::remembered(const DecodeProblem&) const;
template TunedMatch TunedRows::explain(const Problem&) const;
template TunedMatch TunedRows::explain(const DecodeProblem&) const;

}  // namespace attune
