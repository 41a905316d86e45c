// Small kernels, each right or wrong in one way. Compiled behind templates/types.h; `which` picks one.
// A line that a test expects to be named ends with `// @name`.

struct ProbeParams {
  int which;
  void* in;    // 256 chunks
  float* out;  // 64 floats for each block
};

enum Which {
  barrier_orders,
  no_barrier_races,
  warp_barrier_orders_a_warp,
  warp_barrier_does_not_order_a_block,
  write_after_read_races,
  neighbouring_words_are_apart,
  same_word_races,
  reads_unwritten,
  reaches_beyond_shared,
  misaligned_shared,
  global_beyond_the_end,
  global_between_rows,
  writes_an_input,
  misaligned_global,
  reads_output_early,
  reads_own_output,
  two_threads_write_one_element,
  two_blocks_write_one_element,
  copy_waited_for,
  copy_not_waited_for,
  copy_without_barrier,
  older_copy_waited_for,
  newer_copy_not_waited_for,
  two_copies_to_one_place,
  copy_of_zeros,
  copy_onto_unread_data,
  lane_misses_a_shuffle,
  some_lanes_ask_for_their_warp,
  thread_misses_the_barrier,
  lane_ends_before_a_vote,
  warps_may_end_before_a_barrier,
  two_barriers_in_one_warp,
  shuffles_and_votes,
  a_lane_is_elected,
  columns_conflict,
  rows_do_not_conflict,
  second_block_fails,
};

inline Chunk chunk_of(unsigned value) { return {{value, value, value, value}}; }

inline float* own_element(const ProbeParams& p) { return p.out + block_index().x * 64 + thread_index(); }

// So that a race is told from a first read.
inline void fill_shared() {
  for (u32 i = thread_index(); i < 128; i += 64) store_shared(shared_memory() + i * 16, chunk_of(1));
  block_barrier();
}

inline void barriers(const ProbeParams& p) {
  fill_shared();
  const u32 own = shared_memory() + thread_index() * 16;
  const u32 other = shared_memory() + (63 - thread_index()) * 16;
  const u32 neighbour = shared_memory() + (thread_index() ^ 1) * 16;
  if (p.which == warp_barrier_orders_a_warp || p.which == write_after_read_races) {
    store_shared(own, chunk_of(thread_index()));
    warp_barrier();
    store_global(own_element(p), static_cast<float>(load_shared(neighbour).word[0]));  // @early read
    if (p.which == write_after_read_races) store_shared(own, chunk_of(7));             // @late write
    return;
  }
  store_shared(own, chunk_of(thread_index()));  // @write
  if (p.which == barrier_orders) block_barrier();
  if (p.which == warp_barrier_does_not_order_a_block) warp_barrier();
  store_global(own_element(p), static_cast<float>(load_shared(other).word[0]));  // @read
}

inline void words(const ProbeParams& p) {
  const u32 word = p.which == same_word_races ? thread_index() / 2 : thread_index();
  store_shared(shared_memory() + word * 4, thread_index());  // @word
  block_barrier();
  store_global(own_element(p), static_cast<float>(load_shared(shared_memory()).word[3]));
}

inline void wrong_places(const ProbeParams& p) {
  const char* in = static_cast<const char*>(p.in);
  if (p.which == reads_unwritten) load_shared(shared_memory() + 48);  // @unwritten
  if (p.which == reaches_beyond_shared)
    store_shared(shared_memory() + 4092, 0u), store_shared(shared_memory() + 4096, 0u);           // @beyond
  if (p.which == misaligned_shared) store_shared(shared_memory() + 8, chunk_of(0));               // @misaligned
  if (p.which == global_beyond_the_end) load_global(in + 256 * 16);                               // @end
  if (p.which == global_between_rows) load_global(in + 8 * 16);                                   // @gap
  if (p.which == writes_an_input) store_global(p.in, chunk_of(0));                                // @input
  if (p.which == misaligned_global) load_global(in + 8);                                          // @misaligned global
  if (p.which == reads_output_early) load_global(p.out);                                          // @early
  if (p.which == two_threads_write_one_element) store_global(p.out, 1.0F);                        // @twice
  if (p.which == two_blocks_write_one_element && thread_index() == 0) store_global(p.out, 1.0F);  // @blocks
  if (p.which == second_block_fails && block_index().x > 0) load_shared(shared_memory());         // @block
  if (p.which == reads_own_output && thread_index() == 0) {
    store_global(p.out, chunk_of(0x3f800000));
    store_global(p.out + 4, load_global(p.out));
  }
}

