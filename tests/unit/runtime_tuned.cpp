// Tables of tuned problems: what is written is read back, and what is wrong in a file is said with its place.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/tuned.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using namespace attune::tuned_tests;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

/// All problems of a text, as printed.
std::string problems_in(const std::string& text) {
  std::string all;
  for (const Diagnostic& problem : parse_tuned(text, "t.yaml").problems) all += problem.text() + "\n";
  return all;
}

/// A file with this one row.
std::string file_with(const std::string& row) {
  return "gpu: {\"name\": \"NVIDIA H200\", \"capability\": \"9.0\", \"multiprocessors\": 132}\nrows:\n" + row + "\n";
}

std::string row_text(const std::string& problem, const std::string& variant, const std::string& more = "") {
  return "- {\"problem\": {" + problem + "}, \"variant\": {" + variant +
         "}, \"microseconds\": 10.5, \"default_microseconds\": 11, \"confidence\": 1, \"date\": \"2026-11-22\", "
         "\"driver\": \"580\", \"compiler\": \"NVRTC 13.0\"" +
         more + "}";
}

const std::string sound_problem =
    R"("operation": "prefill", "dtype": "bf16", "head_dim": 128, "batch": 4, "heads_q": 32, "heads_kv": 8, )"
    R"("seqlen_q": 4096, "seqlen_k": 4096, "causal": true)";
const std::string sound_variant = R"("template": "prefill_sm80", "causal": true)";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Problems of every feature that a row can have.
std::vector<TunedProblem> all_kinds() {
  std::vector<Problem> prefills(5, prefill(3, 777));
  prefills[1].head_dim = 192;
  prefills[1].head_dim_v = 128;
  prefills[2].softcap = 1;
  set_window(prefills[2], 100, 50);
  prefills[3].ragged = true;
  prefills[3].total_q = 1000;
  prefills[3].total_k = 1500;
  prefills[4].causal = false;
  prefills[4].paged = true;
  prefills[4].page_size = 16;
  std::vector<DecodeProblem> decodes(7, decode(3, 777));
  decodes[1].equal_lengths = true;
  decodes[2].splits = 4;
  decodes[2].window_left = 100;
  decodes[3].page_size = 64;
  decodes[3].table_width = 13;
  decodes[4].rotary = Rotary::halves;
  decodes[4].softcap = 1;
  decodes[5].ragged = true;
  decodes[5].total_q = 2;
  decodes[6].ragged = decodes[6].packed_keys = true;
  decodes[6].total_q = 2;
  decodes[6].total_k = 1500;
  std::vector<BackwardProblem> backwards(6, backward(3, 777));
  backwards[1].head_dim = 192;
  backwards[1].head_dim_v = 128;
  backwards[2].softcap = 1;
  set_window(backwards[2], 100, 50);
  backwards[3].ragged = true;
  backwards[3].total_q = 1000;
  backwards[3].total_k = 1500;
  backwards[4].any_order = true;
  backwards[5].dropout = true;
  std::vector<TunedProblem> all;
  for (const Problem& problem : prefills) all.emplace_back(tuned_problem(problem));
  for (const DecodeProblem& problem : decodes) all.emplace_back(tuned_problem(problem));
  for (const BackwardProblem& problem : backwards) all.emplace_back(tuned_problem(problem));
  return all;
}

}  // namespace

TEST_CASE("a table that was written is read back equal, with every kind of problem") {
  TunedTable table{.gpu = {.name = "NVIDIA H200", .capability = 90, .multiprocessors = 132}, .rows = {}};
  for (const TunedProblem& problem : all_kinds()) {
    const auto own = [](const auto& one) {
      if constexpr (std::decay_t<decltype(one)>::operation == Operation::prefill) {
        return own_variant(one.paged ? prefill_sm80 : prefill_sm90, one.ask(), device_of(h200));
      } else {
        return choose_own(one, device_of(h200)).variant;
      }
    };
    TunedResult result = result_of(std::visit(own, problem));
    result.microseconds = 0.1 + static_cast<double>(table.rows.size()) / 3;
    table.put({problem, result});
  }
  CHECK(table.rows.size() == all_kinds().size());
  const std::string text = tuned_text(table);
  CAPTURE(text);
  CHECK(problems_in(text).empty());
  CHECK(parse_tuned(text, "t.yaml").value == table);
  CHECK(tuned_text(parse_tuned(text, "t.yaml").value) == text);
  for (const TunedRow& row : table.rows) CHECK(table.find(row.problem) == &row);
}

