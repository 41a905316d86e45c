// How the keys of a batch are divided among thread blocks, so that a few long sequences keep a whole GPU busy
// (Flash-Decoding), and where each block leaves what it found.
//
// The blocks of keys that the queries see are a stream, sequence after sequence. With `splits`, each sequence has that
// many parts, whatever the others are like: its bits do not depend on where in a batch it stands. Without, the whole
// stream is cut into `parts` pieces of one length (LeanAttention, arXiv 2405.10480), and a part may hold the end of one
// sequence, some whole ones and the beginning of another.
#pragma once

#include "blocks/query_rows.cuh"
#include "blocks/sequence_rows.cuh"
#include "blocks/visible.cuh"
#include "blocks/warp_sums.cuh"
#include "decode_params.h"
#include "ptx/grid.cuh"
#include "ptx/lanes.cuh"
#include "ptx/memory_words.cuh"
#include "ptx/thread.cuh"
#include "types.h"

// The keys of a sequence, whatever the arrays say; none beyond the batch, and none where the sequence has no query in
// the tile that begins at `first_row`.
__device__ __forceinline__ Visible visible_of(const AttuneDecodeParams& params, int batch, int first_row) {
  int seqlen = params.max_seqlen_k;
  if constexpr (variant::ragged) {
    if (batch < params.batch && params.cu_seqlens_k != nullptr) {
      seqlen = SequenceRows(params.cu_seqlens_k, batch, params.pages, seqlen).count;
    }
  }
  if (batch >= params.batch) {
    seqlen = 0;
  } else if (params.seqlens_k != nullptr) {
    const int before = load_global_int(params.seqlens_k + batch);
    const int given = (before < seqlen ? before : seqlen) + params.seqlen_new;
    seqlen = given < 0 ? 0 : given < seqlen ? given : seqlen;
  }
  const Queries queries(params, batch);
  if (!queries.reach(params, first_row)) seqlen = 0;
  int begin = 0;
  if (params.leftpad_k != nullptr && seqlen > 0) {
    const int given = load_global_int(params.leftpad_k + batch);
    begin = given < 0 ? 0 : given < seqlen ? given : seqlen;
  }
  return {queries.count, seqlen, begin, params.window_left, params.window_right};
}

// The same where all lanes of a warp ask for one sequence.
__device__ __forceinline__ Visible visible_of_warp(const AttuneDecodeParams& params, int batch, int first_row) {
  Visible visible = visible_of(params, batch, first_row);
  visible.seqlen_k = uniform(visible.seqlen_k);
  visible.begin = uniform(visible.begin);
  return visible;
}

// The blocks of a sequence that its queries see.
struct Stretch {
  int first_block;
  int blocks;  // may be 0

  __device__ __forceinline__ Stretch(const Visible& visible, int B_c) : first_block(visible.first_block(B_c)) {
    const int end = visible.end_block(B_c);
    blocks = end > first_block ? end - first_block : 0;
  }
};

// So many blocks cut into parts whose lengths differ by one at most.
struct Cut {
  int each;  // blocks of a part, ...
  int more;  // and of as many parts one more

  __device__ __forceinline__ Cut(int blocks, int parts)
      : each(parts == 1 ? blocks : static_cast<int>(static_cast<u32>(blocks) / static_cast<u32>(parts))),
        more(blocks - each * parts) {}

  __device__ __forceinline__ int begin(int part) const { return part * each + (part < more ? part : more); }

  __device__ __forceinline__ int part_of(int position) const {
    const int longer = more * (each + 1);
    return position < longer ? position / (each + 1) : more + (position - longer) / each;
  }

  // How many have some of the blocks from `begin` on.
  __device__ __forceinline__ int parts_of(int begin, int blocks) const {
    return part_of(begin + blocks - 1) - part_of(begin) + 1;
  }
};

// All sequences' stretches one after the other, cut into `parts`.
struct Stream {
  int first_row;
  int B_c;
  Cut cut;

  // All lanes of a warp together.
  __device__ __forceinline__ Stream(const AttuneDecodeParams& params, int first_row, int B_c)
      : first_row(first_row), B_c(B_c), cut(before(params, params.batch), params.parts) {}

  // Blocks of the sequences before this one. All lanes together.
  __device__ __forceinline__ int before(const AttuneDecodeParams& params, int batch) const {
    constexpr int at_once = 4;  // of a lane, as each waits for its length
    int blocks = 0;
#pragma unroll 1
    for (int b = static_cast<int>(lane_index()); b < batch; b += at_once * warp_size) {
      int of[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) of[i] = blocks_of(params, b + i * warp_size);
#pragma unroll
      for (int i = 0; i < at_once; ++i) blocks += b + i * warp_size < batch ? of[i] : 0;
    }
    return sum_of_lanes(blocks);
  }

