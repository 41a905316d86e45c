// Tuned rows before the heuristic, by every compile policy; and which tables there are.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/served.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/choice/tuned_distance.hpp"
#include "tests/unit/environment.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using testing::EnvironmentVariable;
using namespace attune::tuned_tests;

ReadyKernel ready_kernel(const Variant& variant) { return {.variant = variant, .name = "kernel", .fatbin = ""}; }

const Problem problem = prefill(4, 4096);
const TunedRow row{problem, result_of(sm80(64, 32))};
const Device device = device_of(h200);

}  // namespace

TEST_CASE(
    "a tuned variant that is ready serves whatever the policy, and one that is not gives way unless it is exact") {
  const std::vector<ReadyKernel> both{ready_kernel(sm80(128, 64)), ready_kernel(sm80(64, 32))};
  const ReadyKernels ready(both);
  for (const auto policy : {ATTUNE_COMPILE_MISSING, ATTUNE_COMPILE_FROZEN, ATTUNE_COMPILE_EXACT}) {
    CHECK(choose_ready(ready, problem, device, policy).kernel->variant == sm80(128, 64));
    const ReadyChoice tuned = choose_ready(ready, problem, device, policy, &row);
    CHECK(tuned.kernel->variant == sm80(64, 32));
    CHECK(tuned.preferred);
  }
  const ReadyKernels other{std::span(both).first(1)};
  for (const auto policy : {ATTUNE_COMPILE_MISSING, ATTUNE_COMPILE_FROZEN}) {
    const ReadyChoice heuristic = choose_ready(other, problem, device, policy, &row);
    CHECK(heuristic.kernel->variant == sm80(128, 64));
    CHECK(heuristic.preferred);
  }
  // What serves where nothing can be compiled.
  const ReadyChoice exact = choose_ready(other, problem, device, ATTUNE_COMPILE_EXACT, &row);
  CHECK(exact.kernel->variant == sm80(128, 64));
  CHECK_FALSE(exact.preferred);
}

TEST_CASE("a kernel that is there for tables alone serves their rows, and others only where nothing else does") {
  ReadyKernel for_rows = ready_kernel(sm80(64, 32));
  for_rows.tables_only = true;
  const std::vector<ReadyKernel> both{for_rows, ready_kernel(sm80(128, 64))};
  const ReadyKernels ready(both);
  CHECK(ready.variants(Operation::prefill).size() == 2);
  CHECK(choose_ready(ready, problem, device, ATTUNE_COMPILE_MISSING).kernel->variant == sm80(128, 64));
  CHECK(choose_ready(ready, problem, device, ATTUNE_COMPILE_MISSING, &row).kernel->variant == sm80(64, 32));
  const ReadyKernels alone{std::span(both).first(1)};
  CHECK(choose_ready(alone, problem, device, ATTUNE_COMPILE_MISSING).kernel->variant == sm80(64, 32));
  // A spec of another bundle asks for it too.
  const std::vector<ReadyKernel> asked{for_rows, ready_kernel(sm80(64, 32))};
  CHECK(ReadyKernels(asked).heuristic_variants(Operation::prefill).size() == 1);
}

TEST_CASE("a ready kernel that reads keys three times and more serves where nothing may be compiled") {
  Variant plain = decode_variant(128);
  plain.B_r = 32;
  const std::vector<ReadyKernel> one{ready_kernel(plain)};
  const ReadyKernels ready(one);
  DecodeProblem many_heads = decode(8, 4096);
  many_heads.heads_kv = 1;
  const auto serves = [&](int heads, attune_compile_policy policy) {
    many_heads.heads_q = heads;
    const ReadyChoice choice = choose_ready(ready, many_heads, device, policy);
    CHECK(choice.kernel->variant == plain);
    return choice.preferred;
  };
  CHECK(serves(64, ATTUNE_COMPILE_MISSING));
  CHECK_FALSE(serves(71, ATTUNE_COMPILE_MISSING));
  CHECK_FALSE(serves(71, ATTUNE_COMPILE_EXACT));
  CHECK_FALSE(serves(71, ATTUNE_COMPILE_BACKGROUND));
  CHECK(serves(71, ATTUNE_COMPILE_FROZEN));
  const Served served = serve(ready, {}, many_heads, device);
  CHECK(served.origin == Origin::nvrtc);
  CHECK(served.variant == choose_own(many_heads, device).variant);
}

TEST_CASE("a row of few heads does not answer for so many that its kernel would read keys three times") {
  DecodeProblem few_heads = decode(16, 16384);
  few_heads.heads_kv = 1;
  few_heads.heads_q = 16;
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({few_heads, result_of(decode_variant(128))});
  DecodeProblem asked = few_heads;
  asked.heads_q = 32;
  CHECK(TunedRows(table, device).number(asked) == 1);
  asked.heads_q = 128;
  CHECK(TunedRows(table, device).number(asked) == 0);
  const TunedVerdict verdict = TunedRows(table, device).match(asked);
  CHECK(verdict.reason.find(": its variant is refused: B_r: 128 rows share keys") != std::string::npos);

  // But where so many were tuned for, whatever their tiles.
  table.put({asked, result_of(decode_variant(64))});
  CHECK(TunedRows(table, device).number(asked) == 2);
}