TEST_CASE("the text of a table does not depend on the order in which rows came") {
  const TunedTable table = table_of();
  TunedTable reversed{.gpu = table.gpu, .rows = {}};
  for (auto row = table.rows.rbegin(); row != table.rows.rend(); ++row) reversed.put(*row);
  CHECK(tuned_text(reversed) == tuned_text(table));
}

TEST_CASE("another problem changes no row of a table, and the same problem changes its own alone") {
  TunedTable table = table_of();
  const std::vector<std::string> before = lines_of(tuned_text(table));
  table.put({prefill(2, 4096), result_of(sm80(64, 64))});
  const std::vector<std::string> more = lines_of(tuned_text(table));
  REQUIRE(more.size() == before.size() + 1);
  CHECK(std::ranges::count_if(more,
                              [&](const auto& line) { return std::ranges::find(before, line) == before.end(); }) == 1);
  TunedResult slower = result_of(sm80(64, 64));
  slower.microseconds = 500;
  table.put({prefill(2, 4096), slower});
  const std::vector<std::string> changed = lines_of(tuned_text(table));
  REQUIRE(changed.size() == more.size());
  CHECK(std::ranges::count_if(changed, [&](const auto& line) { return std::ranges::find(more, line) == more.end(); }) ==
        1);
}

TEST_CASE("an empty table is a file too") {
  const TunedTable table{.gpu = h200, .rows = {}};
  CHECK(contains(tuned_text(table), "rows: []"));
  CHECK(parse_tuned(tuned_text(table), "t.yaml").value == table);
}

TEST_CASE("what a row leaves out is usual, and a variant has what it does not name from its template") {
  const Result<TunedTable> table = parse_tuned(file_with(row_text(sound_problem, sound_variant)), "t.yaml");
  REQUIRE(table.ok());
  REQUIRE(table.value.rows.size() == 1);
  CHECK(table.value.rows[0].problem == TunedProblem(prefill(4, 4096)));
  CHECK(table.value.rows[0].result.variant == sm80(128, 64));
  CHECK(table.value.rows[0].result.microseconds == 10.5);
}

TEST_CASE("a row of gradients is for the same bits every time unless it says otherwise") {
  const std::string problem =
      R"("operation": "backward", "dtype": "bf16", "head_dim": 128, "batch": 2, "heads_q": 32, "heads_kv": 8, )"
      R"("seqlen_q": 4096, "seqlen_k": 4096, "causal": true)";
  const std::string in_order = R"("template": "backward_sm90", "B_c": 64, "causal": true)";
  const std::string any_order = in_order + R"(, "deterministic": false)";
  const Result<TunedTable> table = parse_tuned(
      file_with(row_text(problem, in_order) + "\n" + row_text(problem + R"(, "any_order": true)", any_order)),
      "t.yaml");
  for (const Diagnostic& one : table.problems) FAIL_CHECK(one.text());
  REQUIRE(table.value.rows.size() == 2);
  CHECK(table.value.rows[0].problem == TunedProblem(backward(2, 4096)));
  CHECK(table.value.rows[0].result.variant == backward_variant(false));
  CHECK(table.value.rows[1].problem == TunedProblem(backward(2, 4096, true)));
  CHECK(table.value.rows[1].result.variant == backward_variant(true));
  CHECK(contains(problems_in(file_with(row_text(problem, any_order))),
                 "the variant cannot serve the problem: deterministic"));
}

