// Which row of a tuned table answers for a problem, and what is said where none does.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/choice/choice.hpp"
#include "runtime/choice/served.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/choice/tuned_distance.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using namespace attune::tuned_tests;

double between(const auto& a, const auto& b) { return tuned_distance(tuned_shape(a), tuned_shape(b)); }

bool alike(const auto& a, const auto& b) { return tuned_shape(a).kind == tuned_shape(b).kind; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A ready kernel of this variant, which nobody loads.
ReadyKernel ready_kernel(const Variant& variant) { return {.variant = variant, .name = "kernel", .fatbin = ""}; }

}  // namespace

TEST_CASE("the distance is the weighted sum of the powers of two by which sizes differ, in either direction") {
  const Problem base = prefill(4, 4096);
  Problem other = base;
  CHECK(between(base, other) == 0);
  other.seqlen_q = 8192;
  CHECK(between(base, other) == doctest::Approx(1));
  CHECK(between(other, base) == doctest::Approx(1));
  other.seqlen_k = 1024;
  CHECK(between(base, other) == doctest::Approx(2));
  other = base;
  other.batch = 16;
  CHECK(between(base, other) == doctest::Approx(1));
  other = base;
  other.heads_q = 64;
  CHECK(between(base, other) == doctest::Approx(1));
  other = base;
  other.batch = 2;
  other.heads_q = 64;
  other.heads_kv = 16;
  CHECK(between(base, other) == 0);
  DecodeProblem paged = decode(8, 4096);
  paged.page_size = 16;
  paged.table_width = 256;
  DecodeProblem wider = paged;
  wider.page_size = 64;
  CHECK(between(paged, wider) == doctest::Approx(0.5));
}

TEST_CASE("of gradients, whose tiles are of keys, lengths have each other's weight, and modes are apart") {
  const BackwardProblem base = backward(4, 4096);
  BackwardProblem other = base;
  CHECK(between(base, other) == 0);
  other.seqlen_k = 8192;
  CHECK(between(base, other) == doctest::Approx(1));
  other.seqlen_q = 1024;
  CHECK(between(base, other) == doctest::Approx(2));
  other = base;
  other.batch = 16;
  CHECK(between(base, other) == doctest::Approx(1));
  BackwardProblem near = base;
  set_window(near, 127, 0);
  BackwardProblem far = near;
  far.seqlen_k = 32768;
  far.seqlen_q = 32768;
  CHECK(between(near, far) == doctest::Approx(3));  // that of seqlen_k

  CHECK(alike(base, backward(1, 16384)));
  CHECK_FALSE(alike(base, backward(4, 4096, true)));
  CHECK_FALSE(alike(base, base.attention()));
  other = base;
  other.dropout = true;
  CHECK_FALSE(alike(base, other));
  other = base;
  other.causal = false;
  CHECK_FALSE(alike(base, other));
  CHECK_FALSE(alike(base, near));
}

TEST_CASE("a row of gradients answers for those near it and in its mode alone") {
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({backward(4, 4096), result_of(backward_variant(false))});
  table.put({backward(1, 16384), result_of(backward_variant(false))});
  const TunedRows rows(table, device_of(h200));
  const auto batch_of_row = [&](const BackwardProblem& problem) {
    const TunedRow* const row = rows.row(rows.number(problem));
    return row == nullptr ? 0 : std::get<BackwardProblem>(row->problem).batch;
  };
  CHECK(batch_of_row(backward(4, 5000)) == 4);
  CHECK(batch_of_row(backward(1, 12000)) == 1);
  CHECK(batch_of_row(backward(4, 64)) == 0);
  CHECK(batch_of_row(backward(4, 4096, true)) == 0);
  CHECK(rows.number(prefill(4, 4096)) == 0);
  CHECK(rows.number(backward(4, 4096).rows()) == 0);  // a launch of which tables have no rows
  CHECK(rows.match(backward(4, 4096, true)).row == std::nullopt);
  CHECK(rows.match(backward(4, 64)).distance > tuned_limit);
  CHECK(has_tuned_rows(Operation::backward));
  CHECK_FALSE(has_tuned_rows(Operation::backward_rows));
}

