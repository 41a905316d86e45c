#include "runtime/operations/decode/problem.hpp"

#include <fmt/format.h>

#include "runtime/base/division.hpp"
#include "runtime/call/page_counts.hpp"
#include "runtime/operations/decode/problem_fields.hpp"

namespace attune {
namespace {

void check_new_keys(FieldChecks& checks, const DecodeProblem& problem) {
  if (problem.seqlen_new > problem.max_seqlen_k && problem.max_seqlen_k >= 0) {
    checks.add(fmt::format("seqlen_new is {}; it must be at most max_seqlen_k, which is {}", problem.seqlen_new,
                           problem.max_seqlen_k));
  }
  checks.rotation(problem.rotary, problem.rotary_dim, problem.head_dim);
  if (problem.rotates() && problem.seqlen_new == 0) {
    checks.add("seqlen_new is 0; queries are rotated where the same call appends keys alone");
  }
  if (problem.ragged && problem.seqlen_new != 0) {
    checks.add(fmt::format("seqlen_new is {}; calls of a ragged batch append no keys, attune_store_kv writes them",
                           problem.seqlen_new));
  }
}

void check_keys(FieldChecks& checks, const DecodeProblem& problem) {
  if (!problem.packed_keys) {
    checks.room({.page_size = problem.page_size, .pages = problem.pages, .table_width = problem.table_width},
                "max_seqlen_k", problem.max_seqlen_k);
  } else if (!problem.ragged) {
    checks.add("cu_seqlens_k is given without cu_seqlens_q; packed keys are those of ragged batches");
  }
}

/// Whether kernels of clusters for few rows ship for such a problem (specs/decode_sm90.yaml). Others are compiled at
/// run time, one for all sizes.
bool ships_in_clusters(const DecodeProblem& problem) {
  return !problem.ragged && !problem.rotates() && problem.softcap == 0 && !is_cut(problem.head_dim) &&
         !problem.expressions.any();
}

/// Up to how many keys a cluster is faster at merging the parts of a sequence of few rows than a second kernel.
/// Measured on an H200 with 1 to 96 sequences of heads, 269 to 65,536 keys, head_dim 32 to 256, contiguous, in pages of
/// 16 and of one token: up to 40% faster, and 3% slower at most, or 21% where one sequence of several is long and the
/// others are a sixteenth of it; from twice as many keys on up to 30% slower.
int most_keys_in_clusters(const DecodeProblem& problem, long long sequences) {
  constexpr long long half_of_multiprocessors = 66;  // more leave a cluster one block
  constexpr long long quarter_of_them = 32;          // more leave it two, beside which a quarter may be idle
  constexpr long long fifth_of_them = 26;  // parts of more fill the GPU without clusters, if lengths are known
  constexpr long long eighth_of_them = 16;
  constexpr long long enough_sequences = 7;  // whose clusters of eight read as fast as the whole GPU would
  constexpr int long_row = 128;
  if (sequences > half_of_multiprocessors) return 0;
  if (problem.head_dim > long_row) return 1024;  // its kernel takes as long for each row of up to 256
  if (sequences > (problem.one_length() ? fifth_of_them : quarter_of_them)) return 2048;
  const bool looks_up_each_key = problem.paged() && problem.page_multiple() == 1;
  // Lengths on the device alone may be those of one long sequence and short ones, of which clusters keep none busy.
  if (sequences < enough_sequences || problem.shares_lines() || looks_up_each_key || !problem.one_length()) return 4096;
  if (problem.head_dim > DecodeProblem::line_columns) return 16'384;
  return sequences <= eighth_of_them ? 8192 : 4096;
}

/// The same for many rows, of so many tiles. Measured on an H200 with 71 rows and equal lengths, head_dim 32 to 240:
/// clusters are 5 to 40% faster with up to 27 tiles and from as many as multiprocessors on, and 10 to 40% slower in
/// between, with 31 to 119, where a second kernel merges three to eight parts. Other GPUs are taken to be alike.
int most_keys_of_many_rows_in_clusters(const DecodeProblem& problem, long long tiles) {
  constexpr long long few_tiles = 29;
  constexpr long long fill_the_gpu = 132;
  constexpr long long most_tiles = 256;
  if (tiles > most_tiles) return 0;
  return problem.one_length() && tiles > few_tiles && tiles < fill_the_gpu ? 512 : 4096;
}

}  // namespace

Ask CombineProblem::ask() const {
  return {.need = {.operation = operation,
                   .dtype = static_cast<int>(dtype),
                   .head_dim = head_dim,
                   .ragged = ragged ? 1 : 0},
          .preference = {}};
}

int DecodeProblem::best_B_r() const {
  constexpr int mma_rows = 16;
  constexpr int widest_of_many_rows = 192;  // columns of O, beyond which a block of many rows has a multiprocessor
  constexpr long long few_sequences = 16;   // which leave most multiprocessors without one
  const bool spreads = head_dim > widest_of_many_rows && static_cast<long long>(batch) * heads_kv <= few_sequences;
  const int most_rows = spreads ? 64 : 128;
  const int tiles = std::max(1, (rows() + most_rows - 1) / most_rows);
  return std::max(1, (rows() + tiles * mma_rows - 1) / (tiles * mma_rows)) * mma_rows;
}

Clusters DecodeProblem::clusters() const {
  constexpr int many_rows = 64;  // two tiles of warps that share out keys
  constexpr int few_rows = 16;   // one
  constexpr int fewest_keys = 256;
  if (splits != 0 || expressions.mask != 0) return Clusters::no;
  const long long sequences = static_cast<long long>(batch) * heads_kv;
  const int keys = longest_keys();
  if (rows() > many_rows) {
    const long long tiles = sequences * ceil_div(rows(), best_B_r());
    return keys <= most_keys_of_many_rows_in_clusters(*this, tiles) ? Clusters::anywhere : Clusters::no;
  }
  const bool few = rows() <= few_rows && keys >= fewest_keys && keys <= most_keys_in_clusters(*this, sequences);
  return few && ships_in_clusters(*this) ? Clusters::measured : Clusters::no;
}

Ask DecodeProblem::ask() const {
  return {.need = expressions.given_to(Need{.operation = operation,
                                            .dtype = static_cast<int>(dtype),
                                            .head_dim = head_dim,
                                            .paged = paged() ? 1 : 0,
                                            .page_multiple = page_multiple(),
                                            .rotary = static_cast<int>(rotary),
                                            .softcap = softcap > 0 ? 1 : 0,
                                            .ragged = ragged ? 1 : 0,
                                            .cut_rows = is_cut(head_dim) ? 1 : 0,
                                            .gqa_ratio = heads_q / heads_kv,
                                            .one_query = seqlen_q == 1 ? 1 : 0}),
          .preference = {.B_r = best_B_r(), .clusters = clusters()}};
}

StoreProblem DecodeProblem::store() const {
  return {.dtype = dtype,
          .batch = batch,
          .tokens = seqlen_new,
          .heads_kv = heads_kv,
          .head_dim = head_dim,
          .page_size = page_size,
          .pages = pages,
          .table_width = table_width,
          .rotary = rotary,
          .rotary_dim = rotary_dim,
          .rotations = rotations};
}

std::string DecodeProblem::text() const { return text_of(*this) + expressions.text(); }

std::string CombineProblem::text() const { return text_of(*this); }

DecodeProblem DecodeProblem::usual() {
  return {.heads_q = 16,
          .heads_kv = left_out,
          .max_seqlen_k = 1024,
          .page_size = left_out,
          .seqlen_new = left_out,
          .total_q = left_out,
          .total_k = left_out};
}

void DecodeProblem::complete() {
  fill(heads_kv, heads_q);
  table_width = page_size == left_out ? 1 : std::max(2, pages_of(max_seqlen_k, page_size));
  pages = all_pages(batch, table_width);
  fill(page_size, std::max(1, max_seqlen_k));
  fill(seqlen_new, rotates() ? 1 : 0);
  rotary_dim = rotates() ? most_rotated(head_dim) : 0;
  rotations = rotates() ? std::max(1, max_seqlen_k) : 0;
  fill(total_q, ragged ? longest_total(batch, seqlen_q) : 0);
  packed_keys = total_k != left_out;
  total_k = packed_keys ? std::max(1, total_k) : 0;
  if (packed_keys) page_size = pages = table_width = 1;
}

std::vector<std::string> problems_of(const DecodeProblem& problem) {
  FieldChecks checks = checked_fields(problem);
  const bool groups = checks.heads(problem.heads_q, problem.heads_kv);
  if (groups && problem.heads_q / problem.heads_kv > most_shared_heads) {
    checks.add(fmt::format("heads_q is {}; it must be at most {} times heads_kv, which is {}", problem.heads_q,
                           most_shared_heads, problem.heads_kv));
  }
  check_keys(checks, problem);
  check_new_keys(checks, problem);
  return std::move(checks).take();
}

const ProblemFacts CombineProblem::facts = usual_facts<CombineProblem>();

}  // namespace attune
