#include "runtime/operations/decode/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/check.hpp"
#include "runtime/base/division.hpp"
#include "runtime/base/error.hpp"
#include "runtime/operations/decode/splits.hpp"

namespace attune {
namespace {

// Of a multiprocessor (CUDA programming guide 13, "Compute Capabilities").
constexpr int reserved_shared_bytes = 1024;  // of each block
constexpr int multiprocessor_registers = 65536;
constexpr int most_threads = 1536;  // that every compute capability from 8.0 on holds

/// Registers of a thread beside its accumulators, as ptxas needs them for addresses, fragments and the softmax; and
/// those that it makes do with where blocks of warps with rows of their own are to run side by side.
constexpr int working_registers = 55;
constexpr int fewest_working_registers = 40;

void require_fits(const char* what, long long value, long long most) {
  if (value > most) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("grid: {} are {}; a launch takes up to {}", what, value, most));
  }
}

/// Whether one thread block alone reads a key, and there are not too many. Measured on an H200: it spares what L2 has
/// to write back (3 of 48 us at 134 MB), but a long stream of such lines is 4% slower (from 500 MB on).
bool reads_once(const Variant& variant, const DecodeProblem& problem, const Device& device) {
  const long long bytes_per_column = 2LL * bytes_of(problem.dtype);  // of K and of V
  const long long keys =
      problem.packed_keys ? problem.total_k : static_cast<long long>(problem.batch) * problem.max_seqlen_k;
  const long long rows = keys * problem.heads_kv;
  const long long rows_in_L2 = device.l2_bytes / (bytes_per_column * problem.head_dim);
  return problem.rows() <= variant.B_r && rows < 4 * rows_in_L2;
}

/// Whether rows are merged by a warp each, which asks for four parts at a time, and not by a block: its warps take a
/// part each, and those of eight blocks run at once on a multiprocessor.
bool merges_by_warps(const DecodeProblem& problem, const Device& device, long long merges, long long parts) {
  constexpr long long parts_at_once = 4;
  constexpr long long blocks_of_multiprocessor = 8;
  const long long rows = static_cast<long long>(problem.heads_kv) * problem.rows();
  const long long rounds = ceil_div(merges * rows, blocks_of_multiprocessor * device.multiprocessors);
  return rows <= Grid::max_yz && parts <= parts_at_once * (2 * rounds - 1);
}

/// With a launch that merges so many parts of each of so many sequences, or at so many borders.
DecodePlan with_merges(DecodePlan plan, const DecodeProblem& problem, const Device& device, long long merges,
                       long long parts) {
  if (merges == 0) return plan;
  require_fits("K/V heads", problem.heads_kv, Grid::max_yz);
  plan.workspace_bytes = workspace_bytes(problem, plan.slots, plan.cuts);
  plan.warp_rows = merges_by_warps(problem, device, merges, parts);
  plan.combine_grid = {.x = static_cast<unsigned>(merges),
                       .y = static_cast<unsigned>(problem.heads_kv),
                       .z = static_cast<unsigned>(problem.rows())};
  return plan;
}

/// With so many parts of each sequence.
DecodePlan with_splits(DecodePlan plan, const DecodeProblem& problem, const Device& device, int splits) {
  const long long parts = static_cast<long long>(problem.batch) * splits;
  require_fits("the sequences", problem.batch, Grid::max_yz);
  plan.splits = splits;
  plan.parts = plan.slots = static_cast<int>(parts);
  plan.grid.y = static_cast<unsigned>(splits);
  plan.grid.z = static_cast<unsigned>(problem.batch);
  plan.grid.cluster = plan.variant.cluster != 0 ? static_cast<unsigned>(splits) : 1U;
  return splits == 1 || plan.variant.cluster != 0 ? plan : with_merges(plan, problem, device, problem.batch, splits);
}

/// As ProblemFacts has it.
std::vector<std::string> refusals_of_decode(const void* problem, const Variant& variant) {
  return launch_refusals(variant, *static_cast<const DecodeProblem*>(problem));
}

}  // namespace

std::vector<std::string> launch_refusals(const Variant& variant, const DecodeProblem& problem) {
  if (variant.cluster == 0 || problem.splits <= most_in_cluster) return {};
  return {fmt::format("splits: a cluster has up to {} blocks, the problem asks for {} parts", most_in_cluster,
                      problem.splits)};
}

