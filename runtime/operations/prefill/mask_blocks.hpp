// Which blocks of keys a mask leaves, where what it looks up says so: a launch before that of attention, whose tiles
// then neither read dead blocks nor evaluate the mask in full ones. The same for GPUs and for the emulator.
#pragma once

#include <cstddef>
#include <string>

#include "attune/attune.h"
#include "runtime/call/device.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/operand.hpp"
#include "runtime/operations/prefill/problem.hpp"
#include "templates/mask_blocks_params.h"
#include "templates/params.h"

namespace attune {

/// One mask's. No problem of a caller: a part of prefill's.
struct MaskBlocksProblem {
  static constexpr Operation operation = Operation::mask_blocks;

  int mask;  ///< the number of an expression

  static const ProblemFacts facts;

  /// As Problem::ask().
  [[nodiscard]] Ask ask() const { return {.need = {.operation = operation, .mask = mask}, .preference = {}}; }

  /// "mask_blocks of mask (k <= p)"
  [[nodiscard]] std::string text() const;
};

/// How many words there are for a kernel of attention, tile by tile (templates/mask_blocks_params.h).
struct MaskBlocksPlan {
  int tile_words = 0;
  int tiles = 0;
  int heads = 0;
  int ratio = 0;  ///< rows of a query in a tile
  int batch = 0;
  bool drawn = false;  ///< whether tiles are taken one by one, and counted

  [[nodiscard]] long long all_tiles() const { return static_cast<long long>(tiles) * heads * batch; }
  /// Of words, each with a thread block of its own.
  [[nodiscard]] long long pairs() const { return all_tiles() * tile_words; }
  /// Of the words, and of the count behind them, two words as well.
  [[nodiscard]] std::size_t bytes() const {
    return (static_cast<std::size_t>(pairs()) + (drawn ? 1 : 0)) * 2 * sizeof(unsigned);
  }
};

/// Nothing where the problem's mask says as much by itself, or there are more tiles than a launch holds.
MaskBlocksPlan plan_mask_blocks(const Variant& variant, const Problem& problem);

/// The parameter block of the launch before one of attention with these parameters.
AttuneMaskBlocksParams make_params(const attune_prefill_args& args, const Problem& problem, const Variant& variant,
                                   const MaskBlocksPlan& plan, const AttunePrefillParams& params, unsigned* words);

/// What it reads and writes.
void visit_operands(const attune_prefill_args& args, const Problem& problem, const AttuneMaskBlocksParams& params,
                    const MaskBlocksPlan& plan, VisitOperand visit);

/// What attention is told.
AttuneMaskBlocks told(const MaskBlocksPlan& plan, unsigned* words);

/// The words as an operand; none where they are null.
Operand words_operand(const MaskBlocksPlan& plan, const unsigned* words, Access access);

/// The count behind them, likewise; none where tiles are not counted.
Operand drawn_operand(const MaskBlocksPlan& plan, const unsigned* words, Access access);

}  // namespace attune