TEST_CASE("what is wrong in a row is said with its line, all of it") {
  const auto said = [&](const std::string& row) { return problems_in(file_with(row)); };
  CHECK(said(row_text(sound_problem, sound_variant)).empty());
  CHECK(contains(said(row_text(sound_problem + R"(, "casual": true)", sound_variant)),
                 "t.yaml:3:3: problem has a key \"casual\", which is unknown; did you mean causal?"));
  CHECK(contains(said(row_text(R"("operation": "prefill")", sound_variant)), "problem has no seqlen_q"));
  CHECK(contains(said(row_text(R"("operation": "sort")", sound_variant)), "prefill, decode or backward"));
  CHECK(contains(said(row_text(sound_problem, R"("template": "prefill_sm70")")), "there is no template"));
  CHECK(contains(said(row_text(sound_problem, sound_variant + R"(, "B_r": 100)")), "B_r of variant is 100"));
  CHECK(contains(said(row_text(sound_problem, sound_variant + R"(, "B_r": "64")")), "B_r of variant is \"64\""));
  CHECK(contains(said(row_text(sound_problem, sound_variant + R"(, "ping_pong": true)")), "ping_pong"));
  CHECK(contains(said(row_text(sound_problem, sound_variant + R"(, "B_r": 16, "warps": 4)")), "cannot be built"));
  CHECK(contains(said(row_text(sound_problem, R"("template": "prefill_sm80")")),
                 "the variant cannot serve the problem: causal"));
  CHECK(contains(said(row_text(sound_problem, R"("template": "combine")")), "cannot serve the problem"));
  CHECK(contains(said(row_text(sound_problem, sound_variant, R"(, "batch": 1)")), "the row has a key \"batch\""));
  CHECK(contains(said(row_text(sound_problem + R"(, "causal": true)", sound_variant)), "given twice"));
  CHECK(contains(said(row_text(sound_problem, sound_variant) + "\n" + row_text(sound_problem, sound_variant)),
                 "t.yaml:4:3: the problem has a row already, on line 3"));
  CHECK(contains(said("- {\"problem\": }"), "t.yaml:3:15: the line is not JSON from here on"));
  CHECK(contains(said("- 17"), "holds no object"));
  CHECK(contains(said("- {\"a\": {\"b\": {\"c\": {\"d\": {\"e\": 1}}}}}"), "levels"));
  CHECK(contains(said("- {\"microseconds\": 1e999}"), "beyond every range"));
  CHECK(contains(said("  - {}"), "neither a comment, nor gpu:, rows: or a row"));
  const std::string several = said(row_text(sound_problem + R"(, "a": 1)", sound_variant) + "\n" +
                                   row_text(sound_problem, R"("template": "x")"));
  CHECK(contains(several, "t.yaml:3:"));
  CHECK(contains(several, "t.yaml:4:"));
}

TEST_CASE("what is wrong with a file's head is said") {
  const std::string row = row_text(sound_problem, sound_variant);
  CHECK(contains(problems_in(""), "does not say which GPU"));
  CHECK(contains(problems_in("rows:\n" + row), "a row stands before gpu: and rows:"));
  CHECK(contains(problems_in(file_with(row) + file_with(row)), "gpu: is given again"));
  CHECK(contains(problems_in(R"(gpu: {"name": "X", "capability": "7.0", "multiprocessors": 1})"
                             "\nrows: []\n"),
                 "capability of gpu is \"7.0\"; one of 8.0"));
  CHECK(contains(problems_in(R"(gpu: {"name": "X", "capability": "8.0", "multiprocessors": 1})"
                             "\n"),
                 "no rows"));
  CHECK(contains(problems_in(std::string(max_tuned_bytes + 1, '#')), "larger than"));
  CHECK(contains(read_tuned("/nonexistent/h200.yaml").problems.at(0).text(), "there is no such file"));
  CHECK(contains(read_tuned("/").problems.at(0).text(), "this is a folder"));
}

TEST_CASE("a file has a limited number of rows, and of problems") {
  std::string many;
  for (std::size_t i = 0; i <= max_tuned_rows; ++i) {
    std::string problem = sound_problem;
    problem.replace(problem.find("\"batch\": 4"), 10, "\"batch\": " + std::to_string(i + 1));
    many += row_text(problem, sound_variant) + "\n";
  }
  CHECK(contains(problems_in(file_with(many)), "more than 4095 rows"));
  std::string wrong;
  for (int i = 0; i < 1000; ++i) wrong += "- {}\n";
  CHECK(parse_tuned(file_with(wrong), "t.yaml").problems.size() < 300);
}

TEST_CASE("a table that could not be read back is not written") {
  TunedTable table = table_of();
  table.rows[0].result.variant.B_c = 24;
  CHECK_THROWS_AS(tuned_text(table), Error);
  table = table_of();
  std::swap(table.rows[0], table.rows[1]);
  CHECK_THROWS_AS(tuned_text(table), Error);
}

TEST_CASE("a table's file is named after its GPU") {
  CHECK(tuned_file_name(h200) == "h200.yaml");
  CHECK(tuned_file_name({.name = "NVIDIA RTX 6000 Ada Generation", .capability = 89, .multiprocessors = 142}) ==
        "rtx_6000_ada_generation.yaml");
}
