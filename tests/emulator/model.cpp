// What the emulator promises of threads, barriers, memory and time, each on the smallest kernel that shows it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/emulator/probe.hpp"

namespace attune::emulator_tests {
namespace {

std::vector<float> check_clean(const std::string& which) { return Probe::instance().check_clean(which); }

void check_fault(const std::string& which, const std::vector<std::string>& words) {
  Probe::instance().check_fault(which, words);
}

}  // namespace

TEST_CASE("a barrier orders what its threads did before with what they do after") {
  const std::vector<float> out = check_clean("barrier_orders");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == 63 - i);
}

TEST_CASE("without a barrier a read of what another thread wrote is a race, whatever the schedule") {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Probe::Options options;
    options.seed = seed;
    const std::string fault = Probe::instance().run("no_barrier_races", options).report.fault;
    CHECK(!fault.empty());
  }
}

TEST_CASE("a fault names kernel, line, block, thread, address and the other thread's line") {
  check_fault("warp_barrier_does_not_order_a_block",
              {"probe: ", "@read", "block (0, 0, 0)", "thread ", "warp ", "lane ", "race: ", "shared address 0x",
               "by thread ", "@write", "no barrier orders the two"});
}

TEST_CASE("a warp's barrier orders its lanes, and not the lanes of other warps") {
  const std::vector<float> out = check_clean("warp_barrier_orders_a_warp");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (i ^ 1));
  check_fault("warp_barrier_does_not_order_a_block", {"race"});
}

TEST_CASE("a write that may come before an earlier read has its value is a race") {
  check_fault("write_after_read_races", {"race"});
}

TEST_CASE("races are found byte by byte") {
  CHECK(check_clean("neighbouring_words_are_apart")[5] == 3);
  check_fault("same_word_races", {"@word", "race: writes shared address", "unordered with a write"});
}

TEST_CASE("shared memory that nothing has written cannot be read") {
  check_fault("reads_unwritten", {"@unwritten", "reads shared address 0x230, which nothing has written"});
}

TEST_CASE("an access beyond the shared memory of the launch, or misaligned, is a fault") {
  check_fault("misaligned_shared", {"@misaligned", "shared address 0x208", "16 bytes"});
  check_fault("reaches_beyond_shared",
              {"@beyond", "4 bytes at shared address 0x1200 are outside", "from 0x200 to 0x1200"});
}

TEST_CASE("global memory is the caller's buffers and nothing around or between their rows") {
  check_fault("global_beyond_the_end", {"@end", "reads 16 bytes", "bytes beyond the end of in"});
  check_fault("global_between_rows", {"@gap", "at byte 128 of in", "between its rows"});
  check_fault("writes_an_input", {"@input", "writes 16 bytes", "in", "may only read"});
  check_fault("misaligned_global", {"@misaligned global", "not aligned"});
}

TEST_CASE("an output can be read by the thread that wrote it, and not before") {
  CHECK(check_clean("reads_own_output")[4] == 1);
  check_fault("reads_output_early", {"@early", "element 0 of out, which nothing has written"});
}

TEST_CASE("two writers of one element of an output are a race, in a block and between blocks") {
  check_fault("two_threads_write_one_element", {"@twice", "race: writes element 0 of out", "this block"});
  Probe::Options options;
  options.blocks = 2;
  const std::string fault = Probe::instance().run("two_blocks_write_one_element", options).report.fault;
  CHECK_MESSAGE(fault.find("another block") != std::string::npos, fault);
}

TEST_CASE("a copy is there for its thread after the wait, and for others after a barrier behind it") {
  const std::vector<float> out = check_clean("copy_waited_for");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (63 - i) % 8);
  check_fault("copy_not_waited_for", {"@use", "race", "asynchronous copy that thread", "@copy", "no wait"});
  check_fault("copy_without_barrier", {"@use", "race", "@copy"});
}

