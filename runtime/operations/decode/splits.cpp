#include "runtime/operations/decode/splits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/division.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune {
namespace {

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

/// Keys of a sequence that its queries see.
long long seen_keys(const DecodeProblem& problem) {
  const long long keys = problem.longest_keys();
  return problem.window_left < 0 ? keys : std::min<long long>(keys, 0LL + problem.window_left + problem.seqlen_q);
}

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

/// The same for long sequences, which a kernel of clusters reads: three quarters. Measured on an H200 with 96 blocks of
/// 18,000 to 60,000 keys, head_dim 64 and 128: kernels with parts of any number take 7 to 16% less; with 104 and 112
/// blocks 1 to 4% more.
long long enough_in_clusters(const DecodeProblem& problem, const Device& device) {
  constexpr int long_sequence = 16'000;
  return problem.longest_keys() < long_sequence ? enough_blocks(device) : ceil_div(device.multiprocessors * 3LL, 4);
}

/// What a block has under way while it waits for a step.
long long bytes_ahead(const Variant& variant, const DecodeProblem& problem) {
  return key_bytes(problem) * variant.B_c * std::max(1, variant.stages - 1);
}

/// Whether a block alone on its multiprocessor has as much under way as that takes: two stages of 128 keys have, of
/// head_dim 40, and of 32 not.
bool reads_apace(const Variant& variant, const DecodeProblem& problem) {
  constexpr long long enough_bytes = 20LL << 10;
  return bytes_ahead(variant, problem) >= enough_bytes;
}

/// Whether a block alone waits for each step, as pages have few keys. Measured on an H200 with pages of one token, 75
/// curves: with fewer sequences of heads than multiprocessors the parts that fill the GPU once take 3 to 41% less time
/// than whole sequences, or than a part for each multiprocessor.
bool waits_for_pages(const DecodeProblem& problem) {
  constexpr int few_tokens = 16;
  return problem.paged() && problem.page_size < few_tokens;
}

/// Whether blocks that have a multiprocessor each read as fast as more would. Measured on an H200 with 96 and 112
/// sequences of heads, head_dim 48 to 256: two parts of each take 0 to 30% longer; head_dim 32 has too little under
/// way.
bool keep_up(long long blocks, const Variant& variant, const DecodeProblem& problem, const Device& device) {
  return reads_apace(variant, problem) && blocks >= enough_blocks(device) && blocks <= device.multiprocessors;
}

/// Whether fewer blocks, of so many keys each, are done before parts of these would be merged: on an H200 that takes
/// 2 us, in which a multiprocessor reads 72 to 90 KB. Measured there with 64 to 88 sequences of heads of 300 to 700
/// keys, head_dim 64 to 128: parts take 0 to 27% longer.
bool done_before_merging(long long blocks, long long keys, const DecodeProblem& problem, const Device& device) {
  constexpr long long read_meanwhile = 90LL << 10;
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
constexpr MergeCost second_kernel{.all = 2.4, .part = 0.12};
constexpr MergeCost second_kernel_of_many_rows{.all = 0.8, .part = 0.0};  // what its parts leave is counted apart

/// A cluster's takes as long as two steps of 64 keys at head_dim 128.
MergeCost within_cluster(const Variant& variant) {
  constexpr double read_meanwhile = 2.0 * 64 * 128;
  return {.all = read_meanwhile / (static_cast<double>(variant.B_c) * variant.head_dim), .part = 0.0};
}

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
    return ceil_div(rows * splits, blocks) * (ceil_div(seen_keys(problem), splits) + keys_each);
  };
  long long best = std::max(1LL, blocks / rows);
  for (long long rounds = 2; rounds <= most_rounds; ++rounds) {
    const long long splits = rounds * blocks / rows;
    if (cost(splits) * 50 < cost(best) * 49) best = splits;  // rounds that gain less have been slower
  }
  return best;
}

