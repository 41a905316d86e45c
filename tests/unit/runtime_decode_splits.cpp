// Into how many parts the keys of a decode problem fall.
#include <doctest/doctest.h>

#include "runtime/base/error.hpp"
#include "tests/unit/decode_plans.hpp"

namespace {

using namespace attune;
using namespace attune::testing;

TEST_CASE("left to the library, parts fill the GPU, and slots hold both ends of each") {
  const DecodePlan planned = plan_of(typical);
  CHECK(blocks_per_multiprocessor(planned.variant, h200) == 2);
  CHECK(planned.parts == 132 * 2 / 8 / 4 * 4);  // as many for each of the four sequences
  CHECK(planned.grid == Grid{8, 32, 1});
  CHECK(planned.slots == 64);
  CHECK(planned.workspace_bytes == std::size_t{64} * 8 * 4 * (128 + 1) * 4);
  CHECK(planned.combine_grid == Grid{4, 8, 4});
  CHECK(planned.threads == 128);
  DecodeProblem narrow = typical;
  narrow.head_dim = 123;  // rows of 128
  const Variant own = choose_own(narrow, h200).variant;
  CHECK(own.cut_rows == 1);
  CHECK(plan(own, narrow, h200).workspace_bytes == planned.workspace_bytes);

  DecodeProblem few = typical;  // steps of 64 keys
  few.max_seqlen_k = 300;       // parts of four steps
  CHECK(plan_of(few).parts == 2 * 4);
  few.max_seqlen_k = 0;
  CHECK(plan_of(few).parts == 1);
  CHECK(plan_of(few).workspace_bytes == 0);
  CHECK_FALSE(plan_of(few).combines());

  DecodeProblem wide = typical;
  wide.heads_q = wide.heads_kv = 1000;
  CHECK(plan_of(wide).parts == 1);
  CHECK(plan_of(wide).grid == Grid{1000, 1, 1});
}

TEST_CASE("sequences that may have few keys stay whole, but for a few that may have twice as many") {
  DecodeProblem problem = typical;
  const auto splits = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan_of(problem).splits;
  };
  CHECK(splits(2, 256) == 1);  // four steps of 64 keys
  CHECK(splits(2, 257) == 0);
  CHECK(splits(5, 512) == 1);  // 40 blocks of 264
  CHECK(splits(4, 512) == 0);
  CHECK(splits(1000, 513) == 0);
  CHECK(splits(65535, 256) == 1);
  CHECK(splits(65536, 256) == 0);  // more than a grid's third dimension
  problem.splits = 2;
  CHECK(splits(5, 512) == 2);
}

TEST_CASE("sequences stay whole where kernels could not count the keys of the whole batch") {
  DecodeProblem problem = typical;
  problem.page_size = 1 << 22;
  problem.table_width = 1;
  problem.max_seqlen_k = 1 << 22;
  problem.batch = 2000;
  CHECK(plan_of(problem).splits == 0);
  problem.batch = 65535;  // times 2^16 or more blocks of keys
  CHECK(plan_of(problem).splits == 1);
}

