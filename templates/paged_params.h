// What kernels for keys in pages are told beside their parameters, under params.h's ATTUNE_PARAMS_ABI.
#pragma once

// K or V where kernels gather rows: a row is at data + 16 * (head * head_chunks) + 16 * (page * page_chunks + token *
// row_chunks), of which each factor fits 32 bits.
struct AttunePagedRows {
  const void* data;
  unsigned page_chunks;
  unsigned row_chunks;
  unsigned head_chunks;
  int columns;  // what is beyond them in memory is not read
};

// K and V are pages x page_size x heads_kv x head_dim. A sequence's keys lie in the pages that its table names, one
// after the other; seqused_k says how many there are.
struct AttunePages {
  const int* block_table;  // batch x table_width; entries outside 0 to pages - 1 read as zeros
  int table_width;         // table_width * page_size is at least seqlen_k
  int pages;
  int page_size;
  unsigned page_multiplier;  // key / page_size is key * page_multiplier >> page_shift, in 64 bits
  int page_shift;
  // Of kernels that copy boxes, with page_multiple 16:
  int box_rows;     // keys of a box: the greatest that page_size and B_c are both multiples of
  int k_page_rows;  // rows of K from the beginning of a page to that of the next
  int v_page_rows;  // and of V
  // Of those that gather rows:
  struct AttunePagedRows k;
  struct AttunePagedRows v;
};

// A kernel's parameters with them.
template <class Params>
struct WithPages : Params {
  struct AttunePages pages;
};
