#include "runtime/operations/decode/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"

namespace attune {
namespace {

// Of a grid and of a multiprocessor (CUDA programming guide 13, "Compute Capabilities").
constexpr long long max_grid_x = std::numeric_limits<int>::max();
constexpr long long max_grid_yz = 65535;
constexpr int reserved_shared_bytes = 1024;  // of each block
constexpr int multiprocessor_registers = 65536;
constexpr int most_in_cluster = 8;  // blocks, on every GPU that has clusters
constexpr int most_threads = 1536;  // that every compute capability from 8.0 on holds

/// Registers of a thread beside its accumulators, as ptxas needs them for addresses, fragments and the softmax; and
/// those that it makes do with where blocks of warps with rows of their own are to run side by side.
constexpr int working_registers = 55;
constexpr int fewest_working_registers = 40;

long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

void require_fits(const char* what, long long value, long long most) {
  if (value > most) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("grid: {} are {}; a launch takes up to {}", what, value, most));
  }
}

/// Thread blocks that run side by side.
long long blocks_at_once(const Variant& variant, const Device& device) {
  return static_cast<long long>(device.multiprocessors) * blocks_per_multiprocessor(variant, device);
}

/// Parts of a sequence that are worth a thread block: a few steps each.
long long most_splits(const Variant& variant, const DecodeProblem& problem) {
  constexpr long long fewest_steps = 4;
  return ceil_div(problem.longest_keys(), fewest_steps * variant.B_c);
}

/// Whether a block for each sequence keeps the GPU busy to seven eighths, in rounds or with one on each multiprocessor:
/// then more parts gain nothing, and are to be combined. A block that looks up pages has much to do between its
/// requests: alone on a multiprocessor it needs eight warps (74 us then, with four 77 to 99, at head_dim 64 on an
/// H200).
bool fills(long long rows, long long blocks, const Variant& variant, const Device& device) {
  constexpr int busy_warps = 8;
  const bool alone = variant.paged == 0 || variant.warps >= busy_warps;
  const long long round = rows > blocks || !alone ? blocks : device.multiprocessors;
  return rows * 8 >= ceil_div(rows, round) * round * 7;
}

/// What it takes to merge the parts of a sequence, as a time that steps of keys take: at all, and for each part.
/// Measured on an H200 with one sequence of 512 to 2,048 keys, head_dim 64 to 256: a step is 0.4 to 0.9 us.
struct MergeCost {
  double all;
  double part;
};
constexpr MergeCost second_kernel{.all = 2.4, .part = 0.12};
constexpr MergeCost within_cluster{.all = 2.0, .part = 0.0};

double steps_with(long long steps, long long splits, const MergeCost& merge) {
  const auto longest = static_cast<double>(ceil_div(steps, splits));
  return splits == 1 ? longest : longest + merge.all + merge.part * static_cast<double>(splits);
}

/// Of splits that all run at once those that take the shortest time; where each of as many as there is room for has a
/// few steps, memory limits, and they are that many. What a part leaves of each row is written and read, as much as two
/// keys; where memory limits, a round's step takes as long as three that wait.
long long best_splits(const Variant& variant, const DecodeProblem& problem, long long rows, long long blocks) {
  constexpr double keys_left = 2.0 * 3;
  const long long steps = std::max(1LL, ceil_div(problem.longest_keys(), variant.B_c));
  const long long most = blocks / rows;
  const double left =
      keys_left * static_cast<double>(problem.rows() * rows) / static_cast<double>(variant.B_c * blocks);
  const MergeCost merge{.all = second_kernel.all, .part = second_kernel.part + left};
  constexpr long long few_steps = 4;
  if (steps >= few_steps * most) return std::max(1LL, most);
  long long best = 1;
  double least = steps_with(steps, 1, merge);
  for (long long each = ceil_div(steps, most); each <= few_steps; ++each) {
    const long long splits = ceil_div(steps, each);
    const double cost = steps_with(steps, splits, merge);
    if (cost < least) {
      least = cost;
      best = splits;
    }
  }
  return best;
}

