// Where scores are finished that a spec's expressions change.
#pragma once

#include "blocks/expressions.cuh"
#include "blocks/score_place.cuh"
#include "blocks/scores.cuh"
#include "blocks/softcap.cuh"
#include "ptx/math.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// Those of a kernel that has some.
template <class KernelParams>
__device__ __forceinline__ Expressions expressions_of(const KernelParams& params) {
  return {params.expressions};
}

// What the mask looks up for a block's keys: lane i has it of the i-th of each 32, so that neighbours read neighbours.
template <int columns>
struct KeyLookups {
  static constexpr int keys = static_cast<int>(warp_size);  // of a part

  Expressions::Key own[(columns * 8 + keys - 1) / keys];

  template <class Rows>
  __device__ __forceinline__ KeyLookups(const Expressions& expressions, const Rows& rows, const ScoreCorner& at) {
    const int lane = static_cast<int>(lane_index());
#pragma unroll
    for (int part = 0; part * keys < columns * 8; ++part) {
      ScorePlace place = rows.place(at.row, at.key + part * keys + lane);
      place.k = Rows::position(place.k);
      own[part] = expressions.key(place);
    }
  }

  // That of this lane's key `e` of accumulator n. All lanes of the warp ask for the same.
  __device__ __forceinline__ Expressions::Key of(int n, int e) const {
    return own[n * 8 / keys].from(static_cast<u32>(n * 8 % keys + e) + lane_index() % 4 * 2);
  }
};

// The cap and the spec's expressions, in the accumulators of 16 rows. `full`: it is known already that the mask hides
// nothing of them.
template <int columns, class Rows>
__device__ __forceinline__ void apply_expressions(float (&S)[columns][4], const Expressions& expressions,
                                                  const Rows& rows, const ScoreCorner& at, float cap_scale,
                                                  [[maybe_unused]] bool full = false) {
  if constexpr (variant::softcap) cap_scores(S, cap_scale);
  const int lane = static_cast<int>(lane_index());
  [[maybe_unused]] bool masks = false;
  if constexpr (variant::mask) masks = !full && !Expressions::shows(rows.box(at.row, 16, at.key, columns * 8)).surely;
  if constexpr (!variant::score || Expressions::tilts) {
    if (!masks) return;
  }
  const ScorePlace first[2] = {rows.place(at.row + lane / 4, at.key + lane % 4 * 2),
                               rows.place(at.row + 8 + lane / 4, at.key + lane % 4 * 2)};
  const Expressions::Row row[2] = {expressions.row(first[0]), expressions.row(first[1])};
  const KeyLookups<columns> key_lookups{expressions, rows, at};
  // Both rows of a key after each other, so that what is looked up for it comes once.
#pragma unroll
  for (int n = 0; n < columns; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const auto own_key = key_lookups.of(n, e);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        ScorePlace place = first[h];
        place.k = Rows::position(place.k + n * 8 + e);
        float& s = S[n][2 * h + e];
        if constexpr (variant::score && !Expressions::tilts) {
          s = expressions.score(s * expressions.params.score_scale, place, row[h]);
        }
        if constexpr (variant::mask) {
          // Chosen and not branched on, so that compilers have no branch for each of the block's scores.
          bool hidden = !expressions.sees(place, row[h], own_key);
          // Asked where it is not known: else blocks that have no mask would have instructions for it, too.
          if constexpr (variant::score && !Expressions::tilts) hidden &= masks;
          s = hidden ? minus_infinity() : s;
        }
      }
    }
  }
}

// Finishes the scores of 16 rows: the expressions before the other mask, which may hide keys that do not exist and
// whose scores are anything.
template <class KeyMask, int columns, class Rows>
__device__ __forceinline__ void express_scores(float (&S)[columns][4], const Expressions& expressions, const Rows& rows,
                                               const KeyMask& mask, const ScoreCorner& at, float cap_scale,
                                               bool full = false) {
  apply_expressions(S, expressions, rows, at, cap_scale, full);
  if (!mask.sees_all(at.row, 16, at.key, columns * 8)) mask_scores(mask, S, at);
}

// The same of a sequence's first keys, of which queries see Expressions::first_keys whatever the expression says. Here
// those are left that it hides: blocks have had the others.
template <class KeyMask, int columns>
__device__ __forceinline__ void express_first_keys(float (&S)[columns][4], const Expressions& expressions,
                                                   const ScoreRows& rows, const KeyMask& mask, int first_row,
                                                   float cap_scale) {
  if constexpr (variant::softcap) cap_scores(S, cap_scale);
  const int lane = static_cast<int>(lane_index());
  const KeyLookups<columns> of_keys{expressions, rows, {first_row, 0}};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const ScorePlace first = rows.place(first_row + h * 8 + lane / 4, lane % 4 * 2);
    const Expressions::Row row = expressions.row(first);
#pragma unroll
    for (int n = 0; n < columns; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto key = of_keys.of(n, e);
        ScorePlace place = first;
        place.k += n * 8 + e;
        const bool had = expressions.sees(place, row, key);
        float& s = S[n][2 * h + e];
        s = had | (place.k >= Expressions::first_keys) ? minus_infinity() : s;
      }
    }
  }
  if (!mask.sees_all(first_row, 16, 0, columns * 8)) mask_scores(mask, S, {first_row, 0});
}

// The same for several 16 rows, one after the other.
template <class KeyMask, int row_tiles, int columns, class Rows>
__device__ __forceinline__ void express_scores(float (&S)[row_tiles][columns][4], const Expressions& expressions,
                                               const Rows& rows, const KeyMask& mask, const ScoreCorner& at,
                                               float cap_scale, bool full = false) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
    apply_expressions(S[i], expressions, rows, {at.row + i * 16, at.key}, cap_scale, full);
  }
  if (mask.sees_all(at.row, row_tiles * 16, at.key, columns * 8)) return;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) mask_scores(mask, S[i], {at.row + i * 16, at.key});
}