const ProblemFacts DecodeProblem::facts = usual_facts<DecodeProblem>(refusals_of_decode);

int blocks_per_multiprocessor(const Variant& variant, const Device& device) {
  const Resources needs = resources(variant);
  const int by_shared_memory = device.shared_per_sm / (needs.shared_bytes + reserved_shared_bytes);
  const int by_threads = most_threads / needs.threads;
  if (variant.split_rows == 0) {
    const int by_registers =
        multiprocessor_registers / ((needs.accumulator_registers + working_registers) * needs.threads);
    return std::max(1, std::min({by_shared_memory, by_threads, by_registers}));
  }
  // The kernel asks ptxas for as many, up to three. Each quarter of a multiprocessor has a whole number of warps.
  constexpr int most_blocks = 3;
  constexpr int quarters = 4;
  constexpr int lane_registers = multiprocessor_registers / (quarters * 32);
  const int most_warps = lane_registers / (needs.accumulator_registers + fewest_working_registers) * quarters;
  return std::max(1, std::min({by_shared_memory, by_threads, most_warps / variant.warps, most_blocks}));
}

std::size_t workspace_bytes(const DecodeProblem& problem, long long slots, long long cuts) {
  constexpr std::size_t cut_bytes = 8;
  const long long rows = slots * problem.heads_kv * problem.rows();
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded_head_dim(problem.head_dim) + 1) *
             sizeof(float) +
         static_cast<std::size_t>(cuts) * cut_bytes;
}

Grid combine_grid(const DecodePlan& plan, const Variant& combine) {
  if (!plan.warp_rows) return plan.combine_grid;
  const long long rows = static_cast<long long>(plan.combine_grid.y) * plan.combine_grid.z;
  return {.x = plan.combine_grid.x, .y = static_cast<unsigned>(ceil_div(rows, combine.warps)), .z = 1};
}

DecodePlan with_parts(DecodePlan plan, const DecodeProblem& problem, const Device& device, long long parts) {
  require_fits("the parts of the batch", parts, Grid::max_yz);
  plan.splits = 0;
  plan.parts = static_cast<int>(parts);
  plan.slots = static_cast<int>(2 * parts);
  plan.grid.y = static_cast<unsigned>(parts);
  plan.grid.z = 1;
  // Sequences or, where they are fewer, borders between the parts, of which decode says what they cut.
  const long long row_tiles = plan.grid.x / static_cast<unsigned>(problem.heads_kv);
  plan.cuts = static_cast<int>(parts > 1 && parts <= problem.batch ? row_tiles * parts : 0);
  plan.workspace_bytes = 0;
  plan.combine_grid = {};
  if (parts == 1) return plan;
  const long long batch = std::max(1, problem.batch);
  return with_merges(plan, problem, device, std::min(parts - 1, batch), parts / batch + 2);
}

DecodePlan plan(const Variant& variant, const DecodeProblem& problem, const Device& device) {
  const long long tiles = ceil_div(problem.rows(), variant.B_r) * problem.heads_kv;
  require_fits("the tiles of all K/V heads", tiles, Grid::max_x);
  const long long some_tiles = std::max(1LL, tiles);
  int splits = problem.splits;
  if (splits == 0 && variant.cluster != 0) {
    splits = cluster_splits(variant, problem, device, some_tiles);
  } else if (splits == 0 && problem.one_length()) {
    splits = equal_splits(variant, problem, device, some_tiles);
  } else if (splits == 0 && (stays_whole(variant, problem, device, some_tiles) || !is_countable(variant, problem))) {
    splits = 1;
  }
  const Resources needs = resources(variant);
  const DecodePlan result{.variant = variant,
                          .grid = {.x = static_cast<unsigned>(tiles)},
                          .threads = needs.threads,
                          .shared_bytes = needs.shared_bytes,
                          .evict_first = reads_once(variant, problem, device),
                          .combine_grid = {}};
  return splits == 0 ? with_parts(result, problem, device, parts_of_batch(variant, problem, device, some_tiles))
                     : with_splits(result, problem, device, splits);
}

bool leaves_idle(const DecodePlan& plan, const DecodeProblem& problem, const Device& device) {
  const long long blocks = static_cast<long long>(plan.grid.x) * problem.batch * plan.splits;
  return plan.splits > 0 &&
         leaves_idle(plan.variant, problem, device, blocks, ceil_div(problem.longest_keys(), plan.splits));
}

}  // namespace attune