TEST_CASE("sequences of one length fall into equal splits that the GPU holds at once, or stay whole") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  const auto splits = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan_of(problem).splits;
  };
  CHECK(splits(1, 1 << 20) == 264 / 8);
  CHECK(splits(1, 4096) == 22);  // three steps of 64 keys each
  CHECK(splits(1, 1) == 1);
  CHECK(splits(8, 4096) == 264 / 64);
  CHECK(splits(64, 4096) == 1);   // 512 rows are two rounds but for 16
  CHECK(splits(36, 4096) == 4);   // 288 would leave the second round empty, 1,152 fill four and a third
  CHECK(splits(36, 300) == 1);    // five steps spare less than the merge takes
  CHECK(splits(200, 4096) == 1);  // of seven rounds the last is short
  CHECK_FALSE(splits(0, 4096) > 256);
  CHECK(splits(30, 300) == 1);   // 240 of 264
  CHECK(splits(20, 4096) == 4);  // 160: some multiprocessors would have two, others one
  CHECK(splits(20, 900) == 1);   // 15 steps are few for four parts
  CHECK(splits(16, 4096) == 1);  // 128 blocks are enough for 132 multiprocessors
  CHECK(splits(12, 4096) == 1);  // and so are 96, as each has 32 KB under way
  CHECK(splits(11, 4096) == 3);
  CHECK(splits(9, 90'000) == 11);  // three rounds of 264, where three parts are four fifths of one
  CHECK(splits(9, 2048) == 3);     // whose parts would take as long to begin
  problem.table_width = 1;
  CHECK(splits(16, 4096) == 1);
  problem.heads_q = 8 * 16;  // whose parts are much to write and read
  CHECK(splits(20, 4096) == 4);
  CHECK(splits(20, 1600) == 2);
  problem.heads_q = 32;
  problem.equal_lengths = false;
  CHECK(splits(16, 4096) == 0);
  CHECK(plan_of(problem).parts == 16);
  CHECK(splits(1, 4096) == 22);  // its length, whatever it is, is the only one
}

TEST_CASE("a short sequence has a part for each step or two, as long as their merge takes less time than it spares") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.batch = 1;
  const auto splits = [&](int seqlen_k) {
    problem.max_seqlen_k = seqlen_k;
    return plan_of(problem).splits;
  };
  CHECK(splits(2048) == 16);
  CHECK(splits(1024) == 8);
  CHECK(splits(512) == 8);
  CHECK(splits(320) == 5);
  CHECK(splits(192) == 1);   // two steps less, which is what the second kernel takes
  problem.heads_q = 8 * 71;  // whose parts are much to write and read
  problem.batch = 6;
  problem.max_seqlen_k = 750;
  const Variant own = choose_own(problem, h200).variant;
  REQUIRE(own.split_rows == 1);
  CHECK(plan(own, problem, h200).splits == 3);  // of a second kernel
  problem.max_seqlen_k = 5000;
  CHECK(plan(choose_own(problem, h200).variant, problem, h200).splits == 5);
  problem.heads_kv = 1;
  problem.heads_q = 71;
  const auto shared = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan(choose_own(problem, h200).variant, problem, h200).splits;
  };
  CHECK(shared(2, 4998) == 40);  // of two steps, as a step of 80 rows is long
  CHECK(shared(70, 266) == 1);   // and so is what two parts of 4,970 rows leave
}

TEST_CASE("short sequences on half of the GPU are read by a block each before their parts would be merged") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.head_dim = 88;
  problem.heads_kv = 4;
  const auto splits = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan_of(problem).splits;
  };
  CHECK(splits(20, 415) == 1);  // 80 blocks
  CHECK(splits(20, 700) == 1);
  CHECK(splits(20, 4096) > 1);
  CHECK(splits(16, 415) == 1);
  for (const int batch : {21, 22, 23, 24, 25}) CHECK(splits(batch, 415) == 1);
  CHECK(splits(10, 700) > 1);  // 40 blocks read at less than half of the GPU's speed
  problem.head_dim = 32;       // which has too little under way
  CHECK(splits(20, 1200) > 1);
  problem.head_dim = 128;
  const auto idle = [&](int batch, int seqlen_k) {
    CHECK(splits(batch, seqlen_k) == 1);
    return leaves_idle(plan_of(problem), problem, h200);
  };
  CHECK_FALSE(idle(20, 415));
  problem.splits = 1;
  CHECK(idle(20, 4096));
  CHECK_FALSE(idle(23, 400));  // 92 of 132
  CHECK_FALSE(idle(24, 4096));
}