  // The sequence that has this position of the stream; `position` becomes the one in its stretch. All lanes together.
  __device__ __forceinline__ int find(const AttuneDecodeParams& params, int& position) const {
#pragma unroll 1
    for (int b = 0;; b += warp_size) {
      const int blocks = blocks_of(params, b + static_cast<int>(lane_index()));
      const int total = sum_of_lanes(blocks);
      if (position < total) {
        const int end = sum_up_to_lane(blocks);
        const int before = sum_of_lanes(end <= position ? 1 : 0);
        position -= uniform(shuffle_from(end - blocks, static_cast<u32>(before)));
        return b + before;
      }
      position -= total;
    }
  }

 private:
  // None beyond the batch.
  __device__ __forceinline__ int blocks_of(const AttuneDecodeParams& params, int batch) const {
    return Stretch(visible_of(params, batch, first_row), B_c).blocks;
  }
};

// Walks a part of the stream, block by block; with `interleave` each of a sequence's splits has its blocks in turn.
// `splits_only`: there are no parts of the whole batch.
template <int B_c, bool interleave, bool splits_only>
struct Cursor {
  static constexpr bool is_full = false;  // that a mask leaves all of a block is known of a LiveCursor's alone

  int batch;
  Visible visible;
  int block;   // of the sequence's keys
  int end;     // where this part leaves the sequence; from there on nothing is left
  int behind;  // blocks of the part in the sequences that follow
  bool whole;  // the part has the whole sequence
  int slot;    // where partial results go
  int first_row;
  AttuneCut cut;  // what combine is to know of the whole batch's parts

  // The part of this thread block, blockIdx.y, of sequence blockIdx.z or of all, for the rows of its tile. All lanes of
  // a warp together.
  __device__ __forceinline__ Cursor(const AttuneDecodeParams& params, int first_row) : first_row(first_row), cut{} {
    const int part = static_cast<int>(block_index().y);
    if (splits_only || params.splits > 0) {
      batch = static_cast<int>(block_index().z);
      visible = visible_of_warp(params, batch, first_row);
      const Stretch stretch(visible, B_c);
      if constexpr (interleave) {
        block = stretch.first_block + part;
        end = stretch.first_block + stretch.blocks;
      } else {
        const Cut cut(stretch.blocks, params.splits);
        block = stretch.first_block + cut.begin(part);
        end = stretch.first_block + cut.begin(part + 1);
      }
      behind = 0;
      whole = params.splits == 1;
      slot = batch * params.splits + part;
    } else {
      const Stream stream(params, first_row, B_c);
      const int place = stream.cut.begin(part);
      behind = stream.cut.begin(part + 1) - place;
      block = end = 0;
      if (behind == 0) return;
      int begin = place;
      batch = stream.find(params, begin);
      visible = visible_of_warp(params, batch, first_row);
      if (params.cuts != nullptr && stream.cut.part_of(place - begin) == part - 1) {
        cut = {batch, stream.cut.parts_of(place - begin, Stretch(visible, B_c).blocks)};
      }
      enter(begin);
    }
  }

  __device__ __forceinline__ bool exists() const { return block < end; }

  // Goes to the next block; whether it is of the same sequence.
  __device__ __forceinline__ bool next(const AttuneDecodeParams& params) {
    block += interleave && (splits_only || params.splits > 0) ? params.splits : 1;
    if (block < end) return true;
    if constexpr (!splits_only) {
      while (behind > 0) {
        visible = visible_of_warp(params, ++batch, first_row);
        if (Stretch(visible, B_c).blocks > 0) {
          enter(0);
          break;
        }
      }
    }
    return false;
  }

 private:
  // The sequence, `begin` blocks into its stretch.
  __device__ __forceinline__ void enter(int begin) {
    const Stretch stretch(visible, B_c);
    const int rest = stretch.blocks - begin;
    block = stretch.first_block + begin;
    whole = begin == 0 && rest <= behind;
    const int here = rest < behind ? rest : behind;
    end = block + here;
    behind -= here;
    // One sequence at most began before this part, and one at most goes on behind it.
    slot = 2 * static_cast<int>(block_index().y) + (begin == 0 ? 1 : 0);
  }
};
