// What the emulator promises of the asynchronous instructions of compute capability 9.0, each on the smallest kernel
// that shows it.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/emulator/probe.hpp"

namespace attune::emulator_tests {
namespace {

std::vector<float> check_clean(const std::string& which) { return Probe::async().check_clean(which); }

void check_fault(const std::string& which, const std::vector<std::string>& words) {
  Probe::async().check_fault(which, words);
}

/// The same, whatever the schedule.
void check_fault_always(const std::string& which, const std::vector<std::string>& words) {
  check_fault(which, words);
  for (std::uint64_t seed = 2; seed <= 12; ++seed) {
    CAPTURE(which);
    CAPTURE(seed);
    Probe::Options options;
    options.seed = seed;
    CHECK(!Probe::async().run(which, options).report.ok());
  }
}

/// The tensor that stored boxes make holds `expected(head, row, column)`, whatever the schedule. NaN: not written.
template <class Function>
void check_stored(const std::string& which, const Function& expected) {
  CAPTURE(which);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const std::vector<float> stored = Probe::async().check_stored(which, seed);
    int wrong = 0;
    for (int head = 0; head < 2; ++head) {
      for (int row = 0; row < 100; ++row) {
        for (int column = 0; column < 64; ++column) {
          const float value = stored[Probe::place_of(head, row, column)];
          const float wanted = expected(head, row, column);
          if (value != wanted && !(std::isnan(value) && std::isnan(wanted))) ++wrong;
        }
      }
    }
    CHECK(wrong == 0);
  }
}

/// What probe_async.cu writes to its stage, in a box at these coordinates of the second head.
auto box_at(int x, int y) {
  return [=](int head, int row, int column) {
    if (head != 1 || row < y || row >= y + 64 || column < x || column >= x + 64) return NAN;
    return static_cast<float>(((row - y) * 3 + (column - x) * 5) % 17 - 8);
  };
}

/// The registers of the 64 x 64 result that each of 128 threads holds agree with `expected(row, column)`.
template <class Function>
void check_product(const std::vector<float>& out, const Function& expected) {
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 32; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8;
      const int column = i / 4 * 8 + t % 4 * 2 + i % 2;
      CAPTURE(row);
      CAPTURE(column);
      CHECK(out[t * 32 + i] == expected(row, column));
    }
  }
}

/// A of the first box times the transpose of the second.
float rows_times_rows(int row, int column) {
  float sum = 0;
  for (int k = 0; k < 64; ++k) sum += Probe::element(0, row, k) * Probe::element(1, 10 + column, k);
  return sum;
}

}  // namespace

TEST_CASE("who waits for a phase of an mbarrier sees what those who arrived had written") {
  const std::vector<float> out = check_clean("mbarrier_orders");
  for (int i = 0; i < 32; ++i) CHECK(out[32 + i] == i);
  check_fault_always("mbarrier_of_other_parity", {});
}

TEST_CASE("a phase that cannot end is a deadlock that names the mbarrier, what it lacks and who waits") {
  check_fault_always("mbarrier_lacks_an_arrival",
                     {"@wait", "deadlock", "mbarrier_wait", "phase 0 of the mbarrier at 0x", "1 of 33 arrivals",
                      "32 threads from 32 on"});
}

TEST_CASE("a phase takes as many arrivals as it expects, and a thread that waits for one may not be passed by") {
  check_fault("mbarrier_gets_too_many", {"@too many", "more than the 1 arrivals"});
  check_fault_always("mbarrier_phase_missed", {"@second", "thread 32", "may miss"});
}

TEST_CASE("an mbarrier is initialised once, well, and before anybody uses it") {
  check_fault("mbarrier_not_initialised", {"@none", "no mbarrier at 0x"});
  check_fault("mbarrier_initialised_twice", {"@again", "already", "@init"});
  check_fault("mbarrier_misaligned", {"@odd", "8-byte aligned"});
  check_fault("mbarrier_of_no_arrivals", {"@zero", "0 arrivals"});
  check_fault_always("mbarrier_used_without_barrier", {"@arrive", "mbarrier at 0x"});
}

TEST_CASE("the memory of an mbarrier is not accessed as memory") {
  check_fault("mbarrier_read_as_memory", {"@load", "where an mbarrier lives", "@init"});
  check_fault("mbarrier_written_as_memory", {"@store", "where an mbarrier lives"});
  check_fault("box_onto_mbarrier", {"@box", "where an mbarrier lives"});
}