TEST_CASE("heads that share lines of L2 are kept in step by short parts where L2 does not hold all keys") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.table_width = 1;
  problem.head_dim = 48;
  const auto splits = [&](int batch, int seqlen_k) {
    problem.batch = batch;
    problem.max_seqlen_k = seqlen_k;
    return plan(choose_own(problem, h200).variant, problem, h200).splits;
  };
  CHECK(splits(38, 5647) == 22);     // parts of 256 keys
  CHECK(splits(60, 5647) == 22);     // also where not all sequences run at once
  CHECK(splits(60, 500'000) == 52);  // 64 rounds
  CHECK(splits(14, 1660) == 1);      // 36 MB of keys and values; one block on each of 112 multiprocessors
  CHECK(splits(2, 1660) == 7);       // as many as are alone on a multiprocessor, which then are in step
  CHECK(splits(14, 4499) == 1);      // which are in step, as they begin together
  CHECK(splits(14, 6656) == 26);     // but not for so long
  problem.head_dim = 80;
  CHECK(splits(14, 4499) == 1);
  CHECK(splits(14, 6656) == 13);
  CHECK(splits(14, 40'000) == 78);
  CHECK(splits(17, 40'000) == 78);  // of 512 keys
  problem.heads_q = 8 * 16;
  CHECK(splits(17, 40'000) == 50);  // of 800, as each leaves 16 rows
  problem.head_dim = 64;            // whole lines
  problem.heads_q = 32;
  CHECK(splits(17, 40'000) == 4);
  problem.head_dim = 48;
  problem.heads_kv = 1;  // without neighbours
  problem.heads_q = 71;
  problem.head_dim = 56;
  CHECK(splits(80, 19695) == 4);
}

TEST_CASE(
    "of pages below 128 tokens parts in step are longer, in eight rounds at least, as they take longer to begin") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.head_dim = 40;
  problem.batch = 11;
  problem.heads_q = problem.heads_kv = 16;
  const auto splits = [&](int page_size, int seqlen_k) {
    problem.page_size = page_size;
    problem.max_seqlen_k = seqlen_k;
    problem.table_width = seqlen_k / page_size;
    return plan(choose_own(problem, h200).variant, problem, h200).splits;
  };
  CHECK(splits(128, 128 * 300) == 144);  // 64 rounds
  CHECK(splits(16, 128 * 300) == 77);
  CHECK(splits(64, 128 * 300) == 77);
  CHECK(splits(16, 128 * 70) == 18);  // eight rounds of 396 blocks
  problem.batch = 200;
  CHECK(splits(16, 1984) == 4);
  problem.head_dim = 72;
  CHECK(splits(16, 1984) == 2);
}

TEST_CASE("pages of one token are read by several parts of each sequence where one block would wait for each step") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.page_size = 1;
  const auto splits = [&](int batch, int heads_kv, int head_dim, int seqlen_k) {
    set_sizes(problem, batch, heads_kv, head_dim, seqlen_k);
    return plan_of(problem).splits;
  };
  CHECK(splits(27, 4, 72, 752) == 2);
  CHECK(splits(29, 4, 72, 752) == 2);
  CHECK(splits(4, 20, 120, 818) == 3);
  CHECK(splits(12, 8, 80, 3000) == 2);
  CHECK(splits(1, 8, 112, 75'092) == 33);  // which fill the GPU once
  CHECK(splits(5, 2, 112, 16'433) == 26);
  CHECK(splits(64, 8, 128, 4096) == 1);  // of which each multiprocessor has several
  // What leaves multiprocessors idle does so in such pages, too.
  CHECK(splits(9, 8, 128, 91'504) == 11);
  problem.splits = 1;
  CHECK(leaves_idle(plan_of(problem), problem, h200));
}

TEST_CASE("sequences that share lines have a part for each multiprocessor where these are hardly fewer than parts") {
  DecodeProblem contiguous = typical;
  contiguous.equal_lengths = true;
  DecodeProblem pages = contiguous;
  contiguous.table_width = 1;
  pages.page_size = 128;
  const auto splits = [](DecodeProblem problem, int batch, int heads_kv, int head_dim, int seqlen_k) {
    set_sizes(problem, batch, heads_kv, head_dim, seqlen_k);
    return plan_of(problem).splits;
  };
  CHECK(splits(contiguous, 3, 2, 224, 52'224) == 22);
  CHECK(splits(contiguous, 2, 20, 200, 19'423) == 3);
  CHECK(splits(contiguous, 8, 7, 200, 19'423) == 9);    // as two of 56 would leave 20 multiprocessors idle
  CHECK(splits(contiguous, 3, 30, 200, 19'423) == 37);  // of 90, whose parts keep heads in step
  CHECK(splits(contiguous, 4, 2, 72, 118'080) == 230);  // as they do with rows of up to two lines
  CHECK(splits(pages, 4, 2, 72, 118'016) == 16);        // but not in pages, where parts take longer to begin
  CHECK(splits(pages, 2, 8, 48, 12'800) == 8);          // which fill the multiprocessors to 97%
  CHECK(splits(pages, 3, 8, 120, 97'280) == 11);        // to 91% with one part each, so that two rounds are better
  CHECK(splits(pages, 3, 4, 88, 104'192) == 11);
}

TEST_CASE("many sequences of few keys fall into parts, which are counted by the keys that windows leave") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.table_width = 1;
  const auto splits = [&](int batch, int heads_kv, int head_dim, int seqlen_k) {
    set_sizes(problem, batch, heads_kv, head_dim, seqlen_k);
    return plan_of(problem).splits;
  };
  CHECK(splits(17, 16, 72, 876) == 4);
  CHECK(splits(9, 32, 128, 793) == 4);
  CHECK(splits(14, 32, 72, 636) == 1);
  CHECK(splits(19, 16, 48, 656) == 3);  // which are in step
  CHECK(splits(19, 16, 64, 656) == 1);
  CHECK(splits(14, 16, 48, 656) == 1);  // two at most, which read as fast alone
  CHECK(splits(19, 16, 48, 510) == 3);
  CHECK(splits(19, 16, 48, 499) == 1);
  CHECK(splits(76, 8, 64, 2040) == 4);
  problem.window_left = 256;
  CHECK(splits(76, 8, 64, 2040) == 1);
  CHECK(splits(3, 32, 136, 5000) == 1);  // where heads would be kept in step without a window
  CHECK(splits(4, 2, 72, 118'080) == 1);
  CHECK(splits(213, 4, 80, 951) == 1);
  problem.window_left = -1;
  CHECK(splits(3, 32, 136, 5000) == 9);
  CHECK(splits(213, 4, 80, 951) == 1);  // of so many sequences whole ones are as good as two parts
  CHECK(splits(34, 8, 216, 589) == 4);
  CHECK(splits(34, 8, 216, 449) == 1);
}

TEST_CASE("blocks whose warps have rows leave multiprocessors as many steps, by parts of sequences or of the batch") {
  DecodeProblem problem = typical;
  problem.equal_lengths = true;
  problem.table_width = 1;
  problem.heads_kv = 1;
  const auto planned = [&](int batch, int head_dim, int seqlen_k) {
    problem.heads_q = 71 * problem.heads_kv;
    problem.batch = batch;
    problem.head_dim = head_dim;
    problem.max_seqlen_k = problem.page_size = seqlen_k;
    const Variant own = choose_own(problem, h200).variant;
    REQUIRE(own.split_rows == 1);
    return plan(own, problem, h200);
  };
  CHECK(planned(184, 80, 5632).splits == 2);   // three blocks side by side
  CHECK(planned(184, 128, 5632).splits == 4);  // two
  CHECK(planned(250, 64, 1500).splits == 1);
  CHECK(planned(255, 240, 595).splits == 1);   // two rounds that are nearly full
  CHECK(planned(168, 240, 440).splits == 1);   // too few steps
  CHECK(planned(107, 144, 1536).splits == 2);  // no block alone is as fast
  problem.window_left = 256;
  CHECK(planned(300, 128, 5000).splits == 1);
  problem.window_left = -1;
  const DecodePlan alone = planned(168, 240, 595);
  CHECK(alone.splits == 0);
  CHECK(alone.parts == 132);
  CHECK(planned(300, 128, 2000).parts == 264);
  CHECK(planned(168, 240, 2'000'000'000).splits == 7);  // of more keys than kernels could count
  CHECK(planned(144, 88, 4480).splits == 5);            // nearly two rounds of three blocks side by side
  problem.heads_kv = 67;  // of whose tiles parts of the batch would leave half of the GPU idle
  CHECK(planned(2, 256, 2500).splits == 4);
}

}  // namespace
