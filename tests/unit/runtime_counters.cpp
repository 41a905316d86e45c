// What a registry counts, from any number of threads.
#include "runtime/base/counters.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <thread>
#include <vector>

using namespace attune;

TEST_CASE("no hit is lost, with more threads than there are places, nor when a thread takes an ended one's place") {
  Counters counters;
  constexpr int threads = 100;
  constexpr int hits = 1000;
  for (const bool side_by_side : {true, false}) {
    std::barrier start(threads);
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        if (side_by_side) start.arrive_and_wait();
        for (int hit = 0; hit < hits; ++hit) counters.hit();
        if (side_by_side) start.arrive_and_wait();  // nobody's place is free before all have counted
      });
      if (!side_by_side) all.back().join();
    }
  }
  CHECK(counters.snapshot().hits == 2 * threads * hits);
}

TEST_CASE("a snapshot has every count and its own size") {
  Counters counters;
  counters.count_compile(0.25);
  counters.count_compile(0.5);
  ++counters.misses;
  counters.swaps += 3;
  const attune_counters snapshot = counters.snapshot();
  CHECK(snapshot.struct_size == sizeof(attune_counters));
  CHECK(snapshot.compiles == 2);
  CHECK(snapshot.compile_ms == 750);
  CHECK(snapshot.misses == 1);
  CHECK(snapshot.swaps == 3);
  CHECK(snapshot.hits == 0);
}
