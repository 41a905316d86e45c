// Small kernels for the instructions of compute capability 9.0, each right or wrong in one way. Compiled behind
// templates/params.h, tensor_params.h and types.h; `which` picks one. A line that a test expects to be named ends with
// `// @name`.

struct ProbeParams {
  AttuneTensorMap map;          // bf16, 2 heads of 100 rows of 64 columns: boxes of 64 x 64
  AttuneTensorMap long_map;     // as if it had 200 rows
  AttuneTensorMap shifted_map;  // as map, from 64 rows in front of it on
  AttuneTensorMap no_map;
  AttuneTensorMap stored_map;       // as map, of memory to be written
  AttuneTensorMap long_stored_map;  // as long_map, of the same
  int which;
  float* out;     // 32 floats for each of 512 threads
  Chunk* stored;  // what stored_map is of, from the second head on
};

enum Which {
  mbarrier_orders,
  mbarrier_of_other_parity,
  mbarrier_lacks_an_arrival,
  mbarrier_gets_too_many,
  mbarrier_not_initialised,
  mbarrier_initialised_twice,
  mbarrier_misaligned,
  mbarrier_of_no_arrivals,
  mbarrier_used_without_barrier,
  mbarrier_read_as_memory,
  mbarrier_written_as_memory,
  mbarrier_phase_missed,
  box_waited_for,
  box_beyond_the_edges,
  box_not_waited_for,
  box_tested_for,
  box_tested_for_of_other_parity,
  box_expects_too_little,
  box_expects_too_much,
  box_without_fence,
  box_misaligned,
  box_without_map,
  box_outside_the_buffer,
  box_wholly_outside,
  box_wholly_outside_of_shifted_map,
  box_of_shifted_map,
  box_of_other_rank,
  box_beyond_shared,
  box_onto_mbarrier,
  box_onto_unread_data,
  box_onto_box,
  box_onto_plain_writes,
  box_onto_fenced_writes,
  box_onto_plain_reads,
  box_onto_fenced_reads,
  box_at_the_end,
  matrices_read_back,
  matrices_read_without_barrier,
  matrices_in_one_place,
  matrices_misaligned,
  matrices_beyond_shared,
  matrices_onto_mbarrier,
  stored,
  stored_beyond_the_edges,
  stored_before_the_edges,
  stored_with_fence_behind_barrier,
  stored_without_fence,
  stored_with_fence_too_early,
  stored_with_fence_of_one_thread,
  stored_without_barrier,
  stored_after_store_behind_fence,
  stored_of_a_box,
  stored_unswizzled,
  stored_twice_from_one_stage,
  stored_and_overwritten,
  stored_and_overwritten_uncommitted,
  stored_and_overwritten_without_barrier,
  stored_not_committed,
  stored_not_waited_for,
  stored_waited_for_by_another,
  stored_onto_stored,
  stored_onto_plain_writes,
  stored_and_read,
  stored_of_unwritten,
  stored_outside_the_buffer,
  stored_to_the_input,
  stored_misaligned,
  stored_without_map,
  stored_beyond_shared,
  stored_of_mbarrier,
  loaded_of_handed_over,
  named_orders,
  named_announcer_learns_nothing,
  named_counts_differ,
  named_number_zero,
  named_part_of_a_warp,
  named_differs_in_a_warp,
  named_vote_of_one_thread,
  named_vote_of_nobody,
  named_vote_among_waits,
  named_lacks_a_warp,
  named_left_half_full,
  named_by_other_warps,
  registers_change_hands,
  registers_that_nobody_gives,
  registers_of_odd_number,
  registers_taken_down,
  registers_given_up,
  product_of_shared,
  product_of_registers,
  product_of_registers_by_rows,
  product_older_waited_for,
  product_newer_not_waited_for,
  product_not_committed,
  product_not_settled,
  product_touched,
  product_of_changed_registers,
  product_without_fence,
  product_of_settled_without_fence,
  product_of_registers_without_fence,
  product_of_registers_not_settled,
  product_of_late_copy,
  product_of_overwritten_operand,
  product_of_plain_writes,
  product_of_fenced_writes,
  product_of_writes_fenced_for_one,
  product_without_a_warp,
  product_in_two_places,
  product_of_two_descriptors,
  product_misaligned,
  product_of_other_swizzle,
  product_beyond_shared,
};