inline void copies(const ProbeParams& p) {
  const char* in = static_cast<const char*>(p.in);
  const u32 own = shared_memory() + thread_index() * 16;
  const u32 other = shared_memory() + (63 - thread_index()) * 16;
  fill_shared();
  if (p.which == copy_onto_unread_data) load_shared(other);
  const bool second = p.which == newer_copy_not_waited_for;
  const bool clash = p.which == two_copies_to_one_place;
  cp_async(own, in + thread_index() % 8 * 16, p.which != copy_of_zeros);  // @copy
  cp_async_commit();
  cp_async(clash ? own : own + 1024, in + thread_index() % 8 * 16, true);  // @second copy
  cp_async_commit();
  if (p.which == copy_waited_for || p.which == copy_of_zeros) cp_async_wait<0>();
  if (p.which == older_copy_waited_for || p.which == copy_without_barrier || second) cp_async_wait<1>();
  if (p.which != copy_without_barrier) block_barrier();
  const Chunk got = load_shared(second ? other + 1024 : other);  // @use
  store_global(own_element(p), static_cast<float>(got.word[0]));
}

inline void divergence(const ProbeParams& p) {
  const u32 lane = lane_index();
  if (p.which == lane_misses_a_shuffle) {
    if (lane != 5) shuffle_xor(1.0F, 1);  // @shuffle
    warp_barrier();                       // @instead
  } else if (p.which == some_lanes_ask_for_their_warp) {
    u32 warp = 0;
    if (lane % 4 == 0) warp = warp_index();  // @asks
    any_lane(warp > 0);
  } else if (p.which == thread_misses_the_barrier) {
    if (thread_index() != 40) block_barrier();  // @barrier
    any_lane(true);                             // @vote instead
  } else if (p.which == lane_ends_before_a_vote) {
    if (lane == 3) return;
    any_lane(true);  // @vote
  } else if (p.which == warps_may_end_before_a_barrier) {
    if (warp_index() == 1) return;
    block_barrier();
  } else if (p.which == two_barriers_in_one_warp) {
    if (lane < 16) {
      block_barrier();  // @one
    } else {
      block_barrier();  // @other
    }
  }
}

inline void exchange(const ProbeParams& p) {
  const float sum = shuffle_xor(static_cast<float>(lane_index()), 9);
  const bool any = any_lane(thread_index() == 37);
  store_global(own_element(p), sum + (any ? 1000.0F : 0.0F));
}

inline void election(const ProbeParams& p) {
  const bool elected = elect_lane();
  store_global(own_element(p), (elected ? 1.0F : 0.0F) + (elected != elect_lane() ? 100.0F : 0.0F));
}

inline void banks(const ProbeParams& p) {
  const u32 address = shared_memory() + (p.which == columns_conflict ? thread_index() % 8 * 128 : thread_index() * 16);
  if (thread_index() < 8 || p.which == rows_do_not_conflict) store_shared(address, chunk_of(0));  // @bank
}

extern "C" void probe(const ProbeParams p) {
  if (p.which <= write_after_read_races) return barriers(p);
  if (p.which <= same_word_races) return words(p);
  if (p.which <= two_blocks_write_one_element || p.which == second_block_fails) return wrong_places(p);
  if (p.which <= copy_onto_unread_data) return copies(p);
  if (p.which <= two_barriers_in_one_warp) return divergence(p);
  if (p.which == shuffles_and_votes) return exchange(p);
  if (p.which == a_lane_is_elected) return election(p);
  banks(p);
}
