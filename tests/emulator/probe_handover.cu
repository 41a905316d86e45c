// Small kernels in which block 0 hands data to others, each right or wrong in one way. Compiled behind
// templates/types.h; `which` picks one. A line that a test expects to be named ends with `// @name`.

struct ProbeParams {
  int which;
  void* in;    // 256 chunks
  float* out;  // 64 floats for each block: 32 of data, and from the 48th on places for words
};

enum Which {
  handed_over,
  by_a_copy,
  heard_from_two_blocks,
  handed_on_by_every_block,
  within_a_block,
  reset_behind_a_barrier,
  reset_without_barrier,
  replaced_unheard,
  replaced_by_another_lane,
  announced_by_two_blocks,
  awaits_nothing,
  announces_without_barrier,
  writes_after_announcing,
  one_lane_awaits,
  one_block_awaits,
  heard_and_overwritten,
  overwritten_unheard,
  nobody_announces,
  another_word_is_announced,
  memory_holds_the_word,
  awaits_a_later_block,
  stores_to_an_announced_word,
  announces_a_stored_word,
  loads_an_announced_word,
  announces_misaligned,
  awaits_misaligned,
  announces_in_an_input,
  awaits_in_an_input,
  announces_outside,
  writer_fails,
  later_block_fails_first,
};

inline float* data_of(const ProbeParams& p, u32 block) { return p.out + block * 64; }
inline u64* word_of(const ProbeParams& p, u32 block) { return reinterpret_cast<u64*>(p.out + block * 64 + 48); }

inline void write(const ProbeParams& p) {
  const u32 lane = lane_index();
  if (p.which == writer_fails) load_shared(shared_memory());  // @fails
  if (p.which == later_block_fails_first) {
    for (int i = 0; i < 2000; ++i) warp_barrier();
  }
  float* own = data_of(p, block_number()) + lane;
  const bool late = p.which == writes_after_announcing && lane == 0;
  if (!late) store_global(own, static_cast<float>(100 * block_number() + lane));  // @write
  if (p.which != announces_without_barrier) warp_barrier();
  u64* word = word_of(p, block_number());
  if (lane == 0 && p.which == another_word_is_announced) announce_word(word, 6);
  if (lane == 0 && p.which != nobody_announces && p.which != another_word_is_announced) announce_word(word, 7);
  if (late) store_global(own, 1.0F);  // @late write
}

inline void read(const ProbeParams& p) {
  const u32 lane = lane_index();
  if (p.which == overwritten_unheard) {
    store_global(data_of(p, 0) + lane, 1.0F);  // @overwrite unheard
    return;
  }
  const bool awaits = p.which == one_lane_awaits    ? lane == 0
                      : p.which == one_block_awaits ? block_number() == 1
                                                    : p.which != awaits_nothing;
  if (awaits) await_word(word_of(p, 0), 7);  // @await
  if (p.which == one_lane_awaits) warp_barrier();
  float sum = 0;
  if (p.which == by_a_copy) {
    cp_async(shared_memory() + lane * 16, data_of(p, 0) + lane / 4 * 4, true);
    cp_async_commit();
    cp_async_wait<0>();
    sum = load_shared_float(shared_memory() + lane * 16 + lane % 4 * 4);
  } else {
    sum = load_global_float(data_of(p, 0) + (lane ^ 1));  // @read
  }
  if (p.which == heard_from_two_blocks) {
    await_word(word_of(p, 1), 7);
    sum += load_global_float(data_of(p, 1) + lane);
  }
  if (p.which == heard_and_overwritten && block_number() + 1 == grid_size().x) {
    store_global(data_of(p, 0) + (lane ^ 1), 1.0F);  // @overwrite
  }
  store_global(data_of(p, block_number()) + lane, sum);
  if (p.which == reset_behind_a_barrier) warp_barrier();
  if (lane == 0 && (p.which == reset_behind_a_barrier || p.which == reset_without_barrier)) {
    announce_word(word_of(p, 0), 0);  // @reset
  }
}