constexpr int columns = 64;
constexpr u32 tile_bytes = 64 * 128;

inline u32 tile(u32 i) { return (shared_memory() + 1023) / 1024 * 1024 + i * tile_bytes; }
inline u32 barrier(u32 i) { return tile(6) + i * mbarrier_bytes; }
inline Chunk chunk_of(unsigned value) { return {{value, value, value, value}}; }
inline float value_at(u32 address) { return static_cast<float>(load_shared(address).word[0]); }

inline void create_barriers(u32 arrivals) {
  if (thread_index() == 0) {
    for (u32 i = 0; i < 3; ++i) mbarrier_init(barrier(i), arrivals);
    mbarrier_fence();
  }
  block_barrier();
}

inline void mbarriers(const ProbeParams& p) {
  const u32 own = tile(0) + lane_index() * 16;
  const bool writes = warp_index() == 0;
  create_barriers(p.which == mbarrier_lacks_an_arrival ? 33 : 32);
  if (warp_index() > 1) return;
  if (writes) {
    store_shared(own, chunk_of(lane_index()));  // @write
    mbarrier_arrive(barrier(0));
    return;
  }
  mbarrier_wait(barrier(0), p.which == mbarrier_of_other_parity ? 1 : 0);  // @wait
  store_global(p.out + thread_index(), value_at(own));                     // @read
}

inline void wrong_mbarriers(const ProbeParams& p) {
  const bool first = thread_index() == 0;
  if (p.which == mbarrier_used_without_barrier) {
    if (first) mbarrier_init(barrier(0), 1);
    warp_barrier();
    if (thread_index() == 32) mbarrier_arrive(barrier(0));  // @arrive
    return;
  }
  if (p.which == mbarrier_phase_missed) {
    create_barriers(1);
    if (thread_index() == 32) {
      mbarrier_arrive(barrier(1));
      mbarrier_wait(barrier(0), 0);
    }
    if (first) {
      mbarrier_wait(barrier(1), 0);
      mbarrier_arrive(barrier(0));
      mbarrier_arrive(barrier(0));  // @second
    }
    return;
  }
  if (!first) return;
  if (p.which == mbarrier_not_initialised) mbarrier_wait(barrier(0), 1);        // @none
  if (p.which == mbarrier_misaligned) mbarrier_init(barrier(0) + 4, 1);         // @odd
  if (p.which == mbarrier_of_no_arrivals) mbarrier_init(barrier(0), 0);         // @zero
  mbarrier_init(barrier(0), 1);                                                 // @init
  if (p.which == mbarrier_initialised_twice) mbarrier_init(barrier(0), 1);      // @again
  if (p.which == mbarrier_read_as_memory) load_shared(barrier(0));              // @load
  if (p.which == mbarrier_written_as_memory) store_shared(barrier(0) + 4, 0U);  // @store
  if (p.which == mbarrier_gets_too_many) {
    mbarrier_arrive_expect(barrier(0), 16);
    mbarrier_arrive(barrier(0));  // @too many
  }
}

