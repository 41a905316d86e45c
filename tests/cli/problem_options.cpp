// Options and lists of problems follow the tables of the problems' fields.
#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "generator/tuned_file.hpp"
#include "runtime/choice/tuned.hpp"
#include "runtime/cli/problem_options.hpp"
#include "runtime/cli/tune_problems.hpp"
#include "runtime/operations/operations.hpp"
#include "tests/cli/tool.hpp"

using namespace attune;
using namespace attune::testing;

TEST_CASE("every documented field of a problem is an option with its default, by the table") {
  const std::string help = attune_tool({"explain", "--help"}).out;
  const auto has_options = [&](const auto& problem) {
    for_each_field<std::decay_t<decltype(problem)>>([&](const auto& field) {
      if (field.doc == nullptr) return;
      CAPTURE(field.key);
      CHECK(contains(help, "  " + cli::option_name(field) + " ") !=
            contains(help, "  " + cli::option_name(field) + "\n"));
      CHECK(contains(help, field.doc));
    });
  };
  has_options(Problem());
  has_options(DecodeProblem());
  // CLI11 writes a default as INT=128 or, from 2.4 on, as INT [128].
  const auto has_default = [&](const std::string& option, const std::string& value) {
    return contains(help, option + "=" + value) || contains(help, option + " [" + value + "]");
  };
  CHECK(has_default("--head-dim INT", "128"));
  CHECK(has_default("--dtype TEXT:{fp16,bf16}", "bf16"));
  CHECK_FALSE(contains(help, "--seqlen-k INT="));
  CHECK_FALSE(contains(help, "--seqlen-k INT ["));
}

TEST_CASE("an option sets its field, and refuses a word that the field does not have") {
  DecodeProblem problem;
  CLI::App app;
  for_each_field<DecodeProblem>([&](const auto& field) {
    if (field.doc != nullptr) cli::add_field_option(app, "Decoding", field, problem);
  });
  app.parse("--page-size 16 --splits 4 --rotary halves", false);
  CHECK(problem.page_size == 16);
  CHECK(problem.splits == 4);
  CHECK(problem.rotary == Rotary::halves);
  CHECK_THROWS_AS(app.parse("--rotary thirds", false), CLI::ValidationError);
}

TEST_CASE("a list of problems takes whatever a tuned row has") {
  const auto own = read_tuned(source_file("specs/tuned/h200.yaml"));
  const auto text = read_tuned_text(source_file("specs/tuned/h200.yaml"));
  REQUIRE(own.ok());
  std::string list;
  for (const TunedLine& line : parse_tuned_file(text.value, "h200.yaml").value.rows) list += "- " + line.problem + "\n";
  for (const char* more :
       {R"({"operation": "decode", "batch": 8, "seqlen_k": 4096, "page_size": 16, "splits": 4, "rotary": "halves"})",
        R"({"operation": "decode", "batch": 8, "seqlen_q": 4, "seqlen_k": 4096, "ragged": true, "total_q": 20})",
        R"({"operation": "decode", "batch": 8, "seqlen_k": 4096, "ragged": true, "total_q": 5, "total_k": 9000})",
        R"({"batch": 2, "seqlen_q": 100, "seqlen_k": 4096, "ragged": true, "page_size": 16})"}) {
    list += std::string("- ") + more + "\n";
  }
  const auto read = cli::parse_problems(list, "p.yaml");
  for (const Diagnostic& problem : read.problems) FAIL_CHECK(problem.text());
  REQUIRE(read.value.size() == own.value.rows.size() + 4);
  for (std::size_t i = 0; i < own.value.rows.size(); ++i) CHECK(read.value[i] == own.value.rows[i].problem);
  const auto* const added = read.value.data() + own.value.rows.size();
  CHECK(text_of(added[0]) == "decode bf16 d128 b8 hq16 hk16 lq1 lk4096 page16 splits4 new1 halves128");
  CHECK(text_of(added[1]) == "decode bf16 d128 b8 hq16 hk16 lq4 lk4096 ragged tq20");
  CHECK(text_of(added[2]) == "decode bf16 d128 b8 hq16 hk16 lq1 lk4096 ragged tq5 tk9000");
  CHECK(text_of(added[3]) == "bf16 d128 b2 hq16 hk16 lq100 lk4096 ragged tq200 page16");
}
