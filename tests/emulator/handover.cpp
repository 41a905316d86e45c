// What the emulator promises of words by which one block hands over to another what it wrote, each on the smallest
// kernel that shows it.
#include <doctest/doctest.h>

#include <bit>
#include <cstdint>

#include "tests/emulator/probe.hpp"

namespace attune::emulator_tests {
namespace {

constexpr int lanes = 32;
constexpr int block_floats = 64;
constexpr int first_word = 48;  ///< of a block's floats

Probe::Options of(unsigned blocks, int jobs) {
  Probe::Options options;
  options.blocks = blocks;
  options.jobs = jobs;
  return options;
}

/// What the kernel, which must be without a fault, wrote.
std::vector<float> check_clean(const std::string& which, const Probe::Options& options) {
  CAPTURE(which);
  CAPTURE(options.jobs);
  Probe::Outcome outcome = Probe::handover().run(which, options);
  CHECK_MESSAGE(outcome.report.ok(), outcome.report.fault);
  return std::move(outcome.out);
}

/// The same fault, however many blocks run side by side.
void check_fault(const std::string& which, const std::vector<std::string>& words, unsigned blocks = 2) {
  for (const int jobs : {1, 4}) Probe::handover().check_fault(which, words, of(blocks, jobs));
}

/// A fault, however many run side by side; and these words in that of one after the other.
void check_race(const std::string& which, const std::vector<std::string>& words) {
  Probe::handover().check_fault(which, words, of(2, 1));
  for (int repeat = 0; repeat < 5; ++repeat) Probe::handover().check_fault(which, {}, of(2, 2));
}

std::uint64_t word_in(const std::vector<float>& out, int block) {
  const std::size_t at = static_cast<std::size_t>(block) * block_floats + first_word;
  return std::bit_cast<std::uint32_t>(out[at]) | static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(out[at + 1]))
                                                     << 32;
}

}  // namespace

TEST_CASE("who awaits a word reads what the announcing block wrote before") {
  for (const int jobs : {1, 2, 4}) {
    for (int repeat = 0; repeat < 8; ++repeat) {
      const std::vector<float> out = check_clean("handed_over", of(6, jobs));
      for (int block = 1; block < 6; ++block) {
        for (int i = 0; i < lanes; ++i) CHECK(out[block * block_floats + i] == static_cast<float>(i ^ 1));
      }
    }
  }
  const std::vector<float> copied = check_clean("by_a_copy", of(2, 2));
  for (int i = 0; i < lanes; ++i) CHECK(copied[block_floats + i] == static_cast<float>(i));
}

TEST_CASE("an announced word stands in memory behind the launch") {
  CHECK(word_in(check_clean("handed_over", of(2, 2)), 0) == 7);
}

TEST_CASE("a thread may hear from several blocks") {
  for (const int jobs : {1, 4}) {
    const std::vector<float> out = check_clean("heard_from_two_blocks", of(4, jobs));
    for (int block = 2; block < 4; ++block) {
      for (int i = 0; i < lanes; ++i) CHECK(out[block * block_floats + i] == static_cast<float>((i ^ 1) + 100 + i));
    }
  }
}

TEST_CASE("each block may wait for the one before") {
  for (const int jobs : {1, 3, 4}) {
    const std::vector<float> out = check_clean("handed_on_by_every_block", of(40, jobs));
    for (int block = 0; block < 40; ++block) CHECK(out[block * block_floats + 5] == static_cast<float>(block + 1));
  }
}

TEST_CASE("while some threads of a block await a word, others go on and may announce it") {
  const std::vector<float> out = check_clean("within_a_block", of(1, 1));
  for (int i = 0; i < lanes; ++i) CHECK(out[i] == 5);
}

TEST_CASE("without a wait a read of what another block wrote is a race") {
  check_race("awaits_nothing", {"@read", "block (1, 0, 0)", "race: reads element", "of out", "@write"});
}

TEST_CASE("a wait tells of what the announcing thread knew, and of nothing else") {
  check_race("announces_without_barrier", {"@read", "block (1, 0, 0)", "race: reads element", "@write"});
  check_race("writes_after_announcing", {"@read", "block (1, 0, 0)", "race: reads element", "@late write"});
}

TEST_CASE("a wait tells its own thread, and no other lane of the warp and no other block") {
  check_fault("one_lane_awaits", {"@read", "block (1, 0, 0)", "race: reads element", "@write"});
  Probe::handover().check_fault("one_block_awaits", {"@read", "block (2, 0, 0)", "race: reads element", "@write"},
                                of(3, 1));
}

