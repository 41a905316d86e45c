// The parameter block of the kernel that checks a cache's tables; plain C like params.h, and part of the same
// ATTUNE_PARAMS_ABI.
#pragma once

#include "params.h"

// The first entry that is wrong, sequence after sequence, and of a sequence in the order of the kinds.
struct AttuneTableFault {
  int kind;  // 0: nothing is wrong, 1: cu_seqlens_q, 2: cu_seqlens_k, 3: seqlens_k, 4: leftpad_k, 5: block_table,
             // 6: slots, 7: seqused_q
  int batch;
  int position;  // in the sequence's row of the table; of cu_seqlens 0 is where it begins, 1 where it ends
  int reserved;
};

// A sequence has the keys that seqlens_k says and seqlen_new more. Its queries stand at its end and see window_left
// keys before their own (-1: all), but none before leftpad_k; the table's entries for these and for the new ones have
// to be pages. Rows of a ragged batch are among those of all, and none ends before it begins.
struct AttuneCheckParams {
  const int* seqlens_k;            // batch, each from 0 to max_seqlen_k - seqlen_new; null: max_seqlen_k - seqlen_new
  const int* block_table;          // batch x table_width; null: not checked
  const long long* slots;          // batch x seqlen_new, each -1 or a place in the cache; null: not checked
  struct AttuneTableFault* fault;  // written
  int batch;
  int seqlen_q;
  int seqlen_new;
  int max_seqlen_k;
  int window_left;
  int page_size;
  int pages;
  int table_width;
  int total_q;
  int total_k;
  const int* cu_seqlens_q;  // batch + 1; null: each sequence has seqlen_q queries
  const int* cu_seqlens_k;  // batch + 1, of which seqlens_k says how many count; null: keys are in a cache
  const int* leftpad_k;     // batch, each from 0 to what seqlens_k says; null: 0
  const int* seqused_q;     // batch, each from 0 to the rows that cu_seqlens_q says; null: all of them
};