TEST_CASE(
    "with a window keys are those that a query sees, and a ragged batch is as many sequences of its longest as its "
    "tokens make") {
  Problem near = prefill(1, 4096);
  set_window(near, 127, 0);
  Problem far = prefill(1, 32768);
  set_window(far, 127, 0);
  CHECK(between(near, far) == doctest::Approx(3));  // that of seqlen_q
  set_window(far, 255, 0);
  CHECK(between(near, far) == doctest::Approx(3.5));
  Problem ragged = prefill(4, 4096);
  ragged.ragged = true;
  ragged.total_q = ragged.total_k = 4 * 4096;
  Problem half = ragged;
  half.total_q = half.total_k = 2 * 4096;
  CHECK(between(ragged, half) == doctest::Approx(0.5));  // half as many of them
  Problem among = half;
  among.batch = 300;
  CHECK(between(half, among) == 0);
  DecodeProblem drafts = decode(4, 4096);
  drafts.seqlen_q = 8;
  drafts.ragged = true;
  drafts.total_q = 8;
  DecodeProblem longer = drafts;
  longer.total_q = 16;
  CHECK(between(drafts, longer) > 0);
  DecodeProblem packed = drafts;
  packed.packed_keys = true;
  packed.total_k = 4 * 4096;
  DecodeProblem shorter = packed;
  shorter.total_k = 2 * 4096;
  CHECK(between(packed, shorter) == doctest::Approx(0.5));
}

TEST_CASE("element type, head dimensions, mask and features are never other ones") {
  const Problem base = prefill(4, 4096);
  std::vector<Problem> others(8, base);
  others[0].dtype = Dtype::fp16;
  others[1].head_dim = 64;
  others[2].head_dim_v = 64;
  others[3].causal = false;
  set_window(others[4], 100, 0);
  others[5].softcap = 30;
  others[6].ragged = true;
  others[7].paged = true;
  for (const Problem& other : others) CHECK_FALSE(alike(base, other));
  Problem same = base;
  same.head_dim_v = 128;
  same.batch = 7;
  CHECK(alike(base, same));
  const DecodeProblem decoded = decode(4, 4096);
  std::vector<DecodeProblem> decodes(10, decoded);
  decodes[0].dtype = Dtype::fp16;
  decodes[1].head_dim = 64;
  decodes[2].window_left = 10;
  decodes[3].softcap = 30;
  decodes[4].table_width = 2;
  decodes[5].equal_lengths = true;
  decodes[6].splits = 2;
  decodes[7].rotary = Rotary::halves;
  decodes[8].ragged = true;
  decodes[9].packed_keys = true;
  for (const DecodeProblem& other : decodes) CHECK_FALSE(alike(decoded, other));
  const DecodeProblem alone = decode(1, 4096);
  DecodeProblem known = alone;
  known.equal_lengths = true;
  CHECK(alike(alone, known));
}

TEST_CASE("the nearest row answers, its own problem's before all, and of two equally far the first") {
  const TunedTable table = table_of();
  const TunedRows rows(table, device_of(h200));
  for (unsigned number = 1; number <= table.rows.size(); ++number) {
    CHECK(rows.row(number) == &table.rows[number - 1]);
    std::visit([&](const auto& problem) { CHECK(rows.number(problem) == number); }, table.rows[number - 1].problem);
  }
  CHECK(rows.row(0) == nullptr);
  CHECK(rows.row(rows.number(prefill(4, 5000)))->problem == TunedProblem(prefill(4, 4096)));
  CHECK(rows.row(rows.number(prefill(1, 12000)))->problem == TunedProblem(prefill(1, 16384)));
  CHECK(rows.number(prefill(4, 100)) == 0);
  CHECK(rows.row(rows.number(decode(16, 20000)))->problem == TunedProblem(decode(8, 32768)));

  TunedTable pair{.gpu = h200, .rows = {}};
  pair.put({prefill(4, 1024), result_of(sm80(128, 64))});
  pair.put({prefill(4, 4096), result_of(sm80(64, 64))});
  CHECK(TunedRows(pair, device_of(h200)).number(prefill(4, 2048)) == 1);
}

TEST_CASE("a row whose variant cannot serve the problem gives way to the next") {
  Variant for_four = choose_own(prefill(4, 4096), device_of(h200)).variant;
  for_four.gqa_ratio = 4;
  for_four.pack_gqa = 1;
  TunedTable table{.gpu = h200, .rows = {}};
  table.put({prefill(4, 4096), result_of(for_four)});
  table.put({prefill(4, 16384), result_of(sm80(128, 64))});
  const TunedRows rows(table, device_of(h200));
  CHECK(rows.number(prefill(4, 4096)) == 1);
  Problem other = prefill(4, 4096);
  other.heads_q = 8;
  other.heads_kv = 8;
  other.seqlen_k = 16384;
  CHECK(rows.number(other) == 0);  // 2 for the heads, 2 for the queries
  other.heads_q = 16;
  CHECK(rows.number(other) == 2);  // at the limit
  table.rows.pop_back();
  const TunedVerdict verdict = TunedRows(table, device_of(h200)).match(other);
  CHECK_FALSE(verdict.applies);
  REQUIRE(verdict.row.has_value());
  CHECK(contains(verdict.reason, "refused: gqa_ratio"));
}