TEST_CASE("what another block wrote may be overwritten behind a wait, and not where a third one has read it") {
  const std::vector<float> out = check_clean("heard_and_overwritten", of(2, 2));
  for (int i = 0; i < lanes; ++i) CHECK(out[i] == 1);
  Probe::handover().check_fault(
      "heard_and_overwritten",
      {"@overwrite", "block (2, 0, 0)", "race: writes element", "unordered with a read", "@read"}, of(3, 1));
  check_race("overwritten_unheard", {"@overwrite unheard", "race: writes element", "unordered with a write", "@write"});
}

TEST_CASE("the copy engine may not read what another block wrote, wait or not") {
  Probe::async().check_fault("loaded_of_handed_over", {"@box of handed over", "race: reads element", "@handed over"},
                             of(2, 2));
}

TEST_CASE("a word that nobody announces is a deadlock, and does not hang") {
  const std::vector<std::string> words{
      "@await",     "block (1, 0, 0)", "deadlock: nothing can happen any more",
      "32 threads", "await_word",      "for the word 0x7 at element 48 of out, which no block has announced"};
  for (const unsigned blocks : {2, 9}) {
    check_fault("nobody_announces", words, blocks);
    check_fault("another_word_is_announced", words, blocks);
  }
}

TEST_CASE("a word that memory held before the launch does not count") {
  check_fault("memory_holds_the_word", {"@holds", "deadlock", "the word 0x7fc000007fc00000 at element 48 of out"});
}

TEST_CASE("a block may not wait for a later one, which may find no room beside it") {
  Probe::handover().check_fault("awaits_a_later_block", {"@awaits later", "block (0, 0, 0)", "deadlock", "element 112"},
                                of(2, 1));
  for (const int jobs : {2, 4}) {
    Probe::handover().check_fault("awaits_a_later_block",
                                  {"@awaits later", "block (0, 0, 0)",
                                   "waits for block 1, which may start later, by the word at element 112 of out"},
                                  of(2, jobs));
  }
}

TEST_CASE("a word may be replaced by who knows that all have heard it") {
  for (int repeat = 0; repeat < 8; ++repeat) {
    const std::vector<float> out = check_clean("reset_behind_a_barrier", of(2, 2));
    CHECK(word_in(out, 0) == 0);
    for (int i = 0; i < lanes; ++i) CHECK(out[block_floats + i] == static_cast<float>(i ^ 1));
  }
  CHECK(word_in(check_clean("replaced_unheard", of(1, 1)), 0) == 2);
}

TEST_CASE("a word replaced before a barrier behind the other lanes' waits is a race") {
  check_fault("reset_without_barrier",
              {"@reset", "race: announces a word at element 48 of out", "the wait for 0x7", "@await", "this block"});
}

TEST_CASE("unordered announcements at one place are a race, in a block and between blocks") {
  check_fault("replaced_by_another_lane",
              {"@second", "race: announces a word at element 48 of out", "the announcement of 0x2", "this block"}, 1);
  check_race("announced_by_two_blocks", {"@second", "the announcement of 0x1", "@first", "another block"});
}

TEST_CASE("announced words are not for plain loads and stores") {
  check_fault("stores_to_an_announced_word", {"@store", "writes element 49 of out as memory", "@announced"}, 1);
  check_fault("loads_an_announced_word", {"@load", "reads element 49 of out as memory", "@announced"}, 1);
  check_fault("announces_a_stored_word", {"@announced", "announces a word at element 49 of out", "@stored"}, 1);
}

TEST_CASE("a word is 8 aligned bytes of an output") {
  check_fault("announces_misaligned", {"@misaligned", "not aligned to the 8 bytes of a word"}, 1);
  check_fault("awaits_misaligned", {"@awaits misaligned", "not aligned to the 8 bytes of a word"}, 1);
  check_fault("announces_in_an_input", {"@input", "no buffer holds", "in, which the kernel may only read"}, 1);
  check_fault("awaits_in_an_input", {"@awaits input", "no buffer holds", "in, which the kernel may only read"}, 1);
  check_fault("announces_outside", {"@outside", "no buffer holds", "0 bytes beyond the end of out"}, 1);
}

TEST_CASE("a block that fails does not hang those that wait for it") {
  for (int repeat = 0; repeat < 8; ++repeat) check_fault("writer_fails", {"@fails", "block (0, 0, 0)"}, 6);
}

TEST_CASE("a later block's fault does not hide that of a block that waits") {
  for (int repeat = 0; repeat < 8; ++repeat) {
    check_fault("later_block_fails_first", {"@own fault", "block (1, 0, 0)"}, 3);
  }
}

}  // namespace attune::emulator_tests