/// Of splits that all run at once those that take the shortest time; where each of as many as there is room for has a
/// few steps, memory limits, and they are at least that many, or just as many where one round is asked for that leaves
/// hardly any room. What a part leaves of each row is written and read, as much as two keys; where memory limits, a
/// round's step takes as long as three that wait.
long long best_splits(const Variant& variant, const DecodeProblem& problem, long long rows, long long blocks,
                      bool one_round) {
  constexpr double keys_left = 2.0 * 3;
  const long long steps = std::max(1LL, ceil_div(seen_keys(problem), variant.B_c));
  const long long most = blocks / rows;
  const double left =
      keys_left * static_cast<double>(problem.rows() * rows) / static_cast<double>(variant.B_c * blocks);
  MergeCost merge = variant.split_rows != 0 ? second_kernel_of_many_rows : second_kernel;
  merge.part += left;
  constexpr long long few_steps = 4;
  if (steps >= few_steps * most) {
    return one_round && most * rows * 25 >= blocks * 24 ? most : splits_in_rounds(problem, rows, blocks);
  }
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

/// Whether rows that share lines of L2 are shorter than one.
bool has_short_rows(const DecodeProblem& problem) {
  return problem.shares_lines() && problem.head_dim < DecodeProblem::line_columns;
}

/// Of sequences that are more than multiprocessors: whole ones, or so many that few rounds end together, where each
/// part has some steps; where multiprocessors have two sequences and more, also of fewer keys or of some bytes, and
/// still fewer where short rows share lines, as parts keep heads in step. What parts leave of a row is written and
/// read, as much as two keys: 4% at most. Measured on an H200 with 136 to 420 sequences of heads, head_dim 64 to 256:
/// four parts are the fastest or within 4% of that, whole ones take 0 to 27% longer; with 264 to 704 of 512 to 2,300
/// keys, head_dim 32 to 192: whole ones take 8% longer in the mean; with 264 to 352 of 450 to 955 keys, head_dim 112 to
/// 216: 1 to 16% longer.
long long best_in_rounds(const Variant& variant, const DecodeProblem& problem, const Device& device, long long rows) {
  constexpr long long few_rounds = 4;
  constexpr long long parts = 4;
  constexpr long long enough_steps = 4;
  constexpr long long keys_each_row = 50;
  constexpr long long enough_keys = 700;
  constexpr long long enough_short_keys = 500;
  constexpr long long enough_bytes = 250'000;
  constexpr long long fewest_keys = 450;
  const long long keys = seen_keys(problem);
  long long fewest = parts * enough_steps * variant.B_c;
  long long most = parts;
  if (rows >= 2LL * device.multiprocessors) {
    if (has_short_rows(problem) && keys < std::min(fewest, enough_keys)) most = parts - 1;
    fewest = std::min({fewest, has_short_rows(problem) ? enough_short_keys : enough_keys,
                       std::max(fewest_keys, enough_bytes / key_bytes(problem))});
  }
  if (rows > few_rounds * blocks_at_once(variant, device) || keys < fewest) return 1;
  return std::clamp(keys / (keys_each_row * problem.rows()), 1LL, most);
}

/// Up to so many sequences of heads whose lines parts share one round of blocks is as fast as parts that keep heads in
/// step, or faster: in pages of few tokens, in others that have no short rows, as their parts take longer to begin, and
/// where rows are long, so that most of their lines are whole. Measured on an H200, 1,101 curves of 692 drawn shapes in
/// 1 to 256 parts.
long long most_in_one_round(const DecodeProblem& problem, const Device& device) {
  constexpr int long_row = 2 * DecodeProblem::line_columns;
  if (waits_for_pages(problem)) return device.multiprocessors;
  if (problem.head_dim > long_row) return device.multiprocessors * 2LL / 3;
  return problem.paged() && problem.head_dim > DecodeProblem::line_columns ? device.multiprocessors / 4 : 0;
}

/// Splits that keep heads in step which share lines: blocks that walk through many keys drift apart, and lines leave L2
/// before the neighbour has read them. 0 where all keys are hardly more than L2 holds, or parts would not fill the GPU.
/// Measured on an H200 with 16 to 420 sequences of heads, head_dim 32 to 96, 6,000 and 40,000 keys: 5 to 55% faster
/// than as many parts as run at once. Shorter rows drift sooner. Blocks that look up pages take longer to begin: of
/// pages below 128 tokens parts of 1,000 keys, of short rows 500, in eight rounds at least, take 0 to 9% less than
/// parts of 256 to 512.
long long splits_in_step(const Variant& variant, const DecodeProblem& problem, const Device& device, long long rows) {
  constexpr long long most_rounds = 64;
  constexpr long long keys_each_row = 50;
  constexpr int large_page = 128;
  constexpr long long enough_rounds = 8;
  const long long blocks = blocks_at_once(variant, device);
  const long long keys = seen_keys(problem);
  if (!problem.shares_lines() || rows <= most_in_one_round(problem, device)) return 0;
  if (keys < 3 * device.l2_bytes / (2 * key_bytes(problem) * rows)) return 0;
  const bool short_rows = problem.head_dim < DecodeProblem::line_columns;
  const long long in_step = short_rows ? 256 : 512;
  long long splits = std::min(keys / std::max(in_step, keys_each_row * problem.rows()), most_rounds * blocks / rows);
  if (problem.paged() && problem.page_size < large_page) {
    splits = std::min(splits, std::max(ceil_div(keys, short_rows ? 500 : 1000), enough_rounds * blocks / rows));
  }
  return rows * splits >= blocks ? splits : 0;
}

/// Whether of parts that share lines one for each multiprocessor are better than several, as they leave hardly any
/// idle. Measured on an H200 with 4 to 88 sequences of heads: 0 to 20% faster.
bool wants_one_each(const Variant& variant, const DecodeProblem& problem, const Device& device, long long rows) {
  const long long parted = device.multiprocessors / rows * rows;
  if (waits_for_pages(problem) || !problem.shares_lines() || parted * 10 < device.multiprocessors * 9LL) return false;
  return reads_apace(variant, problem);
}

constexpr double steps_to_begin = 4;  // of a block with a sequence, its Q and its first keys

/// The time of the multiprocessor that has most of so many blocks, as steps of a block: those that it has side by side
/// share it, and what is left of them has the speed that goes with the root of how many they are. Measured on an H200:
/// of three side by side one alone has 0.55 of their speed and two 0.85, of two one alone 0.7.
double busiest(const Variant& variant, const Device& device, long long blocks, double steps_each) {
  const long long side_by_side = blocks_per_multiprocessor(variant, device);
  const long long most = ceil_div(blocks, device.multiprocessors);
  const long long left = most % side_by_side;
  const double rounds = static_cast<double>(most - left) + std::sqrt(static_cast<double>(left * side_by_side));
  return rounds * (steps_each + steps_to_begin);
}

/// Whether a block has more warps with rows of their own than a multiprocessor has quarters: then what they take for a
/// step limits, not memory.
bool is_limited_by_steps(const Variant& variant) { return variant.split_rows != 0 && variant.warps > 4; }

/// Of more sequences than multiprocessors, by such blocks: multiprocessors are to have as many steps to do. Whole
/// sequences or, where it spares a tenth, up to eight parts of each or, 0, parts of the whole batch. Measured on an
/// H200 with 71 heads for one of keys, in us: 184 sequences of 5,632 keys 212 whole, 148 in two parts each, 166 by
/// parts of the batch (head_dim 80), and 236, 253, 244, in four parts 207 (128); 300 of 2,000 keys 183, 159, 132 (128);
/// 150 of 1,200 keys 135, 121, 100 (200); 168 of 595 keys 85, 83, 78 (240); 250 of 1,500 keys 54, 70, 53 (64); in one
/// part, four and five 144 of 4,480 keys 186, 135, 122 (88).
long long parts_alike(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  constexpr long long enough_steps = 8;
  constexpr long long most_parts = 8;
  constexpr double steps_to_merge = 2;
  constexpr double steps_to_find_parts = 2;
  const long long rows = tiles * problem.batch;
  const long long steps = ceil_div(seen_keys(problem), variant.B_c);
  if (steps < enough_steps) return 1;
  long long best = 1;
  double least = 0.9 * busiest(variant, device, rows, static_cast<double>(steps));
  const auto consider = [&](long long splits, long long blocks, double steps_each, double more) {
    const double time = busiest(variant, device, blocks, steps_each) + steps_to_merge + more;
    if (time >= least) return;
    least = time;
    best = splits;
  };
  for (long long splits = 2; splits <= most_parts; ++splits) {
    consider(splits, rows * splits, static_cast<double>(ceil_div(steps, splits)), 0);
  }
  if (!is_countable(variant, problem)) return best;
  const long long blocks = parts_of_batch(variant, problem, device, tiles) * tiles;
  const double sequences_each = static_cast<double>(rows) / static_cast<double>(blocks);
  const double begins_more = steps_to_begin * std::max(0.0, sequences_each - 1);
  consider(0, blocks, static_cast<double>(steps) * sequences_each + begins_more, steps_to_find_parts);
  return best;
}

}  // namespace