inline void boxes(const ProbeParams& p) {
  const u32 own = tile(0) + thread_index() % 64 * 128 + (thread_index() / 64 % 8 ^ thread_index() % 8) * 16;
  if (p.which == box_without_fence) {
    if (thread_index() == 0) mbarrier_init(barrier(0), 1);  // @unfenced
    block_barrier();
  } else {
    create_barriers(1);
  }
  if (p.which == box_onto_unread_data || p.which == box_onto_plain_writes || p.which == box_onto_fenced_writes) {
    const u32 mine = tile(0) + thread_index() * 16;
    if (thread_index() == (p.which == box_onto_unread_data ? 1U : 0U)) store_shared(mine, chunk_of(1));  // @plain
    if (p.which == box_onto_fenced_writes) fence_for_copies();
  }
  if (thread_index() == 0) {
    const int x = p.which == box_beyond_the_edges ? 32 : 0;
    const int y = p.which == box_beyond_the_edges                ? -10
                  : p.which == box_outside_the_buffer            ? 80
                  : p.which == box_wholly_outside                ? 100
                  : p.which == box_of_shifted_map                ? 84
                  : p.which == box_wholly_outside_of_shifted_map ? 164
                                                                 : 20;
    const bool again = p.which == box_expects_too_little || p.which == box_onto_box;
    const u32 more = p.which == box_expects_too_much ? 16 : p.which == box_onto_box ? tile_bytes : 0;
    const u32 place = p.which == box_misaligned      ? tile(0) + 512
                      : p.which == box_beyond_shared ? tile(7)
                      : p.which == box_onto_mbarrier ? tile(6)
                                                     : tile(0);
    const bool shifted = p.which == box_of_shifted_map || p.which == box_wholly_outside_of_shifted_map;
    const AttuneTensorMap& map = p.which == box_without_map          ? p.no_map
                                 : p.which == box_outside_the_buffer ? p.long_map
                                 : shifted                           ? p.shifted_map
                                                                     : p.map;
    mbarrier_arrive_expect(barrier(0), tile_bytes + more);
    if (p.which == box_of_other_rank) load_box_5d(place, map, barrier(0), x, y, 1, 0, 0);         // @box of other rank
    load_box(place, map, barrier(0), x, y, 1, 0);                                                 // @box
    if (again) load_box(p.which == box_onto_box ? place : tile(1), map, barrier(0), x, y, 0, 0);  // @second box
  }
  if (p.which == box_at_the_end) return;
  const bool of_other_parity = p.which == box_tested_for_of_other_parity;
  const bool there =
      (p.which == box_tested_for || of_other_parity) && mbarrier_test(barrier(0), of_other_parity ? 1 : 0);
  if (p.which == box_not_waited_for) block_barrier();
  if (p.which != box_not_waited_for && !there) mbarrier_wait(barrier(0), 0);  // @wait for the box
  const Chunk got = load_shared(own);                                         // @use
  for (u32 i = 0; i < 4; ++i) {
    store_global(p.out + thread_index() * 32 + 2 * i, __builtin_bit_cast(float, got.word[i] << 16));
    store_global(p.out + thread_index() * 32 + 2 * i + 1, __builtin_bit_cast(float, got.word[i] & 0xffff0000));
  }
  if (p.which == box_onto_plain_reads || p.which == box_onto_fenced_reads) {
    if (p.which == box_onto_fenced_reads) fence_for_copies();
    block_barrier();
    if (thread_index() == 0) {
      mbarrier_arrive_expect(barrier(0), tile_bytes);
      load_box(tile(0), p.map, barrier(0), 0, 20, 1, 0);  // @third box
    }
    mbarrier_wait(barrier(0), 1);
  }
}

inline u32 two_of(float low, float high) { return pack<Dtype::bf16>(low, high); }
inline float stored_value(u32 row, u32 column) { return static_cast<float>((row * 3 + column * 5) % 17) - 8; }

// 16 rows by each of four warps.
inline void fill(u32 place, u32 first_row, u32 swizzle) {
  const u32 lane = lane_index();
  const u32 own_row = warp_index() % 4 * 16 + lane % 16;
  for (u32 c = 0; c < columns / 8; c += 2) {
    u32 word[4];
    for (u32 i = 0; i < 4; ++i) {
      const u32 row = first_row + warp_index() % 4 * 16 + i % 2 * 8 + lane / 4;
      const u32 column = (c + i / 2) * 8 + lane % 4 * 2;
      word[i] = two_of(stored_value(row, column), stored_value(row, column + 1));
    }
    store_matrices(place + own_row * 128 + (c + lane / 16 ^ own_row % 8 * swizzle) * 16, word);  // @fill
  }
}

inline void matrices(const ProbeParams& p) {
  if (warp_index() != 0) return;
  const u32 lane = lane_index();
  if (p.which == matrices_onto_mbarrier && lane == 0) mbarrier_init(barrier(0), 1);
  const u32 place = p.which == matrices_misaligned      ? tile(0) + lane * 16 + 8
                    : p.which == matrices_in_one_place  ? tile(0) + lane % 31 * 16
                    : p.which == matrices_beyond_shared ? tile(7) + lane * 512
                    : p.which == matrices_onto_mbarrier ? tile(6) + lane * 16
                                                        : tile(0) + lane * 16;
  u32 word[4];
  for (u32 i = 0; i < 4; ++i) word[i] = lane * 4 + i;
  store_matrices(place, word);  // @matrices
  if (p.which != matrices_read_without_barrier) warp_barrier();
  u32 got[4];
  ldmatrix(got, tile(0) + (lane + 8) % 32 * 16);  // @read back
  for (u32 i = 0; i < 4; ++i) store_global(p.out + thread_index() * 32 + i, static_cast<float>(got[i]));
}