// Each block adds to what the one before hands it.
inline void hand_on(const ProbeParams& p) {
  const u32 block = block_number();
  float sum = 1;
  if (block > 0) {
    await_word(word_of(p, block - 1), 7);
    sum += load_global_float(data_of(p, block - 1) + lane_index());
  }
  store_global(data_of(p, block) + lane_index(), sum);
  warp_barrier();
  if (lane_index() == 0) announce_word(word_of(p, block), 7);
}

inline void between_warps(const ProbeParams& p) {
  const u32 address = shared_memory() + lane_index() * 16;
  if (thread_index() < warp_size) {
    await_word(word_of(p, 0), 7);
    store_global(data_of(p, 0) + lane_index(), load_shared_float(address) + load_global_float(p.out + 32));
  } else {
    store_shared(address, 2.0F);
    if (lane_index() == 0) store_global(p.out + 32, 3.0F);
    warp_barrier();
    if (lane_index() == 0) announce_word(word_of(p, 0), 7);
  }
}

// Two announcements at one place.
inline void announce_twice(const ProbeParams& p) {
  const bool first = block_number() == 0 && lane_index() == 0;
  if (first) announce_word(word_of(p, 0), 1);  // @first
  if (first && p.which != announced_by_two_blocks) announce_word(word_of(p, 0), 2);
  if (p.which == replaced_unheard) return;
  const bool second = p.which == announced_by_two_blocks ? block_number() == 1 && lane_index() == 0 : lane_index() == 1;
  if (second) announce_word(word_of(p, 0), 3);  // @second
}

inline void wrong_words(const ProbeParams& p) {
  if (lane_index() != 0) return;
  u64* word = word_of(p, 0);
  u64* input = static_cast<u64*>(p.in);
  float* element = p.out + 49;
  u64* between = reinterpret_cast<u64*>(element);
  if (p.which == announces_a_stored_word) store_global(element, 1.0F);  // @stored
  if (p.which == stores_to_an_announced_word || p.which == announces_a_stored_word ||
      p.which == loads_an_announced_word)
    announce_word(word, 1);                                                                // @announced
  if (p.which == stores_to_an_announced_word) store_global(element, 1.0F);                 // @store
  if (p.which == loads_an_announced_word) load_global_float(element);                      // @load
  if (p.which == announces_misaligned) announce_word(between, 1);                          // @misaligned
  if (p.which == awaits_misaligned) await_word(between, 1);                                // @awaits misaligned
  if (p.which == announces_in_an_input) announce_word(input, 1);                           // @input
  if (p.which == awaits_in_an_input) await_word(input, 1);                                 // @awaits input
  if (p.which == announces_outside) announce_word(reinterpret_cast<u64*>(p.out + 64), 1);  // @outside
}

extern "C" void probe_handover(const ProbeParams p) {
  if (p.which == within_a_block) return between_warps(p);
  if (thread_index() >= warp_size) return;
  if (p.which == handed_on_by_every_block) return hand_on(p);
  if (p.which >= replaced_unheard && p.which <= announced_by_two_blocks) return announce_twice(p);
  if (p.which >= stores_to_an_announced_word && p.which <= announces_outside) return wrong_words(p);
  if (p.which == memory_holds_the_word) {
    await_word(word_of(p, 0), 0x7fc000007fc00000);  // @holds
  } else if (p.which == awaits_a_later_block) {
    if (block_number() == 0) await_word(word_of(p, 1), 7);  // @awaits later
    if (block_number() == 1 && lane_index() == 0) announce_word(word_of(p, 1), 7);
  } else if (p.which == later_block_fails_first && block_number() == 2) {
    load_shared(shared_memory());
  } else if (p.which == later_block_fails_first && block_number() == 1) {
    await_word(word_of(p, 0), 7);
    load_shared(shared_memory());  // @own fault
  } else if (block_number() == 0 || (p.which == heard_from_two_blocks && block_number() == 1)) {
    write(p);
  } else {
    read(p);
  }
}
