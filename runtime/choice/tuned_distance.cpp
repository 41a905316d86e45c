#include "runtime/choice/tuned_distance.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "generator/condition.hpp"
#include "generator/hash.hpp"
#include "runtime/base/text.hpp"
#include "runtime/choice/decode_objection.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune {
namespace {

constexpr std::array<float, 5> weights{1, 1, 0.5F, 0.5F, 0.25F};

float log2_of(long long size) { return std::log2(static_cast<float>(std::max(1LL, size))); }

/// Values of which each combination has its own number: flags of a bit, others of nine.
template <class... Values>
std::uint64_t numbered(Values... values) {
  std::uint64_t number = 0;
  ((number = number << (std::is_same_v<Values, bool> ? 1 : 9) | static_cast<std::uint64_t>(values)), ...);
  return number;
}

constexpr std::size_t index_of(Operation operation) { return static_cast<std::size_t>(operation); }

template <class P>
TunedShape shape_of(const P& problem) {
  const auto number = [](auto... values) { return numbered(P::operation, values...); };
  const TileSizes sizes = tile_sizes_of(problem);
  return {.kind = std::apply(number, kind_of(problem)),
          .sizes = {log2_of(sizes.tile_rows), log2_of(problem.heads_q / problem.heads_kv), log2_of(sizes.steps),
                    log2_of(sizes.sequences * problem.heads_kv), log2_of(sizes.page_size)}};
}

/// What an operation has against a row though its variant could serve; empty where nothing.
template <class P>
std::string objection(const TunedRow& /*row*/, const Variant& /*variant*/, const P& /*problem*/,
                      const Device& /*device*/) {
  return {};
}

/// Decode's, which has several (decode_objection.hpp).
std::string objection(const TunedRow& row, const Variant& variant, const DecodeProblem& problem, const Device& device) {
  const auto* const own = std::get_if<DecodeProblem>(&row.problem);
  return own == nullptr ? std::string() : decode_objection(variant, *own, problem, device);
}

/// Prefill's has long blocks for few keys, those of a window behind first tokens.
std::string objection(const TunedRow& /*row*/, const Variant& variant, const Problem& problem, const Device& device) {
  if (variant.mask == 0) return {};
  const bool is_long =
      variant.B_c > own_variant(variant.family, problem.ask(), device).B_c && first_keys_apart(variant) > 0;
  if (!is_long) return {};
  return fmt::format("B_c: a query sees few keys, of which blocks of {} hold more that it does not see", variant.B_c);
}

/// Why what a row has found is not for a problem.
template <class P>
std::vector<std::string> reasons_against(const TunedRow& row, const P& problem, const Device& device) {
  const Variant variant = variant_for(row, problem);
  std::vector<std::string> reasons = refusals(variant, problem, device);
  if (!reasons.empty()) return reasons;
  if (std::string own = objection(row, variant, problem, device); !own.empty()) reasons.push_back(std::move(own));
  return reasons;
}

/// What `visit` makes of a problem as what it is, where tables have rows for its operation; else nothing.
template <class Result, class Visit, class... Ps>
Result visit_tuned(const ProblemView& problem, const Visit& visit, const std::variant<Ps...>* /*list*/) {
  Result result{};
  const auto try_one = [&](const auto* one) {
    if (one != nullptr) result = visit(*one);
  };
  (try_one(problem.get_if<Ps>()), ...);
  return result;
}

constexpr const TunedProblem* tuned_operations = nullptr;  // a list of types

}  // namespace

std::string TunedVerdict::text() const {
  if (!reason.empty()) return fmt::format("  untuned: {}\n", reason);
  if (!row) return {};
  const TunedResult& result = row->result;
  constexpr double microsecond = 1e-6;
  return fmt::format("  tuned by the row {}, {:.1f} away: {} instead of the heuristic's {} ({:.2f} x), {}, {}\n",
                     text_of(row->problem), distance, seconds_text(result.microseconds * microsecond),
                     seconds_text(result.default_microseconds * microsecond),
                     result.default_microseconds / result.microseconds, gpu, result.date);
}

TunedShape tuned_shape(const TunedProblem& problem) {
  return std::visit([](const auto& one) { return shape_of(one); }, problem);
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
          shapes_.push_back(shape_of(problem));
          has_[index_of(problem.operation)] = true;
          answers += fmt::format("\n{} {} {}", shapes_.back().kind, problem.text(), row.result.variant.name());
        },
        row.problem);
  }
  constexpr int hex = 16;
  id_ = std::max<std::uint64_t>(1, std::stoull(xxh3_hex(answers).substr(0, hex), nullptr, hex));
}

template <class P>
unsigned TunedRows::nearest(const P& problem) const {
  const TunedShape shape = shape_of(problem);
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

template <class P>
unsigned TunedRows::remembered(const P& problem) const {
  if (!has_[index_of(P::operation)]) return 0;
  struct Entry {
    std::uint64_t id;
    P problem;
    unsigned number;
  };
  thread_local std::array<Entry, 16> met{};
  const std::size_t key = static_cast<std::size_t>(problem.seqlen_q) * 31 +
                          static_cast<std::size_t>(most_keys(problem)) * 7 +
                          static_cast<std::size_t>(problem.batch) * 3 + static_cast<std::size_t>(problem.heads_q);
  Entry& entry = met[key % met.size()];
  if (entry.id != id_ || entry.problem != problem) entry = {id_, problem, nearest(problem)};
  return entry.number;
}

template <class P>
TunedVerdict TunedRows::explain(const P& problem) const {
  const TunedShape shape = shape_of(problem);
  const auto verdict_of = [&](std::size_t row) {
    return TunedVerdict{.row = table_->rows[row],
                        .distance = tuned_distance(shapes_[row], shape),
                        .applies = false,
                        .reason = {},
                        .gpu = table_->gpu.name};
  };
  if (const unsigned number = nearest(problem); number > 0) {
    TunedVerdict verdict = verdict_of(number - 1);
    verdict.applies = true;
    return verdict;
  }
  std::optional<std::size_t> least;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].kind != shape.kind) continue;
    if (!least || tuned_distance(shapes_[i], shape) < tuned_distance(shapes_[*least], shape)) least = i;
  }
  if (!least) {
    TunedVerdict none;
    none.reason = "the table has no row of this element type, head dimensions, mask and features";
    none.gpu = table_->gpu.name;
    return none;
  }
  TunedVerdict verdict = verdict_of(*least);
  verdict.reason = fmt::format("nearest row {}", text_of(verdict.row->problem));
  if (verdict.distance > tuned_limit) {
    verdict.reason += fmt::format(" is {:.1f} away, limit {}", verdict.distance, tuned_limit);
  } else {
    verdict.reason +=
        fmt::format(": its variant is refused: {}", fmt::join(reasons_against(*verdict.row, problem, device_), "; "));
  }
  return verdict;
}

unsigned TunedRows::number(const ProblemView& problem) const {
  return visit_tuned<unsigned>(
      problem, [this](const auto& one) { return remembered(one); }, tuned_operations);
}

TunedVerdict TunedRows::match(const ProblemView& problem) const {
  return visit_tuned<TunedVerdict>(
      problem, [this](const auto& one) { return explain(one); }, tuned_operations);
}

}  // namespace attune