// Four warps write a stage, the first thread stores it.
inline void stores(const ProbeParams& p) {
  if (warp_index() >= 4) return;
  const int w = p.which;
  const bool first = thread_index() == 0;
  const u32 stage = tile(0);
  if (w == stored_of_mbarrier && first) mbarrier_init(barrier(0), 1);
  if (w == stored_with_fence_too_early) fence_for_copies();
  if (w == stored_of_a_box) {
    if (first) {
      mbarrier_init(barrier(0), 1);
      mbarrier_fence();
      mbarrier_arrive_expect(barrier(0), tile_bytes);
      load_box(stage, p.map, barrier(0), 0, 20, 1, 0);
      mbarrier_wait(barrier(0), 0);
    }
  } else if (warp_index() < 2 || (w != stored_of_unwritten && w != stored_beyond_the_edges)) {
    fill(stage, 0, w == stored_unswizzled ? 0 : 1);
  }
  const bool all_fence = w != stored_with_fence_too_early && w != stored_without_fence && w != stored_of_a_box &&
                         w != stored_with_fence_behind_barrier;
  if (all_fence && (w != stored_with_fence_of_one_thread || first)) fence_for_copies();
  if (w == stored_after_store_behind_fence && thread_index() == 1) store_shared(stage + 144, chunk_of(0));  // @late
  if (w != stored_without_barrier) named_barrier_wait(1, 128);
  if (w == stored_with_fence_behind_barrier && first) fence_for_copies();

  const u32 place = w == stored_misaligned      ? stage + 512
                    : w == stored_beyond_shared ? tile(7)
                    : w == stored_of_mbarrier   ? tile(6)
                                                : stage;
  const AttuneTensorMap& map = w == stored_without_map          ? p.no_map
                               : w == stored_outside_the_buffer ? p.long_stored_map
                               : w == stored_to_the_input       ? p.map
                                                                : p.stored_map;
  const bool beyond = w == stored_beyond_the_edges || w == stored_outside_the_buffer;
  const bool before = w == stored_before_the_edges;
  if (first) {
    if (w == stored_onto_plain_writes) store_global(p.stored, chunk_of(0));                      // @plain output
    store_box(map, place, beyond ? 32 : before ? -4 : 0, beyond ? 70 : before ? -10 : 0, 1, 0);  // @store box
    if (w != stored_not_committed && w != stored_and_overwritten_uncommitted) commit_boxes();
    if (w != stored_and_overwritten && w != stored_not_waited_for && w != stored_waited_for_by_another) {
      wait_boxes_read();
    }
    if (w == stored_and_overwritten_uncommitted) commit_boxes();
    if (w == stored_onto_stored) store_box(map, place, 0, 63, 1, 0);  // @store box again
    if (w == stored_and_read) load_global(p.stored);                  // @read output
  }
  if (w == stored_waited_for_by_another && thread_index() == 1) wait_boxes_read();
  const bool again = w == stored_twice_from_one_stage || w == stored_and_overwritten ||
                     w == stored_and_overwritten_uncommitted || w == stored_and_overwritten_without_barrier;
  if (!again) return;
  if (w != stored_and_overwritten_without_barrier) named_barrier_wait(1, 128);
  fill(stage, 64, 1);
  fence_for_copies();
  named_barrier_wait(1, 128);
  if (first) {
    store_box(map, place, 0, 64, 1, 0);
    commit_boxes();
    wait_boxes_read();
  }
}