TEST_CASE("what one thread remembers of a table is never another table's answer") {
  const TunedTable first = table_of();
  TunedTable second = first;
  second.rows.erase(second.rows.begin());
  const auto number = [](const TunedTable& table) {
    return TunedRows(table, device_of(h200)).number(prefill(4, 4096));
  };
  for (int i = 0; i < 3; ++i) {
    CHECK(first.rows.at(number(first) - 1).problem == TunedProblem(prefill(4, 4096)));
    CHECK(number(second) != number(first));
  }
}

TEST_CASE(
    "a table is for the GPU of its name, and for others of its compute capability and number of multiprocessors") {
  const std::vector<TunedTable> tables{table_of()};
  Device device = device_of(h200);
  CHECK(tuned_table_for(tables, device).table == tables.data());
  device.multiprocessors = 60;
  CHECK(tuned_table_for(tables, device).table == nullptr);
  CHECK(contains(tuned_table_for(tables, device).reason, "with 132 multiprocessors, this one has 9.0 and 60"));
  device.name = "NVIDIA A100";
  CHECK(tuned_table_for(tables, device).reason == "no tuned table for NVIDIA A100");
  device.name = "NVIDIA H100 80GB HBM3";
  CHECK(tuned_table_for(tables, device).table == nullptr);
  device.multiprocessors = 132;
  CHECK(tuned_table_for(tables, device).table == tables.data());
  device.capability = 80;
  CHECK(tuned_table_for(tables, device).reason == "no tuned table for NVIDIA H100 80GB HBM3");
  TunedTable own = table_of();
  own.gpu.name = "NVIDIA H100 80GB HBM3";
  const std::vector<TunedTable> both{table_of(), own};
  device.capability = 90;
  CHECK(tuned_table_for(both, device).table == &both[1]);
}

TEST_CASE("the verdict names the row that decides, or the reason why none does") {
  const std::vector<TunedTable> tables{table_of()};
  const Device device = device_of(h200);
  const ReadyKernels none(std::span<const ReadyKernel>{});
  const Served built = serve(none, tables, prefill(4, 4096), device);
  CHECK(built.origin == Origin::nvrtc);
  CHECK(built.variant == sm80(128, 64));
  CHECK(built.tuned.text() ==
        "  tuned by the row bf16 d128 b4 hq32 hk8 lq4096 lk4096 causal, 0.0 away: 412 us instead of the "
        "heuristic's 430 us (1.04 x), NVIDIA H200, 2026-11-22\n");
  CHECK(contains(serve(none, tables, prefill(4, 100), device).tuned.text(), "away, limit 3"));
  CHECK(contains(serve(none, {}, prefill(4, 4096), device).tuned.text(), "no tuned table for NVIDIA H200"));
  Problem other = prefill(4, 4096);
  other.softcap = 10;
  CHECK(contains(serve(none, tables, other, device).tuned.text(), "no row of this element type"));

  // The row's variant is ready, made for one architecture; and then another alone.
  Variant tuned = sm80(128, 64);
  tuned.arch = 1U << 4;
  const std::vector<ReadyKernel> both{ready_kernel(sm80(64, 64)), ready_kernel(tuned)};
  CHECK(serve(ReadyKernels(both), tables, prefill(4, 4096), device).variant == tuned);
  const Served heuristic = serve(ReadyKernels(std::span(both).first(1)), tables, prefill(4, 4096), device);
  CHECK(heuristic.origin == Origin::ready);
  CHECK(heuristic.variant == sm80(64, 64));
  CHECK(contains(heuristic.tuned.text(), "is not ready; ATTUNE_COMPILE_EXACT would build it"));
  const Served decoded = serve(none, tables, decode(8, 32768), device);
  CHECK(contains(decoded.tuned.text(), "tuned by the row decode bf16 d128 b8"));
  const Served gradients = serve(none, tables, backward(2, 4096), device);
  CHECK(gradients.variant == backward_variant(false));
  CHECK(contains(gradients.tuned.text(), "tuned by the row backward bf16 d128 b2"));
  const Served in_any_order = serve(none, tables, backward(2, 4096, true), device);
  CHECK(in_any_order.variant == choose_own(backward(2, 4096, true), device).variant);
  CHECK(contains(in_any_order.tuned.text(), "no row of this element type"));
}