TEST_CASE("a row with steps of many keys does not answer for sequences of two and less") {
  Variant wide = decode_variant(128);
  wide.B_c = 256;
  wide.warps = 8;
  wide.stages = 1;
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({decode(8, 1024), result_of(wide)});
  const TunedRows rows(table, device);
  CHECK(rows.match(decode(8, 513)).applies);
  CHECK_FALSE(rows.match(decode(8, 512)).applies);
  CHECK(rows.match(decode(8, 512))
            .reason.ends_with(": its variant is refused: B_c: 512 keys are no more than two steps of 256"));
  table.put({decode(8, 500), result_of(wide)});  // but where so few were tuned for
  CHECK(TunedRows(table, device).match(decode(8, 512)).applies);
}

TEST_CASE("a row without clusters does not answer for keys that these are faster for") {
  TunedTable table{.gpu = h200, .rows = {}};
  DecodeProblem long_keys = decode(2, 32768);
  long_keys.equal_lengths = true;
  table.put({long_keys, result_of(decode_variant(128))});
  DecodeProblem fewer = long_keys;
  fewer.max_seqlen_k = 16'385;
  CHECK(TunedRows(table, device).match(fewer).applies);
  fewer.max_seqlen_k = 16'384;
  CHECK(TunedRows(table, device)
            .match(fewer)
            .reason.ends_with(
                ": its variant is refused: cluster: 16384 keys are merged sooner within clusters, which the "
                "row's are not"));
  table.put({fewer, result_of(decode_variant(128))});  // but where that was measured
  CHECK(TunedRows(table, device).match(fewer).applies);
}

TEST_CASE("a row of clusters does not answer for sequences that leave no room for them and are no full round") {
  DecodeProblem few = decode(8, 32768);
  few.equal_lengths = true;
  Variant clusters = choose_own(few, device).variant;
  clusters.cluster = 1;
  clusters.B_c = 128;
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({few, result_of(clusters)});
  const TunedRows rows(table, device);
  CHECK(rows.match(few).applies);
  DecodeProblem more = few;
  more.batch = 16;  // 128 sequences of keys on 132 multiprocessors
  CHECK(rows.match(more).applies);
  more.batch = 17;
  CHECK_FALSE(rows.match(more).applies);
  CHECK(rows.match(more).reason.ends_with(
      ": its variant is refused: cluster: 136 tiles leave no room for clusters, which the row's have"));
  CHECK(rows.number(more) == 0);
  more.batch = 33;  // two of them on each multiprocessor
  CHECK(rows.match(more).applies);
  more.batch = 9;  // 72 sequences are no cluster each, and leave 60 multiprocessors idle
  CHECK_FALSE(rows.match(more).applies);
  more.batch = 12;  // 96 leave 36
  more.max_seqlen_k = 15'999;
  CHECK(rows.match(more).applies);
  more.max_seqlen_k = 32768;
  CHECK_FALSE(rows.match(more).applies);
  more.batch = 13;
  CHECK(rows.match(more).applies);
  more.batch = 10;  // halves of 80 sequences are 160 blocks, two on some multiprocessors and one on others
  CHECK_FALSE(rows.match(more).applies);
  more.batch = 17;
  more.splits = 2;  // which the caller says
  CHECK(rows.match(more).row == std::nullopt);
}

TEST_CASE("what is generated for a tuned problem is the row's variant") {
  CHECK(variant_to_generate(problem, device, &row) == sm80(64, 32));
  CHECK(variant_to_generate(problem, device) == choose_own(problem, device).variant);
}

TEST_CASE("a row whose variant is for one ratio of heads answers for other shapes with that for any") {
  Variant for_any = decode_variant(128);
  Variant for_four = for_any;
  for_four.gqa_ratio = 4;
  for_four.one_query = 1;
  const TunedRow decode_row{decode(8, 4096), result_of(for_four)};
  const std::vector<ReadyKernel> all{ready_kernel(for_four), ready_kernel(for_any), ready_kernel(decode_variant(64))};
  const ReadyKernels ready(all);
  TunedTable table{.gpu = h200, .rows = {}};
  table.put(decode_row);
  const auto check = [&](const DecodeProblem& asked, const Variant& expected) {
    CAPTURE(asked.text());
    CHECK(variant_for(decode_row, asked) == expected);
    CHECK(choose_ready(ready, asked, device, ATTUNE_COMPILE_MISSING, &decode_row).kernel->variant == expected);
    CHECK(variant_to_generate(asked, device, &decode_row) == expected);
    CHECK(TunedRows(table, device).number(asked) == 1);
    CHECK(TunedRows(table, device).match(asked).applies);
    CHECK(serve(ready, std::span(&table, 1), asked, device).variant == expected);
  };
  check(decode(8, 4096), for_four);
  DecodeProblem other = decode(8, 4096);
  other.heads_q = 56;
  check(other, for_any);
  other.heads_q = 32;
  other.seqlen_q = 2;
  check(other, for_any);
  CHECK(variant_for(row, problem) == sm80(64, 32));
}