inline void named(const ProbeParams& p) {
  const u32 warp = warp_index();
  const u32 own = tile(0) + lane_index() * 16;
  if (p.which == named_by_other_warps && warp < 4) named_barrier_wait(6 + warp / 2, 64);
  if (p.which == named_by_other_warps && warp < 2) return named_barrier_wait(7, 64);
  if (warp > 1) return;
  if (p.which == named_number_zero) named_barrier_wait(0, 64);                           // @zero barrier
  if (p.which == named_part_of_a_warp) named_barrier_wait(1, 48);                        // @part
  if (p.which == named_differs_in_a_warp) named_barrier_wait(1 + lane_index() % 2, 64);  // @differs
  if (p.which == named_vote_of_one_thread || p.which == named_vote_of_nobody) {
    if (warp == 0) store_shared(own, chunk_of(lane_index()));
    const bool any = named_barrier_any(4, 64, p.which == named_vote_of_one_thread && thread_index() == 37);
    store_global(p.out + thread_index(), any ? value_at(own) + 1.0f : 0.0f);
    return;
  }
  if (p.which == named_vote_among_waits) {
    if (warp == 0) named_barrier_wait(5, 64);  // @waits
    named_barrier_any(5, 64, true);            // @votes
  }
  if (p.which == named_left_half_full) {
    if (warp == 1) named_barrier_announce(2, 64);  // @left
    return;
  }
  if (warp == 0) {
    store_shared(own, chunk_of(lane_index()));
    named_barrier_announce(3, 64);                                          // @announce
    if (p.which == named_announcer_learns_nothing) load_shared(own + 512);  // @unknown
  } else {
    if (p.which == named_announcer_learns_nothing) store_shared(own + 512, chunk_of(1));
    named_barrier_wait(3, p.which == named_counts_differ || p.which == named_lacks_a_warp ? 96 : 64);  // @wait at 3
    store_global(p.out + thread_index(), value_at(own));
  }
}

inline void registers(const ProbeParams& p) {
  if (p.which == registers_of_odd_number) take_registers<132>();  // @odd number
  if (p.which == registers_taken_down) give_registers<96>();
  if (p.which == registers_taken_down) take_registers<64>();  // @down
  if (p.which == registers_given_up) give_registers<160>();   // @up
  if (warp_index() < 4) {
    if (p.which == registers_change_hands) give_registers<32>();
  } else {
    take_registers<160>();  // @take
  }
}

// Added to a descriptor of these tiles for each step of a product.
constexpr u64 columns_right(int step) { return step * 2; }
constexpr u64 rows_down(int step) { return step * 2048 / 16; }

