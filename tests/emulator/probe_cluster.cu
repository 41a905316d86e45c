// Small kernels whose blocks form clusters, each right or wrong in one way. Compiled behind templates/types.h; `which`
// picks one. A line that a test expects to be named ends with `// @name`.

struct ProbeParams {
  int which;
  void* in;    // 256 chunks
  float* out;  // 64 floats for each block
};

enum Which {
  reads_every_block,
  reads_four_floats,
  reads_what_copies_brought,
  loads_matrices,
  ranks,
  in_turns,
  hands_over_in_global_memory,
  only_one_block_has_a_barrier,
  some_threads_end_early,
  reads_without_barrier,
  reads_behind_a_block_barrier,
  reads_what_copies_bring_late,
  overwrites_what_is_read,
  overwrites_what_was_read_first,
  overwrites_before_it_is_read,
  ends_before_it_is_read,
  ends_while_it_is_read,
  ends_after_it_is_read,
  reads_and_ends_early,
  writes_global_memory_unordered,
  reads_a_block_beyond,
  reads_outside,
  reads_outside_of_its_own,
  copies_outside,
  reads_misaligned,
  reads_the_unwritten,
  a_warp_does_not_come,
  lanes_part,
  one_block_fails,
  announces_a_word,
  awaits_a_word,
  makes_an_mbarrier,
  loads_a_box,
  stores_a_box,
  waits_at_a_named_barrier,
  announces_at_a_named_barrier,
  votes_at_a_named_barrier,
  takes_registers,
  gives_registers,
  multiplies,
  fences_products,
};

inline float* own_data(const ProbeParams& p) {
  return p.out + (block_index().y * grid_size().x + block_index().x) * 64;
}
inline u32 next_block() { return (cluster_block() + 1) % cluster_blocks(); }

// Tells a thread from every other of the launch.
inline float value_of(u32 x, u32 y, u32 thread) { return static_cast<float>(x * 10000 + y * 100 + thread); }
inline float own_value() { return value_of(block_index().x, block_index().y, thread_index()); }

// A block barrier, which orders nothing between blocks, opens only once no other warp of the cluster can go on.
inline void let_others_go_ahead() { block_barrier(); }

inline void write_and_read(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 4;
  const u32 other = shared_memory() + (thread_index() ^ 33) * 4;
  store_shared(address, own_value());  // @write
  if (p.which == reads_behind_a_block_barrier) block_barrier();
  if (p.which == reads_every_block || p.which == overwrites_what_is_read) cluster_barrier();
  float sum = 0;
  for (u32 i = 1; i < cluster_blocks(); ++i) {
    sum += load_cluster_float(other, (cluster_block() + i) % cluster_blocks());  // @read
  }
  sum += load_cluster_float(address, cluster_block());
  if (p.which == overwrites_what_is_read) store_shared(address, 1.0F);  // @overwrite
  cluster_barrier();
  store_shared(address, 0.0F);
  store_global(own_data(p) + thread_index(), sum);
}

inline void four_floats(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 16;
  const float own = own_value();
  store_shared(address, Float4{own, own + 0.25F, own + 0.5F, own + 0.75F});
  cluster_barrier();
  const Float4 f = load_cluster_floats(address, next_block());
  cluster_barrier();
  if (thread_index() < 16) store_global(own_data(p) + thread_index() * 4, f);
}

inline void copies(const ProbeParams& p) {
  // Of each 9 chunks in a row 8 belong to the buffer.
  const u32 chunk = block_index().y * 9 + thread_index() % 8;
  const u32 address = shared_memory() + thread_index() * 16;
  cp_async(address, static_cast<const Chunk*>(p.in) + chunk, true);  // @copy
  cp_async_commit();
  if (p.which == reads_what_copies_brought) cp_async_wait<0>();
  cluster_barrier();
  const float word = load_cluster_float(address + 4, next_block());  // @read copied
  cluster_barrier();
  store_global(own_data(p) + thread_index(), word);
}