TEST_CASE("gradients in any order may have a kernel that adds in one, where a row says so, and no other way round") {
  const BackwardProblem any_order = backward(2, 4096, true);
  const TunedRow in_order{any_order, result_of(backward_variant(false))};
  const Variant heuristic = choose_own(any_order, device).variant;
  REQUIRE(heuristic.deterministic == 0);
  CHECK(variant_to_generate(any_order, device, &in_order) == backward_variant(false));
  const std::vector<ReadyKernel> both{ready_kernel(heuristic), ready_kernel(backward_variant(false))};
  const ReadyKernels ready(both);
  for (const auto policy : {ATTUNE_COMPILE_MISSING, ATTUNE_COMPILE_FROZEN, ATTUNE_COMPILE_EXACT}) {
    CHECK(choose_ready(ready, any_order, device, policy).kernel->variant == heuristic);
    CHECK(choose_ready(ready, any_order, device, policy, &in_order).kernel->variant == backward_variant(false));
  }
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({backward(2, 4096), result_of(backward_variant(true))});
  CHECK(TunedRows(table, device).number(backward(2, 4096)) == 0);
  CHECK_FALSE(TunedRows(table, device).match(backward(2, 4096)).applies);
}

TEST_CASE("ATTUNE_TUNED names a file, or none; one that cannot be used is said once and is not used") {
  const ScratchFolder folder;
  const ReadyKernels nothing{std::span<const ReadyKernel>()};
  std::vector<std::string> said;
  const LineLog log = [&](const std::string& line) { said.push_back(line); };
  {
    const EnvironmentVariable variable("ATTUNE_TUNED", written(folder, "h200.yaml", tuned_text(table_of())).string());
    CHECK(default_tuned_tables(nothing, log) == std::vector<TunedTable>{table_of()});
  }
  {
    const EnvironmentVariable off("ATTUNE_TUNED", "off");
    CHECK(default_tuned_tables(nothing, log).empty());
  }
  CHECK(said.empty());
  const EnvironmentVariable bad("ATTUNE_TUNED", written(folder, "bad.yaml", "rows:\n- {}\n- {}\n").string());
  CHECK(default_tuned_tables(nothing, log).empty());
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("bad.yaml:2:1: a row stands before gpu: and rows:") != std::string::npos);
  CHECK(said[0].find("(and 2 more)") != std::string::npos);
}

TEST_CASE("of tables for one GPU the first that knows a problem counts, and one that is wrong takes no other along") {
  const EnvironmentVariable unset("ATTUNE_TUNED", {});
  const ScratchFolder folder;
  const TunedGpu here{.name = "NVIDIA A30", .capability = 80, .multiprocessors = 56};  // of which none is embedded
  TunedTable own{.gpu = here, .rows = {}};
  own.put({problem, result_of(sm80(64, 32))});
  TunedTable others = table_of(here);
  REQUIRE(others.find(problem) != nullptr);
  REQUIRE(others.find(problem)->result.variant != sm80(64, 32));
  const TunedTable elsewhere = table_of({.name = "NVIDIA A100", .capability = 80, .multiprocessors = 108});
  const auto bundle = [&](const std::string& name, const std::vector<BundledTable>& tables) {
    return written(folder, name, write_bundle({.kernels = {}, .tables = tables}));
  };
  const std::vector<std::filesystem::path> bundles{
      bundle("1.attune", {{"own.yaml", tuned_text(own)}, {"bad.yaml", "rows"}}),
      bundle("2.attune", {{"elsewhere.yaml", tuned_text(elsewhere)}, {"others.yaml", tuned_text(others)}})};
  std::vector<std::string> said;
  const std::vector<TunedTable> tables =
      default_tuned_tables(ReadyKernels(bundles), [&](const std::string& line) { said.push_back(line); });
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("bad.yaml:") != std::string::npos);
  others.put(own.rows.front());
  REQUIRE(tables.size() >= 2);
  CHECK(tables[0] == others);
  CHECK(tables[1] == elsewhere);
}

TEST_CASE("a registry asks for each device once, and for none where it has no tables") {
  int asked = 0;
  const auto find_device = [&](int) {
    ++asked;
    return device;
  };
  TunedDevices none({});
  CHECK(none.rows(0, find_device) == nullptr);
  CHECK(asked == 0);
  TunedDevices devices({table_of()});
  const TunedRows* rows = devices.rows(3, find_device);
  REQUIRE(rows != nullptr);
  CHECK(rows->number(problem) > 0);
  CHECK(devices.rows(3, find_device) == rows);
  CHECK(asked == 1);
  CHECK(devices.rows(64, find_device) == nullptr);
  TunedDevices elsewhere({table_of({.name = "NVIDIA A100", .capability = 80, .multiprocessors = 108})});
  CHECK(elsewhere.rows(0, find_device)->number(problem) == 0);
}