TEST_CASE("a box arrives swizzled, with zeros for what lies outside the tensor, before its phase ends") {
  const auto check_box = [](const std::vector<float>& out, int x, int y) {
    for (int t = 0; t < 512; ++t) {
      for (int i = 0; i < 8; ++i) CHECK(out[t * 32 + i] == Probe::element(1, y + t % 64, x + t / 64 * 8 + i));
    }
  };
  check_box(check_clean("box_waited_for"), 0, 20);
  check_box(check_clean("box_beyond_the_edges"), 32, -10);
}

TEST_CASE("a box wholly outside its tensor is zeros, and the map's base is read all the same") {
  for (const float element : check_clean("box_wholly_outside")) {
    if (!std::isnan(element)) CHECK(element == 0);
  }
  check_clean("box_of_shifted_map");
  check_fault("box_wholly_outside_of_shifted_map", {"@box", "wholly outside", "no buffer holds"});
}

TEST_CASE("a box is not there before somebody has waited for its phase, whether it has landed or not") {
  check_fault_always("box_not_waited_for", {"@use", "race", "bulk copy", "mbarrier at 0x", "@box"});
  check_fault_always("box_at_the_end", {"@box", "nobody has waited"});
}

TEST_CASE("who is told that a phase is over sees its box; who is not may still wait") {
  check_clean("box_tested_for");
  check_fault_always("box_tested_for_of_other_parity", {"@use"});
}

TEST_CASE("the bytes that a phase expects are those that its copies bring") {
  check_fault_always("box_expects_too_little", {"too few bytes", "@second box"});
  check_fault_always("box_expects_too_much", {"deadlock", "@wait for the box", "0 of 1 arrivals and 16 bytes"});
}

TEST_CASE("the copy engine needs the fence behind the initialisation, a map, and memory on both sides") {
  check_fault("box_without_fence", {"@box", "mbarrier_fence", "@unfenced"});
  check_fault("box_misaligned", {"@box", "no multiple", "1024"});
  check_fault("box_without_map", {"@box", "no tensor map"});
  check_fault("box_outside_the_buffer", {"@box", "no buffer holds", "beyond the end of in"});
  check_fault("box_of_other_rank", {"@box of other rank", "5 coordinates", "4 dimensions"});
  check_fault("box_beyond_shared", {"@box", "outside the launch's shared memory"});
}

TEST_CASE("a box onto what may still be read, copied or unfenced is a fault") {
  check_fault_always("box_onto_unread_data", {"@box", "race: writes", "@plain"});
  check_fault_always("box_onto_box", {"@second box", "race: writes", "bulk copy"});
  check_fault_always("box_onto_plain_writes", {"@box", "asynchronous proxy", "@plain", "no proxy fence"});
  check_clean("box_onto_fenced_writes");
  check_fault_always("box_onto_plain_reads", {"@third box", "asynchronous proxy, read", "@use", "no proxy fence"});
  check_clean("box_onto_fenced_reads");
}

TEST_CASE("store_matrices lays matrices out as ldmatrix reads them, as stores of the lanes that give the addresses") {
  const std::vector<float> out = check_clean("matrices_read_back");
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) CHECK(out[lane * 32 + i] == lane * 4 + (i + 1) % 4);
  }
  check_fault_always("matrices_read_without_barrier", {"@read back", "race: reads", "@matrices"});
  check_fault("matrices_in_one_place", {"@matrices", "race: writes", "lane 31"});
  check_fault("matrices_misaligned", {"@matrices", "not aligned to the 16 bytes"});
  check_fault("matrices_beyond_shared", {"@matrices", "outside the launch's shared memory"});
  check_fault("matrices_onto_mbarrier", {"@matrices", "where an mbarrier lives"});
}

TEST_CASE("a box is stored where it lies within the tensor, from swizzled memory that may be unwritten elsewhere") {
  check_stored("stored", box_at(0, 0));
  check_stored("stored_beyond_the_edges", box_at(32, 70));
  check_fault_always("stored_before_the_edges", {"@store box", "negative coordinate"});
  check_fault_always("stored_of_unwritten", {"@store box", "which nothing has written"});
  const std::vector<float> unswizzled = Probe::async().check_stored("stored_unswizzled", 1);
  CHECK(unswizzled[Probe::place_of(1, 0, 9)] == box_at(0, 0)(1, 0, 9));
  CHECK(unswizzled[Probe::place_of(1, 1, 9)] != box_at(0, 0)(1, 1, 9));
}