// Each block's warps load what their own block wrote, in rows whose stride costs bank conflicts.
inline void matrices(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 64;
  const u32 own = cluster_block() * 1000 + thread_index();
  store_shared(address, Chunk{{own, own, own, own}});
  warp_barrier();
  u32 words[4];
  ldmatrix(words, address);  // @matrices
  const float sum = static_cast<float>(words[0]) + 0.25F * static_cast<float>(words[3]);
  store_global(own_data(p) + thread_index(), sum);
}

// One block after the other adds to what the one before has.
inline void turns(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 4;
  for (u32 turn = 0; turn < 2 * cluster_blocks(); ++turn) {
    if (turn % cluster_blocks() == cluster_block()) {
      const float before = turn == 0 ? 0 : load_cluster_float(address, (turn - 1) % cluster_blocks());
      store_shared(address, before + static_cast<float>(turn));
    }
    cluster_barrier();
  }
  store_global(own_data(p) + thread_index(), load_shared_float(address));
}

inline void through_global_memory(const ProbeParams& p) {
  float* const first = p.out + thread_index();
  if (cluster_block() == 0) store_global(first, 5.0F);  // @first
  if (p.which == hands_over_in_global_memory) cluster_barrier();
  if (cluster_block() == 0) return;
  if (p.which == writes_global_memory_unordered) let_others_go_ahead();
  if (p.which == hands_over_in_global_memory) store_global(own_data(p) + thread_index(), load_global_float(first) + 1);
  if (cluster_block() == 1) store_global(first, 7.0F);  // @second
}

inline void one_barrier(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 4;
  store_shared(address, own_value());
  if (cluster_block() == 0) {
    block_barrier();
    store_global(own_data(p) + thread_index(), load_shared_float(shared_memory() + (63 - thread_index()) * 4));
  }
  cluster_barrier();
}

inline void early_ends(const ProbeParams& p) {
  const u32 address = shared_memory() + lane_index() * 4;
  if (thread_index() >= warp_size) return;
  store_shared(address, own_value());
  cluster_barrier();
  if (p.which == reads_and_ends_early && lane_index() == 7) {
    load_cluster_float(address, next_block());  // @read and end
    return;
  }
  store_global(own_data(p) + lane_index(), load_cluster_float(address, next_block()));
  cluster_barrier();
}

// Block 0 overwrites what the others read, with no barrier in between.
inline void overwrite(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 4;
  store_shared(address, 1.0F);
  cluster_barrier();
  if (cluster_block() == 0) {
    if (p.which == overwrites_what_was_read_first) let_others_go_ahead();
    store_shared(address, 2.0F);  // @overwrite early
  } else {
    if (p.which == overwrites_before_it_is_read) let_others_go_ahead();
    load_cluster_float(address, 0);  // @read early
  }
  cluster_barrier();
}

// Block 0 ends without a barrier behind the others' reads.
inline void end(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 4;
  store_shared(address, 1.0F);
  cluster_barrier();
  if (cluster_block() == 0) {
    if (p.which == ends_after_it_is_read) let_others_go_ahead();
    return;
  }
  if (p.which == ends_before_it_is_read) let_others_go_ahead();
  load_cluster_float(address, 0);  // @late read
  cluster_barrier();
}

inline void wrong_reads(const ProbeParams& p) {
  const u32 address = shared_memory() + thread_index() * 16;
  if (p.which != reads_the_unwritten) {
    for (u32 at = address; at < shared_memory() + 4096; at += 64 * 16) store_shared(at, Chunk{});
  }
  cluster_barrier();
  if (thread_index() == 40 && cluster_block() == 1) {
    if (p.which == reads_a_block_beyond) load_cluster_float(address, cluster_blocks());  // @beyond
    if (p.which == reads_outside) load_cluster_floats(shared_memory() + 4096, 0);        // @outside
    if (p.which == reads_misaligned) load_cluster_floats(address + 8, 0);                // @misaligned
    if (p.which == reads_the_unwritten) load_cluster_float(address, 0);                  // @unwritten
    if (p.which == copies_outside) cp_async(shared_memory() + 4096, p.in, true);         // @copies outside
  }
  // Where the window of another block lies is no memory of this one.
  if (thread_index() == 40 && cluster_block() == 0 && p.which == reads_outside_of_its_own) {
    load_shared(shared_memory() + 4096);  // @outside of its own
  }
  cluster_barrier();
}

