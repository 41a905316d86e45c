// What the emulator promises of clusters, whose blocks read each other's shared memory, each on the smallest kernel
// that shows it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "runtime/base/error.hpp"
#include "tests/emulator/probe.hpp"

namespace attune::emulator_tests {
namespace {

constexpr int threads = 64;

Probe::Options of(unsigned cluster, unsigned blocks_x = 1, unsigned blocks_y = 0) {
  Probe::Options options;
  options.blocks = blocks_x;
  options.blocks_y = blocks_y == 0 ? cluster : blocks_y;
  options.cluster = cluster;
  return options;
}

/// What the kernel, which must be without a fault, wrote.
std::vector<float> check_clean(const std::string& which, const Probe::Options& options) {
  CAPTURE(which);
  CAPTURE(options.cluster);
  CAPTURE(options.jobs);
  CAPTURE(options.seed);
  Probe::Outcome outcome = Probe::cluster().run(which, options);
  CHECK_MESSAGE(outcome.report.ok(), outcome.report.fault);
  return std::move(outcome.out);
}

/// The same fault, whichever warps run first.
void check_fault(const std::string& which, const std::vector<std::string>& words, unsigned cluster = 2) {
  Probe::Options options = of(cluster);
  for (options.seed = 1; options.seed <= 12; ++options.seed) {
    CAPTURE(options.seed);
    Probe::cluster().check_fault(which, words, options);
  }
}

/// As probe_cluster.cu has it.
float value_of(unsigned x, unsigned y, unsigned thread) { return static_cast<float>(x * 10000 + y * 100 + thread); }

/// What thread `thread` of block (x, y) of `blocks_x` along x wrote.
float written(const std::vector<float>& out, unsigned blocks_x, unsigned x, unsigned y, unsigned thread) {
  return out[(std::size_t{y} * blocks_x + x) * threads + thread];
}

}  // namespace

TEST_CASE("blocks of a cluster read what the others wrote before the cluster's barrier") {
  constexpr unsigned blocks_x = 3;
  constexpr unsigned blocks_y = 8;
  for (const unsigned cluster : {1, 2, 4, 8}) {
    for (const int jobs : {1, 2, 4}) {
      Probe::Options options = of(cluster, blocks_x, blocks_y);
      options.jobs = jobs;
      options.seed = cluster + static_cast<unsigned>(jobs);
      const std::vector<float> out = check_clean("reads_every_block", options);
      for (unsigned x = 0; x < blocks_x; ++x) {
        for (unsigned y = 0; y < blocks_y; ++y) {
          for (unsigned t = 0; t < threads; ++t) {
            float sum = value_of(x, y, t);
            for (unsigned other = y / cluster * cluster; other < (y / cluster + 1) * cluster; ++other) {
              if (other != y) sum += value_of(x, other, t ^ 33);
            }
            CHECK(written(out, blocks_x, x, y, t) == sum);
          }
        }
      }
    }
  }
}

TEST_CASE("four floats are read at a time") {
  const std::vector<float> out = check_clean("reads_four_floats", of(4));
  for (unsigned y = 0; y < 4; ++y) {
    for (unsigned i = 0; i < threads; ++i) {
      CHECK(written(out, 1, 0, y, i) == value_of(0, (y + 1) % 4, i / 4) + 0.25F * static_cast<float>(i % 4));
    }
  }
}

TEST_CASE("what a block's copies brought, the others read behind its wait and the barrier") {
  Probe::Options options = of(4);
  for (options.seed = 1; options.seed <= 4; ++options.seed) {
    const std::vector<float> out = check_clean("reads_what_copies_brought", options);
    for (unsigned y = 0; y < 4; ++y) {
      for (unsigned t = 0; t < threads; ++t) {
        CHECK(std::bit_cast<std::uint32_t>(written(out, 1, 0, y, t)) == (y + 1) % 4 * 9 + t % 8);
      }
    }
  }
  check_fault("reads_what_copies_bring_late",
              {"@read copied", "race: reads shared address", "by the asynchronous copy that thread", "of block (0, ",
               "@copy", "no wait, or no barrier after it"});
}

TEST_CASE("ldmatrix loads from the own block's memory, and banks are those of a block by itself") {
  Probe::Options options = of(4);
  options.count_banks = true;
  const std::vector<float> out = check_clean("loads_matrices", options);
  for (unsigned y = 0; y < 4; ++y) {
    for (unsigned t = 0; t < threads; ++t) {
      const unsigned row = t / 32 * 32 + t % 32 / 4;  // of the first matrix
      const auto first = static_cast<float>(y * 1000 + row);
      CHECK(written(out, 1, 0, y, t) == first + 0.25F * (first + 24));
    }
  }
  const std::vector<emulator::BankSite> together = Probe::cluster().run("loads_matrices", options).report.sites;
  options.cluster = 1;
  const std::vector<emulator::BankSite> alone = Probe::cluster().run("loads_matrices", options).report.sites;
  REQUIRE(together.size() == 2);
  REQUIRE(alone.size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(together[i].line == alone[i].line);
    CHECK(together[i].accesses == 8);
    CHECK(together[i].wavefronts == alone[i].wavefronts);
    CHECK(together[i].ideal == alone[i].ideal);
    CHECK(together[i].conflicts());
  }
}

TEST_CASE("a block knows its number in its cluster and the cluster's size; threads are numbered within their block") {
  for (const unsigned cluster : {1, 3}) {
    const std::vector<float> out = check_clean("ranks", of(cluster, 2, 6));
    for (unsigned x = 0; x < 2; ++x) {
      for (unsigned y = 0; y < 6; ++y) {
        for (unsigned t = 0; t < threads; ++t) {
          CHECK(written(out, 2, x, y, t) == static_cast<float>(y % cluster * 10000 + cluster * 100 + t));
        }
      }
    }
  }
}

TEST_CASE("blocks may take turns, with a barrier between any two") {
  for (const unsigned cluster : {1, 2, 5}) {
    Probe::Options options = of(cluster);
    for (options.seed = 1; options.seed <= 4; ++options.seed) {
      const std::vector<float> out = check_clean("in_turns", options);
      for (unsigned y = 0; y < cluster; ++y) {
        const unsigned last_turn = cluster + y;
        const unsigned sum = last_turn * (last_turn + 1) / 2;
        CHECK(written(out, 1, 0, y, 9) == static_cast<float>(sum));
      }
    }
  }
}

TEST_CASE("the cluster's barrier orders what its blocks do to global memory, and nothing else does") {
  CHECK(check_clean("hands_over_in_global_memory", of(2))[threads + 5] == 6);
  check_fault("writes_global_memory_unordered",
              {"@second", "block (0, 1, 0)", "race: writes element", "@first", "of this cluster"});
}

TEST_CASE("a block's barrier is for its own threads") {
  const std::vector<float> out = check_clean("only_one_block_has_a_barrier", of(3));
  for (unsigned t = 0; t < threads; ++t) CHECK(out[t] == value_of(0, 0, 63 - t));
}

TEST_CASE("the cluster's barrier does not wait for threads that have ended") {
  const std::vector<float> out = check_clean("some_threads_end_early", of(2));
  for (unsigned t = 0; t < 32; ++t) CHECK(out[t] == value_of(0, 1, t));
}

TEST_CASE("a read of another block's memory without the cluster's barrier is a race") {
  check_fault("reads_without_barrier", {"@read", "from block (0, ", "reads shared address"});
  check_fault("reads_behind_a_block_barrier",
              {"@read", "from block (0, ", "race: reads shared address", "unordered with a write there by thread",
               "@write", "no barrier orders the two"});
}

TEST_CASE("overwriting what another block may still be reading is a race, whichever comes first") {
  check_fault("overwrites_what_is_read", {"@overwrite", "race: ", "of block (0, ", "@read"});
  check_fault("overwrites_what_was_read_first",
              {"@overwrite early", "block (0, 0, 0)", "race: writes shared address", "unordered with a read there",
               "of block (0, 1, 0) in line", "@read early"});
  check_fault("overwrites_before_it_is_read",
              {"@read early", "block (0, 1, 0)", "race: reads shared address", "unordered with a write there",
               "of block (0, 0, 0) in line", "@overwrite early"});
}

TEST_CASE("a block may not end before others have read its memory, whichever happens first") {
  const std::vector<std::string> words{"@late read", "block (0, 1, 0)",
                                       "reads from block (0, 0, 0), which may have ended"};
  for (const unsigned cluster : {2, 4}) {
    check_fault("ends_before_it_is_read", words, cluster);
    check_fault("ends_while_it_is_read", words, cluster);
    check_fault("ends_after_it_is_read", words, cluster);
  }
}

TEST_CASE("a thread that reads and ends has told nobody of its read") {
  check_fault("reads_and_ends_early", {"@read and end", "thread 7 ", "which may have ended"});
}

TEST_CASE("a read of a block that the cluster has not got is a fault") {
  check_fault("reads_a_block_beyond", {"@beyond", "reads from block 2 of its cluster, which has 2"});
}

TEST_CASE("no address reaches the memory of another block") {
  const std::string outside =
      "at shared address 0x1200 are outside the launch's shared memory, which is from 0x200 to "
      "0x1200";
  check_fault("reads_outside", {"@outside", "from block (0, 0, 0): 16 bytes " + outside});
  check_fault("reads_outside_of_its_own", {"@outside of its own", outside});
  check_fault("copies_outside", {"@copies outside", outside});
}

TEST_CASE("a read of another block's memory is aligned and of what was written") {
  check_fault("reads_misaligned", {"@misaligned", "shared address 0x488 is not aligned to the 16 bytes"});
  check_fault("reads_the_unwritten", {"@unwritten",
                                      "from block (0, 0, 0): reads shared address 0x480, which nothing "
                                      "has written"});
}

TEST_CASE("a barrier of the cluster to which not all come is a deadlock, and says where they wait") {
  const std::string at_cluster = "on wait at cluster_barrier in " + Probe::cluster().line("cluster barrier");
  check_fault(
      "a_warp_does_not_come",
      {"block (0, 0, 0), thread 0 ", "deadlock: nothing can happen any more",
       "64 threads from 0 of block (0, 0, 0) " + at_cluster, "32 threads from 0 of block (0, 1, 0) " + at_cluster,
       "32 threads from 32 of block (0, 1, 0) on wait at block_barrier in line", "@block barrier"});
}

TEST_CASE("lanes of a warp come to the cluster's barrier together") {
  check_fault("lanes_part", {"@cluster barrier", "block (0, 1, 0), thread 32 (warp 1, lane 0)",
                             "waits for thread 40 of the same warp, which waits at block_barrier", "@parted"});
}

TEST_CASE("a fault names the block and its own number of the thread") {
  for (const int jobs : {1, 2, 4}) {
    Probe::Options options = of(2, 2, 4);
    options.jobs = jobs;
    Probe::cluster().check_fault("one_block_fails", {"@fails", "block (1, 3, 0), thread 40 (warp 1, lane 8)"}, options);
  }
}

TEST_CASE("a grid that is no whole number of clusters is refused") {
  for (const unsigned cluster : {4, 0, -1}) {
    CHECK_THROWS_WITH_AS(Probe::cluster().run("ranks", of(cluster, 4, 6)),
                         fmt::format("6 blocks along y are no whole clusters of {}", cluster).c_str(), Error);
  }
}

TEST_CASE("what is not modelled in clusters is refused") {
  const auto refused = [](const std::string& which, const std::string& line, const std::string& name) {
    check_fault(which, {line, name + " is not modelled in clusters"});
  };
  refused("announces_a_word", "@announce", "announce_word");
  refused("awaits_a_word", "@await", "await_word");
  refused("makes_an_mbarrier", "@mbarrier", "mbarrier_init");
  refused("loads_a_box", "@load box", "a bulk copy");
  refused("stores_a_box", "@store box", "a bulk copy");
  refused("waits_at_a_named_barrier", "@named", "named_barrier_wait");
  refused("announces_at_a_named_barrier", "@announced", "named_barrier_announce");
  refused("votes_at_a_named_barrier", "@votes", "named_barrier_any");
  refused("takes_registers", "@take", "take_registers");
  refused("gives_registers", "@give", "give_registers");
  refused("multiplies", "@wgmma", "wgmma");
  refused("fences_products", "@fence", "wgmma_fence");
}

}  // namespace attune::emulator_tests