bool is_countable(const Variant& variant, const DecodeProblem& problem) {
  return problem.batch * ceil_div(problem.max_seqlen_k, variant.B_c) <= std::numeric_limits<int>::max();
}

long long parts_of_batch(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long batch = std::max(1, problem.batch);
  const long long blocks = blocks_at_once(variant, device);
  if (batch * tiles <= blocks && fills(batch * tiles, blocks, reads_alone(variant), device)) return batch;
  const long long parts =
      std::max(1LL, std::min({blocks / tiles, most_splits(variant, problem) * batch, Grid::max_yz}));
  return parts > batch ? parts / batch * batch : parts;
}

int equal_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  constexpr long long most = 256;
  constexpr int apart_keys = 4500;             // blocks that begin together and are alone are in step for so long
  constexpr long long few_sequences_each = 4;  // of a multiprocessor; of more whole ones are as good as two parts each
  const long long keys = seen_keys(problem);
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = std::max(1LL, tiles * problem.batch);
  const bool may_be_alone = !waits_for_pages(problem) && !is_limited_by_steps(variant);
  const bool alone = may_be_alone && keep_up(rows, variant, problem, device);
  if (alone && keys < apart_keys) return 1;
  if (may_be_alone && reads_apace(variant, problem) && done_before_merging(rows, keys, problem, device)) return 1;
  const long long in_step = splits_in_step(variant, problem, device, rows);
  if (in_step > 1 || (in_step == 1 && rows > few_sequences_each * device.multiprocessors)) {
    return static_cast<int>(std::min(most, in_step));
  }
  if (alone || fills(rows, blocks, may_be_alone || rows > device.multiprocessors, device)) return 1;
  if (rows > device.multiprocessors) {
    return static_cast<int>(is_limited_by_steps(variant) ? parts_alike(variant, problem, device, tiles)
                                                         : best_in_rounds(variant, problem, device, rows));
  }
  const bool one_each = wants_one_each(variant, problem, device, rows);
  return static_cast<int>(std::min(most, best_splits(variant, problem, rows, one_each ? device.multiprocessors : blocks,
                                                     one_each || !may_be_alone)));
}

