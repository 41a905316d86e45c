#include "runtime/operations/decode/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "generator/check.hpp"
#include "runtime/base/division.hpp"
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

/// Of K and of V.
long long key_bytes(const DecodeProblem& problem) { return 2LL * bytes_of(problem.dtype) * problem.head_dim; }

/// Whether a block for each sequence keeps the GPU busy to seven eighths, in rounds or, where blocks may be alone on a
/// multiprocessor, with one on each: then more parts gain nothing, and are to be combined.
bool fills(long long rows, long long blocks, bool alone, const Device& device) {
  const long long round = rows > blocks || !alone ? blocks : device.multiprocessors;
  return rows * 8 >= ceil_div(rows, round) * round * 7;
}

/// Whether a block that looks up pages for parts of clusters or of the whole batch has enough under way alone on a
/// multiprocessor, as eight warps have: 74 us then, with four 77 to 99, at head_dim 64 on an H200.
bool reads_alone(const Variant& variant) {
  constexpr int busy_warps = 8;
  return variant.paged == 0 || variant.warps >= busy_warps;
}

/// Multiprocessors on which blocks that have enough under way read as fast as the whole GPU would: seven tenths.
long long enough_blocks(const Device& device) { return ceil_div(device.multiprocessors * 7LL, 10); }

/// Whether a block alone on its multiprocessor has as much under way as that takes.
bool reads_apace(const Variant& variant, const DecodeProblem& problem) {
  constexpr long long enough_bytes = 24LL << 10;
  return key_bytes(problem) * variant.B_c * std::max(1, variant.stages - 1) >= enough_bytes;
}

/// Whether keys lie one by one, so that a block alone waits for each step. Measured on an H200 with pages of one token,
/// 80 and 108 sequences of heads of some 800 keys: two and three parts of each take 12 to 13% less.
bool finds_each_key(const Variant& variant, const DecodeProblem& problem) {
  constexpr int few_tokens = 16;
  return variant.paged != 0 && problem.page_size < few_tokens;
}

/// Whether blocks that have a multiprocessor each read as fast as more would. Measured on an H200 with 96 and 112
/// sequences of heads, head_dim 48 to 256: two parts of each take 0 to 30% longer; head_dim 32 has too little under
/// way.
bool keep_up(long long blocks, const Variant& variant, const DecodeProblem& problem, const Device& device) {
  return reads_apace(variant, problem) && blocks >= enough_blocks(device) && blocks <= device.multiprocessors;
}

/// Whether fewer blocks, of so many keys each, are done before parts of these would be merged: on an H200 that takes
/// 2 us, in which a multiprocessor reads 72 KB. Measured there with 64 to 88 sequences of heads of 300 to 700 keys,
/// head_dim 64 to 128: parts take 0 to 27% longer.
bool done_before_merging(long long blocks, long long keys, const DecodeProblem& problem, const Device& device) {
  constexpr long long read_meanwhile = 72LL << 10;
  const long long enough = enough_blocks(device);
  return blocks < enough && key_bytes(problem) * keys * (enough - blocks) <= read_meanwhile * enough;
}

/// What it takes to merge the parts of a sequence, as a time that steps of keys take: at all, and for each part.
/// Measured on an H200 with one sequence of 512 to 2,048 keys, head_dim 64 to 256: a step is 0.4 to 0.9 us. One whose
/// warps have rows of their own, and each all keys, is three times that: 1.5 to 2.1 us with 80 rows.
struct MergeCost {
  double all;
  double part;
};
constexpr double steps_with_rows = 1.0 / 3;
constexpr MergeCost second_kernel{.all = 2.4, .part = 0.12};
constexpr MergeCost within_cluster{.all = 2.0, .part = 0.0};

double steps_with(long long steps, long long splits, const MergeCost& merge) {
  const auto longest = static_cast<double>(ceil_div(steps, splits));
  return splits == 1 ? longest : longest + merge.all + merge.part * static_cast<double>(splits);
}

