#include "runtime/choice/decode_objection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/division.hpp"
#include "runtime/call/fit.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune {
namespace {

/// Sequences of heads, a tile of rows each or several.
long long tiles_of(const Variant& variant, const DecodeProblem& problem) {
  return ceil_div(problem.rows(), variant.B_r) * problem.heads_kv * problem.batch;
}

/// Keys would be read three times and more, as often as for the row's own problem they are not.
bool rereads_keys(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem) {
  return problem.rows() > std::max(own.rows(), tiles_side_by_side * variant.B_r);
}

/// A cluster merges so many keys sooner than a second kernel, but not those of the row.
bool lacks_clusters(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem,
                    const Device& device) {
  const auto prefers = [&](const DecodeProblem& one) { return prefers_clusters(one.ask().preference, device); };
  return variant.cluster == 0 && prefers(problem) && !prefers(own);
}

/// A step is of half a sequence's keys or more, though the heuristic's would be of fewer: 384 keys take 14.4 us by
/// steps of 256 and 12.2 by steps of 128 on an H200, 176 sequences of heads, 512 keys of 320 such 21.9 and 19.5.
bool has_long_steps(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem,
                    const Device& device) {
  const auto has_more = [&](const DecodeProblem& one) { return one.longest_keys() > 2LL * variant.B_c; };
  return !has_more(problem) && has_more(own) && variant.B_c > own_variant(variant.family, problem.ask(), device).B_c;
}

/// There is room for the clusters of the row's sequences. These are so many that some multiprocessors would have two
/// whole ones, or two halves, and others one (15 to 27% slower than four parts each, 136 and 200 sequences of 40,000
/// keys on an H200; 80 of 21,066 keys in halves 132 us, in three parts and more 115), or that many have none (91,504
/// keys of 72 tiles: 899 us there, 840 in eleven parts).
bool leaves_no_room(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem,
                    const Device& device) {
  if (variant.cluster == 0 || problem.splits != 0 || !problem.one_length()) return false;
  const auto is_uneven = [&](const DecodeProblem& one) {
    const int splits = plan(variant, one, device).splits;
    const long long blocks = tiles_of(variant, one) * splits;
    return splits <= 2 && blocks > device.multiprocessors && blocks < 2LL * device.multiprocessors;
  };
  const auto is_idle = [&](const DecodeProblem& one) {
    return tiles_of(variant, one) < device.multiprocessors && leaves_idle(plan(variant, one, device), one, device);
  };
  if (is_uneven(problem) && !is_uneven(own)) return true;
  return is_idle(problem) && !is_idle(own);
}

}  // namespace

std::string decode_objection(const Variant& variant, const DecodeProblem& own, const DecodeProblem& problem,
                             const Device& device) {
  if (rereads_keys(variant, own, problem)) {
    return fmt::format("B_r: {} rows share keys, which tiles of {} read again and again", problem.rows(), variant.B_r);
  }
  if (lacks_clusters(variant, own, problem, device)) {
    return fmt::format("cluster: {} keys are merged sooner within clusters, which the row's are not",
                       problem.longest_keys());
  }
  if (has_long_steps(variant, own, problem, device)) {
    return fmt::format("B_c: {} keys are no more than two steps of {}", problem.longest_keys(), variant.B_c);
  }
  if (leaves_no_room(variant, own, problem, device)) {
    return fmt::format("cluster: {} tiles leave no room for clusters, which the row's have",
                       tiles_of(variant, problem));
  }
  return {};
}

}  // namespace attune