int cluster_splits(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long blocks = blocks_at_once(variant, device);
  const long long rows = tiles * problem.batch;
  if (fills(rows, blocks, reads_alone(variant), device)) return 1;
  const long long steps = std::max(1LL, ceil_div(problem.longest_keys(), variant.B_c));
  const MergeCost merge = within_cluster(variant);
  int best = 1;
  for (int splits = 2; splits <= most_in_cluster; splits *= 2) {
    const long long room = splits > 2 ? blocks * 10 / 11 : blocks;
    if (rows * splits > room) break;
    if (steps_with(steps, splits, merge) < steps_with(steps, best, merge)) best = splits;
  }
  return best;
}

bool stays_whole(const Variant& variant, const DecodeProblem& problem, const Device& device, long long tiles) {
  const long long parts = most_splits(variant, problem);
  const bool many = tiles * problem.batch * 8 >= blocks_at_once(variant, device);
  return problem.batch <= Grid::max_yz && (parts == 1 || (parts == 2 && many));
}

bool leaves_idle(const Variant& variant, const DecodeProblem& problem, const Device& device, long long blocks,
                 long long keys) {
  return reads_apace(variant, problem) && blocks < enough_in_clusters(problem, device) &&
         !done_before_merging(blocks, keys, problem, device);
}

}  // namespace attune