inline void parted(const ProbeParams& p) {
  const bool last = cluster_block() + 1 == cluster_blocks();
  if (p.which == a_warp_does_not_come && last && thread_index() >= warp_size) block_barrier();  // @block barrier
  if (p.which == lanes_part && last && thread_index() == 40) block_barrier();                   // @parted
  cluster_barrier();                                                                            // @cluster barrier
}

constexpr u64 no_step(int /*step*/) { return 0; }

inline void not_modelled(const ProbeParams& p) {
  const u32 address = shared_memory();
  u64* word = reinterpret_cast<u64*>(own_data(p));
  const auto& map = *static_cast<const AttuneTensorMap*>(p.in);
  float D[1][4] = {};
  if (p.which == announces_a_word && thread_index() == 0) announce_word(word, 1);                          // @announce
  if (p.which == awaits_a_word) await_word(word, 1);                                                       // @await
  if (p.which == makes_an_mbarrier && thread_index() == 0) mbarrier_init(address, 1);                      // @mbarrier
  if (p.which == loads_a_box && thread_index() == 0) load_box(address, map, address, 0, 0, 0, 0);          // @load box
  if (p.which == stores_a_box && thread_index() == 0) store_box(map, address, 0, 0, 0, 0);                 // @store box
  if (p.which == waits_at_a_named_barrier) named_barrier_wait(1, 64);                                      // @named
  if (p.which == announces_at_a_named_barrier) named_barrier_announce(1, 64);                              // @announced
  if (p.which == votes_at_a_named_barrier) named_barrier_any(1, 64, true);                                 // @votes
  if (p.which == takes_registers) take_registers<240>();                                                   // @take
  if (p.which == gives_registers) give_registers<24>();                                                    // @give
  if (p.which == multiplies) wgmma<Dtype::bf16, false, no_step, no_step, 0, 1>(D, u64{0}, u64{0}, false);  // @wgmma
  if (p.which == fences_products) wgmma_fence();                                                           // @fence
}

extern "C" void probe_cluster(const ProbeParams p) {
  switch (static_cast<Which>(p.which)) {
    case reads_four_floats:
      return four_floats(p);
    case reads_what_copies_brought:
    case reads_what_copies_bring_late:
      return copies(p);
    case loads_matrices:
      return matrices(p);
    case ranks:
      return store_global(own_data(p) + thread_index(),
                          static_cast<float>(cluster_block() * 10000 + cluster_blocks() * 100 + thread_index()));
    case in_turns:
      return turns(p);
    case hands_over_in_global_memory:
    case writes_global_memory_unordered:
      return through_global_memory(p);
    case only_one_block_has_a_barrier:
      return one_barrier(p);
    case some_threads_end_early:
    case reads_and_ends_early:
      return early_ends(p);
    case overwrites_what_was_read_first:
    case overwrites_before_it_is_read:
      return overwrite(p);
    case ends_before_it_is_read:
    case ends_while_it_is_read:
    case ends_after_it_is_read:
      return end(p);
    case a_warp_does_not_come:
    case lanes_part:
      return parted(p);
    case one_block_fails:
      if (block_index().x == 1 && block_index().y == 3 && thread_index() == 40) load_shared(shared_memory());  // @fails
      return cluster_barrier();
    default:
      if (p.which >= announces_a_word) return not_modelled(p);
      if (p.which >= reads_a_block_beyond) return wrong_reads(p);
      write_and_read(p);
  }
}
