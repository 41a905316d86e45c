#include "runtime/operations/backward/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/division.hpp"
#include "runtime/base/error.hpp"
#include "templates/backward_params.h"

namespace attune {
namespace {

constexpr int lanes = 32;
constexpr int lane_columns = 8;          // of one row
constexpr int mma_rows = 16;             // that a warp of backward_convert has
constexpr double least_occupancy = 0.9;  // of the thread blocks wanted; fewer are too few

/// Rows of a thread block of backward_rows, whose lanes have 16 bytes of a row each.
int block_rows_of(const Variant& variant) {
  int row_lanes = 4;
  while (row_lanes < lanes && row_lanes * lane_columns < variant.head_dim) row_lanes *= 2;
  return variant.warps * lanes / row_lanes;
}

/// Tiles of heads in groups (templates/blocks/schedule.cuh), so that what all tiles of a head read and add to shares
/// L2, half of it; or two heads all of it, where tiles wait for those of the same head. Of heads in parts no group is
/// larger than all heads of a part.
Grid grouped_grid(long long heads, long long tiles, long long bytes_per_head, const Device& device, int parts = 1,
                  bool in_order = false) {
  if (heads == 0 || tiles == 0) return {.x = 0, .y = 0, .z = 0};
  const long long bytes = std::max(1LL, bytes_per_head);
  const long long two = in_order && 2 * bytes <= device.l2_bytes ? 2 : 1;
  const long long fit = std::max(device.l2_bytes / 2 / bytes, two);
  const long long group = std::min(heads / parts, std::max(fit, ceil_div(heads, Grid::max_yz)));
  return {.x = static_cast<unsigned>(group),
          .y = static_cast<unsigned>(tiles),
          .z = static_cast<unsigned>(ceil_div(heads, group))};
}

/// Thread blocks that share the query heads of a tile of keys: the fewest, of equally many heads each, that give each
/// multiprocessor nearly two blocks, or where masks make them unlike, eight.
int head_parts_of(const Variant& variant, const BackwardProblem& problem, const Device& device) {
  if (!family_of(variant).tensor_maps || problem.heads_kv == 0) return 1;
  const int heads = problem.heads_q / problem.heads_kv;
  const bool is_full = variant.causal == 0 && variant.window == 0 && variant.mask == 0;
  const double wanted = (is_full ? 2 : 8) * least_occupancy * device.multiprocessors;
  const double blocks =
      static_cast<double>(problem.batch) * problem.heads_kv * ceil_div(problem.longest_keys(), variant.B_c);
  for (int parts = 1; parts < heads; ++parts) {
    if (heads % parts == 0 && blocks * parts >= wanted) return parts;
  }
  return std::max(heads, 1);
}

void check_tiles(std::vector<std::string>& found, const char* field, int seqlen, const char* size, int tile) {
  if (ceil_div(seqlen, tile) > Grid::max_yz) {
    found.push_back(fmt::format("grid: {} is {}; a kernel of {} {} takes up to {}", field, seqlen, size, tile,
                                Grid::max_yz * tile));
  }
}

/// What all launches have to hold.
std::vector<std::string> common_refusals(const BackwardProblem& problem) {
  std::vector<std::string> found;
  if (problem.batch > Grid::max_yz || problem.heads_q > Grid::max_yz) {
    found.push_back(fmt::format("grid: batch is {} and heads_q {}; a launch takes up to {} of each", problem.batch,
                                problem.heads_q, Grid::max_yz));
  }
  if (problem.padded_rows() > Grid::max_x) {
    found.push_back(fmt::format("grid: batch {} of {} rows are more than {}; split the batch", problem.batch,
                                problem.seqlen_q, Grid::max_x));
  }
  return found;
}

std::vector<std::string> refusals_of_backward(const void* problem, const Variant& variant) {
  return part_refusals(Operation::backward, *static_cast<const BackwardProblem*>(problem), variant);
}

template <class OneProblem>
void require_launch(const Variant& variant, const OneProblem& problem) {
  const std::vector<std::string> reasons = ProblemView(problem).launch_refusals(variant);
  if (!reasons.empty()) throw Error(ATTUNE_UNSUPPORTED, fmt::format("{}", fmt::join(reasons, "; ")));
}

/// A block for so many rows of each head and sequence.
Grid row_grid(const BackwardProblem& problem, long long rows, int block_rows) {
  if (rows == 0 || problem.batch == 0) return {.x = 0, .y = 0, .z = 0};
  return {.x = static_cast<unsigned>(ceil_div(rows, block_rows)),
          .y = static_cast<unsigned>(problem.heads_q),
          .z = static_cast<unsigned>(problem.batch)};
}

}  // namespace

const ProblemFacts BackwardProblem::facts = usual_facts<BackwardProblem>(refusals_of_backward);
std::vector<std::string> part_refusals(Operation part, const BackwardProblem& whole, const Variant& variant) {
  std::vector<std::string> found = common_refusals(whole);
  if (part == Operation::backward) {
    check_tiles(found, "seqlen_k", whole.longest_keys(), "B_c", variant.B_c);
    if (const std::optional<Refusal> refusal = gradients_rule(variant)) found.push_back(refusal->message);
  }
  if (part == Operation::backward_queries) check_tiles(found, "seqlen_q", whole.longest_queries(), "B_r", variant.B_r);
  return found;
}

Launch plan(const Variant& variant, const BackwardProblem& problem, const Device& device) {
  require_launch(variant, problem);
  // Q, dO and the sums that become dQ of the heads that a block has.
  const BackwardWorkspace workspace = workspace_of(variant, problem, device);
  const long long row_bytes =
      static_cast<long long>(problem.head_dim + problem.head_dim_of_v()) * bytes_of(problem.dtype) +
      workspace.dq_columns * static_cast<long long>(sizeof(float));
  const int parts = workspace.head_parts;
  const long long bytes = problem.longest_queries() * row_bytes * (problem.heads_q / problem.heads_kv / parts);
  return launch_of(variant, grouped_grid(static_cast<long long>(problem.heads_kv) * problem.batch * parts,
                                         ceil_div(problem.longest_keys(), variant.B_c), bytes, device, parts,
                                         variant.deterministic != 0));
}

Launch plan(const Variant& variant, const BackwardPart<Operation::backward_queries>& queries, const Device& device) {
  require_launch(variant, queries);
  const BackwardProblem& problem = queries.whole;
  const long long columns = problem.head_dim + problem.head_dim_of_v();
  const long long bytes =
      problem.longest_keys() * columns * bytes_of(problem.dtype) / (problem.heads_q / problem.heads_kv);
  return launch_of(variant, grouped_grid(static_cast<long long>(problem.heads_q) * problem.batch,
                                         ceil_div(problem.longest_queries(), variant.B_r), bytes, device));
}

Launch plan(const Variant& variant, const BackwardPart<Operation::backward_rows>& rows) {
  require_launch(variant, rows);
  const BackwardProblem& problem = rows.whole;
  constexpr long long padding = ATTUNE_BACKWARD_ROWS;
  // A ragged batch without queries may have gradients to clear.
  const long long longest =
      std::max(ceil_div(problem.longest_queries(), padding), problem.ragged ? 1LL : 0LL) * padding;
  return launch_of(variant, row_grid(problem, longest, block_rows_of(variant)));
}

Launch plan(const Variant& variant, const BackwardPart<Operation::backward_convert>& conversion) {
  require_launch(variant, conversion);
  const BackwardProblem& problem = conversion.whole;
  return launch_of(variant, row_grid(problem, problem.longest_queries(), variant.warps * mma_rows));
}

int turn_rows(const Variant& variant) {
  const bool adds_halves = family_of(variant).tensor_maps && variant.B_c == 64;  // each in turns of its own
  return adds_halves ? variant.B_r / 2 : variant.B_r;
}

BackwardWorkspace workspace_of(const Variant& variant, const BackwardProblem& problem, const Device& device) {
  const std::size_t rows = static_cast<std::size_t>(problem.padded_rows()) * problem.heads_q;
  BackwardWorkspace result{.statistics_bytes = rows * 2 * sizeof(float)};
  const bool adds = family_of(variant).tensor_maps || variant.deterministic == 0;
  if (!adds) return result;
  if (variant.deterministic != 0) result.turn_bytes = rows / turn_rows(variant) * sizeof(std::uint64_t);
  result.dq_columns = variant.head_dim;
  result.dq_in_quads = family_of(variant).tensor_maps;
  result.dq_bytes = rows * variant.head_dim * sizeof(float);
  result.head_parts = head_parts_of(variant, problem, device);
  if (result.head_parts > 1) {
    const std::size_t tiles =
        static_cast<std::size_t>(problem.batch) * problem.heads_kv * ceil_div(problem.longest_keys(), variant.B_c);
    result.key_sum_bytes = tiles * 2 * variant.B_c * variant.head_dim * sizeof(float);
    result.key_turn_bytes = tiles * key_warps * sizeof(std::uint64_t);
  }
  return result;
}

}  // namespace attune
