#include "runtime/cli/mask_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/expression/pool.hpp"

namespace attune::cli {
namespace {

using expression::Interval;
using expression::Visibility;

constexpr long long most_cells = 1LL << 22;

/// What the problem's causal mask or window shows of these keys to these rows.
Visibility by_position(const Problem& problem, const Interval& rows, const Interval& keys) {
  const Problem::Keys first = problem.visible_keys(static_cast<int>(rows.low));
  const Problem::Keys last = problem.visible_keys(static_cast<int>(rows.high));
  if (last.end <= keys.low || first.first > keys.high) return Visibility::none;
  return last.first <= keys.low && first.end > keys.high ? Visibility::all : Visibility::some;
}

Visibility both(Visibility one, Visibility other) {
  if (one == Visibility::none || other == Visibility::none) return Visibility::none;
  return one == Visibility::all ? other : Visibility::some;
}

Visibility by_expression(const Problem& problem, const Interval& rows, const Interval& keys) {
  if (problem.expressions.mask == 0) return Visibility::all;
  const int diagonal = problem.seqlen_k - problem.seqlen_q;
  return expression::visibility_of(expression::expression_of(problem.expressions.mask).root,
                                   {Interval{},
                                    rows,
                                    {rows.low + diagonal, rows.high + diagonal},
                                    keys,
                                    {0, problem.heads_q - 1},
                                    {0, problem.heads_kv - 1},
                                    {0, problem.batch - 1}});
}

char sign_of(Visibility which) { return which == Visibility::none ? '.' : which == Visibility::all ? '#' : '+'; }

}  // namespace

double MaskBlocks::share(Visibility which) const {
  return cells.empty() ? 0 : static_cast<double>(std::ranges::count(cells, which)) / static_cast<double>(cells.size());
}

std::string MaskBlocks::text() const {
  constexpr int most_columns = 100;
  constexpr int most_lines = 40;
  if (cells.empty()) return "";
  std::string result =
      fmt::format("  of {} x {} blocks {:.1f}% dead, {:.1f}% full, {:.1f}% partial\n", tiles, blocks,
                  100 * share(Visibility::none), 100 * share(Visibility::all), 100 * share(Visibility::some));
  if (are_told) {
    result += "  before any array is looked at; in each call a launch tells of more that they are dead or full\n";
  }
  const auto cell = [this](int tile, int block) {
    return cells[static_cast<std::size_t>(tile) * static_cast<std::size_t>(blocks) + static_cast<std::size_t>(block)];
  };
  const int down = (tiles + most_lines - 1) / most_lines;
  const int across = (blocks + most_columns - 1) / most_columns;
  for (int tile = 0; tile < tiles; tile += down) {
    result += "  ";
    for (int block = 0; block < blocks; block += across) {
      const Visibility first = cell(tile, block);
      bool same = true;
      for (int i = tile; i < std::min(tile + down, tiles); ++i) {
        for (int j = block; j < std::min(block + across, blocks); ++j) {
          same = same && cell(i, j) == first;
        }
      }
      result += same ? sign_of(first) : '+';
    }
    result += '\n';
  }
  return result;
}

MaskBlocks mask_blocks(const Problem& problem, int B_r, int B_c) {
  const long long tiles = (static_cast<long long>(problem.seqlen_q) + B_r - 1) / B_r;
  const long long blocks = (static_cast<long long>(problem.seqlen_k) + B_c - 1) / B_c;
  MaskBlocks result;
  if (tiles * blocks == 0 || tiles * blocks > most_cells) return result;
  result.tiles = static_cast<int>(tiles);
  result.blocks = static_cast<int>(blocks);
  const int mask = problem.expressions.mask;
  result.are_told = mask != 0 && expression::bounds_by_lookups(expression::expression_of(mask));
  for (long long tile = 0; tile < tiles; ++tile) {
    const Interval rows{tile * B_r, std::min<long long>((tile + 1) * B_r, problem.seqlen_q) - 1};
    for (long long block = 0; block < blocks; ++block) {
      const Interval keys{block * B_c, std::min<long long>((block + 1) * B_c, problem.seqlen_k) - 1};
      result.cells.push_back(both(by_position(problem, rows, keys), by_expression(problem, rows, keys)));
    }
  }
  return result;
}

}  // namespace attune::cli