/// Of sequences that are more than run at once, so many that the last round is not long and nearly empty. A round whose
/// blocks have a multiprocessor each takes a third of the time of a full one, which memory limits; so does its merge
/// beside the steps. What parts leave is written and read: of each row as much as two keys. Whole sequences stay where
/// it is a matter of 5%.
long long best_in_rounds(const Variant& variant, const DecodeProblem& problem, long long rows, long long blocks) {
  constexpr double alone = 1.0 / 3;
  constexpr long long most = 4;
  constexpr double worth = 0.95;
  const long long steps = ceil_div(problem.longest_keys(), variant.B_c);
  const auto cost = [&](long long splits) {
    const long long whole_rounds = rows * splits / blocks;
    const double last = static_cast<double>(rows * splits % blocks) / static_cast<double>(blocks);
    const double rounds = static_cast<double>(whole_rounds) + (last > 0 ? std::max(alone, last) : 0);
    const double each = rounds * static_cast<double>(ceil_div(steps, splits));
    if (splits == 1) return each;
    const auto left = static_cast<double>(2 * splits * problem.rows()) / static_cast<double>(variant.B_c);
    return each + left * static_cast<double>(rows) / static_cast<double>(blocks) +
           alone * (second_kernel.all + second_kernel.part * static_cast<double>(splits));
  };
  long long best = 1;
  double least = worth * cost(1);
  for (long long splits = 2; splits <= std::min(most, steps); ++splits) {
    if (cost(splits) >= least) continue;
    least = cost(splits);
    best = splits;
  }
  return best;
}

/// Splits that keep heads in step whose rows are shorter than L2's lines: neighbours share these, and blocks that walk
/// through all keys drift apart. Measured on an H200 (head_dim 32 to 56, 204 to 1,216 sequences of heads): 15 to 22% of
/// the time where each block has several of these parts one after the other, of two steps at least; not where the GPU
/// holds twice as many blocks as there are sequences, which fewer parts serve at once.
long long splits_in_step(const Variant& variant, const DecodeProblem& problem, const Device& device, long long rows) {
  constexpr int line_columns = 64;
  constexpr long long rounds = 8;
  constexpr double gain = 0.15;
  const long long blocks = blocks_at_once(variant, device);
  const long long steps = ceil_div(problem.longest_keys(), variant.B_c);
  const long long splits = std::min(rounds * blocks / rows, steps / 2);
  const bool has_neighbours = problem.head_dim <= line_columns && problem.heads_kv > 1;
  if (!has_neighbours || splits <= 1 || rows * 2 < blocks) return 1;
  const double all_steps = static_cast<double>(rows * steps) / device.multiprocessors;
  return gain * all_steps > second_kernel.all + second_kernel.part * static_cast<double>(splits) ? splits : 1;
}

/// For sequences of one length.
int equal_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = std::max(1LL, tiles * problem.batch);
  if (fills(rows, blocks, variant, device)) return 1;
  const long long at_once =
      rows <= blocks ? best_splits(variant, problem, rows, blocks) : best_in_rounds(variant, problem, rows, blocks);
  return static_cast<int>(std::min(256LL, std::max(at_once, splits_in_step(variant, problem, device, rows))));
}

/// As many parts as make a cluster, a power of two. A cluster lives within a group of multiprocessors (GPC), of which
/// those of four and eight blocks fill ten elevenths on an H200 (cudaOccupancyMaxActiveClusters).
int cluster_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = tiles * problem.batch;
  if (fills(rows, blocks, variant, device)) return 1;
  const long long steps = std::max(1LL, ceil_div(problem.longest_keys(), variant.B_c));
  int best = 1;
  for (int splits = 2; splits <= most_in_cluster; splits *= 2) {
    const long long room = splits > 2 ? blocks * 10 / 11 : blocks;
    if (rows * splits > room) break;
    if (steps_with(steps, splits, within_cluster) < steps_with(steps, best, within_cluster)) best = splits;
  }
  return best;
}