TEST_CASE("a wait that leaves one group pending covers the older group and not the newer") {
  const std::vector<float> out = check_clean("older_copy_waited_for");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == (63 - i) % 8);
  check_fault("newer_copy_not_waited_for", {"@use", "@second copy"});
}

TEST_CASE("copies of one thread are not ordered with one another") {
  check_fault("two_copies_to_one_place", {"@second copy", "race: writes", "@copy"});
}

TEST_CASE("a copy whose source does not exist writes zeros") {
  const std::vector<float> out = check_clean("copy_of_zeros");
  CHECK(std::all_of(out.begin(), out.end(), [](float value) { return value == 0; }));
}

TEST_CASE("a copy onto what others may still be reading is a race") { check_fault("copy_onto_unread_data", {"race"}); }

TEST_CASE("a collective that a lane never comes to is reported with both places, not waited for") {
  check_fault("lane_misses_a_shuffle", {"@shuffle", "shuffle_xor waits for thread ", "warp_barrier", "@instead"});
  check_fault("some_lanes_ask_for_their_warp", {"@asks", "any_lane"});
  check_fault("thread_misses_the_barrier", {"@barrier", "block_barrier", "any_lane", "@vote instead"});
  check_fault("lane_ends_before_a_vote", {"@vote", "thread 3, which has ended"});
  check_fault("two_barriers_in_one_warp", {"@one", "@other"});
}

TEST_CASE("a barrier does not wait for warps that have ended") { check_clean("warps_may_end_before_a_barrier"); }

TEST_CASE("shuffles exchange and votes agree within a warp") {
  const std::vector<float> out = check_clean("shuffles_and_votes");
  for (int i = 0; i < 64; ++i) CHECK(out[i] == static_cast<float>((i % 32) ^ 9) + (i >= 32 ? 1000.0F : 0.0F));
}

TEST_CASE("one lane of each warp is elected, the same one each time") {
  const std::vector<float> out = check_clean("a_lane_is_elected");
  for (int warp = 0; warp < 2; ++warp) {
    float sum = 0;
    for (int lane = 0; lane < 32; ++lane) sum += out[warp * 32 + lane];
    CHECK(sum == 1);
  }
}

TEST_CASE("eight rows below one another in one column of banks take eight passes, eight side by side take one") {
  Probe::Options options;
  options.count_banks = true;
  const emulator::Report column = Probe::instance().run("columns_conflict", options).report;
  REQUIRE(column.sites.size() == 1);
  CHECK("line " + std::to_string(column.sites.front().line) == Probe::instance().line("bank"));
  CHECK(column.sites.front().accesses == 1);
  CHECK(column.sites.front().wavefronts == 8);
  CHECK(column.sites.front().ideal == 1);
  CHECK(column.sites.front().conflicts());
  const emulator::Report rows = Probe::instance().run("rows_do_not_conflict", options).report;
  REQUIRE(rows.sites.size() == 1);
  CHECK(rows.sites.front().accesses == 2);
  CHECK(rows.sites.front().wavefronts == 8);
  CHECK(!rows.sites.front().conflicts());
}

TEST_CASE("the first faulty block of a launch speaks, however many run side by side, and the seed replays it") {
  Probe::Options options;
  options.blocks = 9;
  options.jobs = 1;
  const std::string alone = Probe::instance().run("second_block_fails", options).report.fault;
  CHECK_MESSAGE(alone.find("block (1, 0, 0)") != std::string::npos, alone);
  options.jobs = 4;
  for (int repeat = 0; repeat < 5; ++repeat) {
    CHECK(Probe::instance().run("second_block_fails", options).report.fault == alone);
  }
}

TEST_CASE("a kernel that failed leaves nothing behind") {
  for (int repeat = 0; repeat < 3; ++repeat) {
    check_fault("no_barrier_races", {"race"});
    check_clean("barrier_orders");
  }
}

}  // namespace attune::emulator_tests