TEST_CASE("what plain stores wrote is stored behind a proxy fence, before or after the barrier, and a barrier") {
  check_stored("stored_with_fence_behind_barrier", box_at(0, 0));
  check_fault_always("stored_without_fence", {"@store box", "asynchronous proxy", "@fill", "no proxy fence"});
  check_fault_always("stored_with_fence_too_early", {"@store box", "@fill", "no proxy fence"});
  check_fault_always("stored_with_fence_of_one_thread", {"@store box", "@fill", "no proxy fence"});
  check_fault_always("stored_after_store_behind_fence", {"@store box", "thread 1 in ", "@late", "no proxy fence"});
  check_fault_always("stored_without_barrier", {"@store box", "race: reads"});
  check_stored("stored_of_a_box", [](int head, int row, int column) {
    return head == 1 && row < 64 ? Probe::element(1, 20 + row, column) : NAN;
  });
}

TEST_CASE("a stage is written again once the thread that stored it has waited for its groups, behind a barrier") {
  check_stored("stored_twice_from_one_stage", [](int head, int row, int column) {
    return head == 1 ? static_cast<float>((row * 3 + column * 5) % 17 - 8) : NAN;
  });
  for (const char* which : {"stored_and_overwritten", "stored_and_overwritten_uncommitted"}) {
    check_fault_always(which,
                       {"@fill", "race: writes", "unordered with a read", "bulk copy that thread 0", "@store box"});
  }
  check_fault_always("stored_and_overwritten_without_barrier", {"race: ", "@fill", "@store box"});
}

TEST_CASE("a block ends after its stored boxes are committed, and waited for by the thread that stored them") {
  check_fault_always("stored_not_committed", {"@store box", "the block ends", "no commit_boxes"});
  check_fault_always("stored_not_waited_for", {"@store box", "the block ends", "wait_boxes_read"});
  check_fault_always("stored_waited_for_by_another", {"@store box", "the block ends", "wait_boxes_read"});
}

TEST_CASE("stored boxes are writes of outputs, which no wait orders with others") {
  check_fault_always("stored_onto_stored", {"@store box again", "race: writes element", "of stored", "@store box"});
  check_fault_always("stored_onto_plain_writes", {"@store box", "race: writes element", "@plain output"});
  check_fault_always("stored_and_read", {"@read output", "race: reads element", "@store box"});
  check_fault("stored_outside_the_buffer", {"@store box", "no buffer holds", "beyond the end of stored"});
  check_fault("stored_to_the_input", {"@store box", "no buffer holds", "may only read"});
}

TEST_CASE("the copy engine stores from where the swizzle starts, in shared memory, through a map") {
  check_fault("stored_misaligned", {"@store box", "no multiple", "1024"});
  check_fault("stored_without_map", {"@store box", "no tensor map"});
  check_fault("stored_beyond_shared", {"@store box", "outside the launch's shared memory"});
  check_fault("stored_of_mbarrier", {"@store box", "where an mbarrier lives"});
}

TEST_CASE("a named barrier shows those who wait what all who came did before, and nothing to those who announce") {
  const std::vector<float> out = check_clean("named_orders");
  for (int i = 0; i < 32; ++i) CHECK(out[32 + i] == i);
  check_fault_always("named_announcer_learns_nothing", {"@unknown", "shared address"});
}

TEST_CASE("a vote at a named barrier has one answer for all who came, who know what all did before") {
  const std::vector<float> one = check_clean("named_vote_of_one_thread");
  const std::vector<float> nobody = check_clean("named_vote_of_nobody");
  for (int i = 0; i < 64; ++i) {
    CHECK(one[i] == static_cast<float>(i % 32 + 1));
    CHECK(nobody[i] == 0.0f);
  }
  check_fault_always("named_vote_among_waits", {"named barrier 5 is a vote", "and none"});
}

TEST_CASE("a named barrier has a number from 1 to 15 and one count of threads, in whole warps") {
  check_fault_always("named_counts_differ", {"named barrier 3 is of"});
  check_fault("named_number_zero", {"@zero barrier", "no named barrier 0"});
  check_fault("named_part_of_a_warp", {"@part", "48 threads"});
  check_fault_always("named_left_half_full", {"@left", "the block ends", "32 of 64 threads", "named barrier 2"});
  check_fault("named_differs_in_a_warp", {"@differs", "comes to barrier"});
}