/// Whether sequences whose lengths the device alone knows are too short to be parted: so that each is a block's, which
/// spares the search for where parts begin, and a second kernel. On an H200, of up to four steps of keys 5 to 40%
/// faster whatever the lengths; of up to eight as well, but for one such sequence among few short ones.
bool stays_whole(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long parts = most_splits(variant, problem);
  const bool many = tiles * problem.batch * 8 >= blocks_at_once(variant, device);
  return problem.batch <= max_grid_yz && (parts == 1 || (parts == 2 && many));
}

/// As many parts of the whole batch as keep the GPU full. Where there are more parts than sequences each sequence has
/// as many, so that those of one length end where parts do.
long long parts_of_batch(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long batch = std::max(1, problem.batch);
  const long long blocks = blocks_at_once(variant, device);
  if (batch * tiles <= blocks && fills(batch * tiles, blocks, variant, device)) return batch;
  const long long parts = std::max(1LL, std::min({blocks / tiles, most_splits(variant, problem) * batch, max_grid_yz}));
  return parts > batch ? parts / batch * batch : parts;
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
  return rows <= max_grid_yz && parts <= parts_at_once * (2 * rounds - 1);
}

/// With a launch that merges so many parts of each of so many sequences, or at so many borders.
DecodePlan with_merges(DecodePlan plan, const DecodeProblem& problem, const Device& device, long long merges,
                       long long parts) {
  if (merges == 0) return plan;
  require_fits("K/V heads", problem.heads_kv, max_grid_yz);
  plan.workspace_bytes = workspace_bytes(problem, plan.slots, plan.cuts);
  plan.warp_rows = merges_by_warps(problem, device, merges, parts);
  plan.combine_grid = {.x = static_cast<unsigned>(merges),
                       .y = static_cast<unsigned>(problem.heads_kv),
                       .z = static_cast<unsigned>(problem.rows())};
  return plan;
}

/// Whether kernels can count the blocks of all keys of the batch one after the other, which they do in 32 bits.
bool is_countable(const Variant& variant, const DecodeProblem& problem) {
  return problem.batch * ceil_div(problem.max_seqlen_k, variant.B_c) <= std::numeric_limits<int>::max();
}

/// With so many parts of each sequence.
DecodePlan with_splits(DecodePlan plan, const DecodeProblem& problem, const Device& device, int splits) {
  const long long parts = static_cast<long long>(problem.batch) * splits;
  require_fits("the sequences", problem.batch, max_grid_yz);
  plan.splits = splits;
  plan.parts = plan.slots = static_cast<int>(parts);
  plan.grid.y = static_cast<unsigned>(splits);
  plan.grid.z = static_cast<unsigned>(problem.batch);
  plan.grid.cluster = plan.variant.cluster != 0 ? static_cast<unsigned>(splits) : 1U;
  return splits == 1 || plan.variant.cluster != 0 ? plan : with_merges(plan, problem, device, problem.batch, splits);
}

/// As ProblemFacts has it.
std::vector<std::string> refusals_of(const void* problem, const Variant& variant) {
  return launch_refusals(variant, *static_cast<const DecodeProblem*>(problem));
}

}  // namespace

std::vector<std::string> launch_refusals(const Variant& variant, const DecodeProblem& problem) {
  if (variant.cluster == 0 || problem.splits <= most_in_cluster) return {};
  return {fmt::format("splits: a cluster has up to {} blocks, the problem asks for {} parts", most_in_cluster,
                      problem.splits)};
}

const ProblemFacts DecodeProblem::facts = usual_facts<DecodeProblem>(refusals_of);

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
  require_fits("the parts of the batch", parts, max_grid_yz);
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
  require_fits("the tiles of all K/V heads", tiles, max_grid_x);
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

}  // namespace attune