inline void products(const ProbeParams& p) {
  if (warp_index() >= 4) return;
  const u32 lane = lane_index();
  const int w = p.which;
  create_barriers(1);
  if (thread_index() == 0) {
    mbarrier_arrive_expect(barrier(0), 2 * tile_bytes);
    load_box(tile(0), p.map, barrier(0), 0, 0, 0, 0);
    load_box(tile(1), p.map, barrier(0), 0, 10, 1, 0);  // @operand
  }
  const bool plain =
      w == product_of_plain_writes || w == product_of_fenced_writes || w == product_of_writes_fenced_for_one;
  if (plain) {
    for (u32 i = thread_index(); i < 2 * tile_bytes / 16; i += 128) store_shared(tile(2) + i * 16, chunk_of(0));  // @st
    if (w == product_of_fenced_writes) fence_for_copies();
    block_barrier();
    if (w == product_of_writes_fenced_for_one && thread_index() == 0) fence_for_copies();
  }
  if (w != product_of_late_copy) mbarrier_wait(barrier(0), 0);

  float D[columns / 8][4];
  float E[columns / 8][4];
  u32 A_words[4][4];
  for (u32 k = 0; k < 4; ++k) {
    for (u32 i = 0; i < 4; ++i) {
      const float row = static_cast<float>(warp_index() * 16 + lane / 4 + i % 2 * 8);
      const u32 column = k * 16 + lane % 4 * 2 + i / 2 * 8;
      A_words[k][i] = two_of(row + static_cast<float>(column % 5), row + static_cast<float>((column + 1) % 5));
    }
  }
  const u32 from = plain ? 2 : 0;
  u64 A = matrix_descriptor(tile(from), 16);
  u64 B = matrix_descriptor(tile(from + 1), 16);
  if (w == product_of_two_descriptors && warp_index() == 2) B += 2;
  if (w == product_misaligned) B += 8;
  if (w == product_of_other_swizzle) B ^= 3ULL << 62;
  if (w == product_beyond_shared) B = matrix_descriptor(tile(8), 16);
  if (w == product_without_a_warp && warp_index() == 3) return;
  if (w != product_without_fence) wgmma_fence();
  if (w == product_of_registers_without_fence) {
    wgmma<Dtype::bf16, true, rows_down>(E, A_words, B, false);
    wgmma_commit();
    wgmma_wait<0>();
    A_words[0][1] += 1;
  }
  if (w == product_in_two_places && warp_index() == 1) {
    wgmma<Dtype::bf16, false, columns_right, columns_right, 0, 1>(D, A, B, false);  // @elsewhere
  }
  const bool of_registers =
      w == product_of_registers || w == product_of_changed_registers || w == product_of_registers_without_fence;
  if (of_registers) {
    wgmma<Dtype::bf16, true, rows_down>(D, A_words, B, false);  // @of registers
  } else if (w == product_of_registers_by_rows) {
    wgmma<Dtype::bf16, false, columns_right>(D, A_words, B, false);
  } else {
    wgmma<Dtype::bf16, false, columns_right, columns_right, 0, 4>(D, A, B, false);  // @product
  }
  if (w != product_not_committed) wgmma_commit();
  if (w == product_older_waited_for || w == product_newer_not_waited_for) {
    wgmma<Dtype::bf16, false, columns_right, columns_right, 0, 1>(E, A, B, false);  // @newer
    wgmma_commit();
    wgmma_wait<1>();
    if (w == product_newer_not_waited_for) settle(E);  // @settle E
    settle(D);
  }
  if (w == product_touched) D[1][1] = 3;
  if (w == product_of_changed_registers) A_words[2][3] += 1;
  if (w == product_of_overwritten_operand && thread_index() == 0) {
    mbarrier_arrive_expect(barrier(1), tile_bytes);
    load_box(tile(1), p.map, barrier(1), 0, 0, 0, 0);  // @overwrite
  }
  wgmma_wait<0>();                          // @wait for product
  if (w != product_not_settled) settle(D);  // @settle
  if (w == product_of_registers_not_settled) {
    D[2][3] += 1;
    wgmma_fence();
    wgmma<Dtype::bf16, false, columns_right, columns_right, 0, 1>(D, A, B, true);  // @of unsettled
  }
  if (w == product_of_settled_without_fence) {
    wgmma<Dtype::bf16, false, columns_right, columns_right, 0, 1>(D, A, B, true);  // @unfenced product
    wgmma_commit();
    wgmma_wait<0>();
    settle(D);
  }
  for (u32 i = 0; i < columns / 2; ++i) store_global(p.out + thread_index() * 32 + i, D[i / 4][i % 4]);
}

// The copy engine reads what another block wrote with plain stores.
inline void load_handed_over(const ProbeParams& p) {
  if (warp_index() != 0) return;
  u64* word = reinterpret_cast<u64*>(p.out);
  const u32 lane = lane_index();
  if (block_number() == 0) {
    if (lane < 8) store_global(p.stored + lane, Chunk{});  // @handed over
    fence_for_copies();
    warp_barrier();
    if (lane == 0) announce_word(word, 1);
  } else if (lane == 0) {
    await_word(word, 1);
    load_global(p.stored);
    fence_for_copies();
    mbarrier_init(shared_memory(), 1);
    mbarrier_fence();
    load_box(tile(0), p.stored_map, shared_memory(), 0, 0, 1, 0);  // @box of handed over
  }
}

extern "C" void probe_async(const ProbeParams p) {
  if (p.which <= mbarrier_lacks_an_arrival) return mbarriers(p);
  if (p.which <= mbarrier_phase_missed) return wrong_mbarriers(p);
  if (p.which <= box_at_the_end) return boxes(p);
  if (p.which <= matrices_onto_mbarrier) return matrices(p);
  if (p.which <= stored_of_mbarrier) return stores(p);
  if (p.which == loaded_of_handed_over) return load_handed_over(p);
  if (p.which <= named_by_other_warps) return named(p);
  if (p.which <= registers_given_up) return registers(p);
  products(p);
}