TEST_CASE("a named barrier is the same warps' each time: others could be counted among those who wait") {
  check_fault_always("named_by_other_warps", {"named barrier 7, where warps", "the same each time"});
}

TEST_CASE("registers are handed from warpgroup to warpgroup, and waited for") {
  check_clean("registers_change_hands");
  check_fault_always("registers_that_nobody_gives", {"deadlock", "@take", "160 registers", "0 are free"});
  check_fault("registers_of_odd_number", {"@odd number", "132 registers are no multiple of 8"});
  check_fault("registers_taken_down", {"@down", "64 registers", "the warpgroup has 96"});
  check_fault("registers_given_up", {"@up", "160 registers", "the warpgroup has 128"});
}

TEST_CASE("wgmma multiplies operands in shared memory, and A in registers with B in shared memory") {
  check_product(check_clean("product_of_shared"), rows_times_rows);
  check_product(check_clean("product_of_registers"), [](int row, int column) {
    float sum = 0;
    for (int k = 0; k < 64; ++k) sum += static_cast<float>(row + k % 5) * Probe::element(1, 10 + k, column);
    return sum;
  });
  check_product(check_clean("product_of_registers_by_rows"), [](int row, int column) {
    float sum = 0;
    for (int k = 0; k < 64; ++k) sum += static_cast<float>(row + k % 5) * Probe::element(1, 10 + column, k);
    return sum;
  });
}

TEST_CASE("a wait that leaves one group pending covers the older product and not the newer") {
  check_product(check_clean("product_older_waited_for"), rows_times_rows);
  check_fault_always("product_newer_not_waited_for", {"@settle E", "@newer", "no wgmma_wait"});
  check_fault_always("product_not_committed", {"@settle", "@product", "no wgmma_wait"});
}

TEST_CASE("until it is settled, D is not the thread's: reading gives NaN, and writing is a fault") {
  const std::vector<float> out = check_clean("product_not_settled");
  for (int i = 0; i < 128 * 32; ++i) CHECK(std::isnan(out[i]));
  check_fault_always("product_touched", {"@settle", "registers of D were written", "@product"});
}

TEST_CASE("the registers of A stay what they are until the product has been waited for") {
  check_fault_always("product_of_changed_registers",
                     {"@wait for product", "registers of A were written", "@of registers"});
}

TEST_CASE("a product needs a fence behind whatever used its registers, and settle() before that fence") {
  check_fault("product_without_fence", {"@product", "no wgmma_fence", "registers of D"});
  check_fault("product_of_settled_without_fence", {"@unfenced product", "no wgmma_fence", "registers of D"});
  check_fault("product_of_registers_not_settled", {"@of unsettled", "written since they were settled"});
  check_fault("product_of_registers_without_fence", {"@of registers", "no wgmma_fence", "registers of A"});
}

TEST_CASE("operands in shared memory are there before a product begins and stay until it has been waited for") {
  check_fault_always("product_of_late_copy", {"@product", "race: reads", "bulk copy"});
  check_fault_always("product_of_overwritten_operand", {"@overwrite", "race: writes", "wgmma that warp", "@product"});
  check_fault_always("product_of_plain_writes", {"@product", "asynchronous proxy", "@st", "no proxy fence"});
  check_fault_always("product_of_writes_fenced_for_one", {"@product", "@st", "no proxy fence"});
  check_product(check_clean("product_of_fenced_writes"), [](int, int) { return 0.0F; });
}

TEST_CASE("the four warps of a warpgroup call wgmma alike") {
  check_fault_always("product_without_a_warp", {"deadlock", "wgmma in ", "@product"});
  check_fault_always("product_in_two_places", {"wgmma waits for thread", "same warpgroup", "@elsewhere"});
  check_fault("product_of_two_descriptors", {"@product", "same warpgroup"});
}

TEST_CASE("a descriptor starts where the swizzle does, names the emulated one, and stays in shared memory") {
  check_fault("product_misaligned", {"@product", "matrix descriptor", "1024"});
  check_fault("product_of_other_swizzle", {"@product", "matrix descriptor", "swizzle"});
  check_fault("product_beyond_shared", {"@product", "outside the launch's shared memory"});
}

}  // namespace attune::emulator_tests
