// The picture of a journal.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/tune/report.hpp"

namespace {

using namespace attune;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// A journal of one problem: tiles of 2 x 3 sizes and two depths, the deeper ones twice as fast.
tune::JournalContents journal() {
  tune::JournalContents contents;
  contents.identity.gpu = {.name = "NVIDIA H200 <&>", .capability = 90, .multiprocessors = 132};
  const Problem problem = tuned_problem(Problem{.heads_q = 16, .heads_kv = 16, .seqlen_q = 512, .seqlen_k = 512});
  std::vector<Variant> candidates;
  std::vector<int> order;
  std::vector<double> seconds;
  for (const int stages : {2, 3}) {
    for (const int B_r : {128, 192}) {
      for (const int B_c : {64, 80, 96}) {
        Variant variant = families()[prefill_sm90].defaults;
        variant.stages = stages;
        variant.B_r = B_r;
        variant.B_c = B_c;
        order.push_back(static_cast<int>(candidates.size()));
        candidates.push_back(variant);
        seconds.push_back(stages == 3 ? 1e-5 : 2e-5);
      }
    }
  }
  contents.races["id"] = tune::record_of(problem, candidates);
  contents.rounds[{"id", 0}] = {order, seconds};
  contents.outcomes["other"] = {.row = {.problem = problem,
                                        .result = {.variant = candidates.back(),
                                                   .microseconds = 10,
                                                   .default_microseconds = 20,
                                                   .confidence = 1,
                                                   .date = "2026-11-22",
                                                   .driver = "13.0",
                                                   .compiler = "NVRTC 13.0"}},
                                .heuristic = candidates.front(),
                                .complete = true};
  return contents;
}

TEST_CASE("a report has a panel for each depth, a cell for each tile, and both choices framed") {
  const std::string svg = tune::report_svg(journal(), "");
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "class=\"cell\"") == 12);
  CHECK(count(svg, "class=\"chosen\"") == 1);
  CHECK(count(svg, "class=\"heuristic\"") == 1);
  CHECK(count(svg, "2 stages, TFLOP/s") == 1);
  CHECK(count(svg, "3 stages, TFLOP/s") == 1);
  CHECK(count(svg, "prefers-color-scheme: dark") == 1);
  CHECK(count(svg, "NVIDIA H200 &lt;&amp;>") == 1);
  CHECK(count(svg, "bf16 d128 b1 hq16 hk16 lq512 lk512: prefill_sm90") == 1);
  CHECK(count(svg, "http") == 1);  // nothing is loaded from elsewhere
  CHECK(count(svg, "fill-opacity=\"0.92\"") == 6);
  CHECK(count(svg, "fill-opacity=\"0.08\"") == 6);
}

TEST_CASE("a report of nothing is an error that says so") {
  const auto message = [](const tune::JournalContents& contents, const std::string& only) -> std::string {
    try {
      return tune::report_svg(contents, only);
    } catch (const Error& error) {
      return error.what();
    }
  };
  CHECK(message({}, "") == "the journal has no measurements");
  CHECK(message(journal(), "d64") == "no measured problem contains 'd64'");
  CHECK(message(journal(), "d128").starts_with("<svg"));
  tune::JournalContents empty = journal();
  empty.races["id"].candidates.clear();
  CHECK(message(empty, "") == "the journal has no measurements");
  empty = journal();
  empty.rounds[{"id", 0}] = {};
  CHECK(message(empty, "") == "the journal has no measurements");
}

}  // namespace