/// Of long sequences so many parts that rounds end together: as many as there is room for at once leave up to half of
/// the multiprocessors a block less than the others. A part costs what a block reads while it begins, and what it
/// leaves of each row, as much as two keys, written and read where memory limits.
long long splits_in_rounds(const DecodeProblem& problem, long long rows, long long blocks) {
  constexpr long long read_by_then = 96LL << 10;
  constexpr long long most_rounds = 8;
  const long long keys_each = read_by_then / key_bytes(problem) + 2LL * 3 * problem.rows();
  const auto cost = [&](long long splits) {
    return ceil_div(rows * splits, blocks) * (ceil_div(problem.longest_keys(), splits) + keys_each);
  };
  long long best = std::max(1LL, blocks / rows);
  for (long long rounds = 2; rounds <= most_rounds; ++rounds) {
    const long long splits = rounds * blocks / rows;
    if (cost(splits) < cost(best)) best = splits;
  }
  return best;
}

/// Of splits that all run at once those that take the shortest time; where each of as many as there is room for has a
/// few steps, memory limits, and they are at least that many. What a part leaves of each row is written and read, as
/// much as two keys; where memory limits, a round's step takes as long as three that wait.
long long best_splits(const Variant& variant, const DecodeProblem& problem, long long rows, long long blocks) {
  constexpr double keys_left = 2.0 * 3;
  const long long steps = std::max(1LL, ceil_div(problem.longest_keys(), variant.B_c));
  const long long most = blocks / rows;
  const double left =
      keys_left * static_cast<double>(problem.rows() * rows) / static_cast<double>(variant.B_c * blocks);
  const double steps_each = variant.split_rows != 0 ? steps_with_rows : 1;
  const MergeCost merge{.all = steps_each * second_kernel.all, .part = steps_each * second_kernel.part + left};
  constexpr long long few_steps = 4;
  if (steps >= few_steps * most) return splits_in_rounds(problem, rows, blocks);
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

/// Of sequences that are more than multiprocessors: whole ones, or so many that few rounds end together, where each
/// part has some steps. What parts leave of a row is written and read, as much as two keys: 4% at most. Measured on an
/// H200 with 136 to 420 sequences of heads, head_dim 64 to 256: four parts are the fastest or within 4% of that, whole
/// ones take 0 to 27% longer.
long long best_in_rounds(const Variant& variant, const DecodeProblem& problem, long long rows, long long blocks) {
  constexpr long long few_rounds = 4;
  constexpr long long parts = 4;
  constexpr long long enough_steps = 4;
  constexpr long long keys_each_row = 50;
  const long long keys = problem.longest_keys();
  if (rows > few_rounds * blocks || keys < parts * enough_steps * variant.B_c) return 1;
  return std::clamp(keys / (keys_each_row * problem.rows()), 1LL, parts);
}

/// Whether rows of keys are parts of L2's lines, which neighbouring heads share.
bool shares_lines(const DecodeProblem& problem) {
  constexpr int line_columns = 64;
  return problem.head_dim % line_columns != 0 && problem.heads_kv > 1;
}

/// Splits that keep heads in step which share lines: blocks that walk through many keys drift apart, and lines leave L2
/// before the neighbour has read them. 0 where all keys are hardly more than L2 holds, or parts would not fill the GPU.
/// Measured on an H200 with 16 to 420 sequences of heads, head_dim 32 to 96, 6,000 and 40,000 keys: 5 to 55% faster
/// than as many parts as run at once. Shorter rows drift sooner; where not all sequences run at once, longer parts are
/// as good. Blocks that look up pages take longer to begin: of pages below 128 tokens parts of 1,000 keys, in eight
/// rounds at least, take 0 to 9% less than parts of 256 to 512.
long long splits_in_step(const Variant& variant, const DecodeProblem& problem, const Device& device, long long rows) {
  constexpr int short_row = 64;
  constexpr long long most_rounds = 64;
  constexpr long long keys_each_row = 50;
  constexpr int large_page = 128;
  constexpr long long keys_in_pages = 1000;
  constexpr long long enough_rounds = 8;
  const long long blocks = blocks_at_once(variant, device);
  const long long keys = problem.longest_keys();
  if (!shares_lines(problem) || keys < 3 * device.l2_bytes / (2 * key_bytes(problem) * rows)) return 0;
  const long long in_step = problem.head_dim > short_row ? 512 : rows <= blocks ? 256 : 400;
  long long splits = std::min(keys / std::max(in_step, keys_each_row * problem.rows()), most_rounds * blocks / rows);
  if (problem.paged() && problem.page_size < large_page) {
    splits = std::min(splits, std::max(keys / keys_in_pages, enough_rounds * blocks / rows));
  }
  return rows * splits >= blocks ? splits : 0;
}

/// Whether kernels can count the blocks of all keys of the batch one after the other, which they do in 32 bits.
bool is_countable(const Variant& variant, const DecodeProblem& problem) {
  return problem.batch * ceil_div(problem.max_seqlen_k, variant.B_c) <= std::numeric_limits<int>::max();
}

/// Of more sequences than multiprocessors, by blocks whose warps have rows of their own: what these take for a step
/// limits, not memory, so that multiprocessors are to have as many steps to do. Two parts of each sequence where they
/// run at once; 0, parts of the whole batch, where not even whole sequences do and each part has some steps. Measured
/// on an H200 with 71 heads for one of keys: 184 sequences of 5,632 keys (head_dim 80) 148 us in two parts each, 166 by
/// parts of the batch, 212 whole; where a multiprocessor has one block 150 of 1,200 keys (200) 118, 101 and 136, 168 of
/// 595 keys (240) 85, 79 and 86.
long long parts_alike(const Variant& variant, const DecodeProblem& problem, long long tiles, long long blocks) {
  constexpr long long enough_steps = 8;
  const long long rows = tiles * problem.batch;
  if (problem.longest_keys() >= enough_steps * variant.B_c) {
    if (2 * rows <= blocks) return blocks / rows;
    const bool fills_it = blocks / tiles * tiles * 8 >= blocks * 7;
    if (rows > blocks && fills_it && is_countable(variant, problem)) return 0;
  }
  return best_in_rounds(variant, problem, rows, blocks);
}

/// For sequences of one length; 0: parts of the whole batch.
int equal_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  constexpr long long most = 256;
  constexpr long long apart_keys = 16'000;  // blocks that begin together and are alone are in step for so long
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = std::max(1LL, tiles * problem.batch);
  const bool apart = !finds_each_key(variant, problem);
  const bool alone = apart && keep_up(rows, variant, problem, device);
  if (alone && problem.longest_keys() < apart_keys) return 1;
  if (apart && reads_apace(variant, problem) && done_before_merging(rows, problem.longest_keys(), problem, device)) {
    return 1;
  }
  if (const long long splits = splits_in_step(variant, problem, device, rows)) {
    return static_cast<int>(std::min(most, splits));
  }
  if (alone || fills(rows, blocks, true, device)) return 1;
  if (rows > device.multiprocessors) {
    return static_cast<int>(variant.split_rows != 0 ? parts_alike(variant, problem, tiles, blocks)
                                                    : best_in_rounds(variant, problem, rows, blocks));
  }
  const long long parted = device.multiprocessors / rows * rows;
  const bool in_step = apart && shares_lines(problem) && keep_up(parted, variant, problem, device);
  return static_cast<int>(
      std::min(most, best_splits(variant, problem, rows, in_step ? device.multiprocessors : blocks)));
}

/// As many parts as make a cluster, a power of two. A cluster lives within a group of multiprocessors (GPC), of which
/// those of four and eight blocks fill ten elevenths on an H200 (cudaOccupancyMaxActiveClusters).
int cluster_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = tiles * problem.batch;
  if (fills(rows, blocks, reads_alone(variant), device)) return 1;
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
  if (batch * tiles <= blocks && fills(batch * tiles, blocks, reads_alone(variant), device)) return batch;
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

bool leaves_idle(const DecodePlan& plan, const DecodeProblem& problem, const Device& device) {
  const long long blocks = static_cast<long long>(plan.grid.x) * problem.batch * plan.splits;
  return plan.splits > 0 && reads_apace(plan.variant, problem) && blocks < enough_blocks(device) &&
         !done_before_merging(blocks, ceil_div(problem.longest_keys(), plan.splits), problem, device);
}

}  // namespace attune
