// attune tune as a person meets it, without a GPU.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/choice/tuned.hpp"
#include "runtime/cli/suites.hpp"
#include "runtime/cli/tune_bench.hpp"
#include "runtime/cli/tune_problems.hpp"
#include "runtime/cli/tune_progress.hpp"
#include "runtime/lab/random_values.hpp"
#include "runtime/tune/problems.hpp"
#include "tests/cli/tool.hpp"

using namespace attune;
using namespace attune::testing;

namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string problems_text(const std::string& text) {
  std::string all;
  for (const Diagnostic& problem : cli::parse_problems(text, "p.yaml").problems) all += problem.text() + "\n";
  return all;
}

constexpr const char* table = R"(gpu: {"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132}
rows:
)";

}  // namespace

TEST_CASE("the plan of all 51 problems fits the time that a GPU is there for") {
  const ToolResult result = attune_tool(
      {"tune", source_file("specs/tune/prefill_sm90.yaml"), source_file("specs/tune/decode.yaml"), "--cases", "prefill",
       "--cases", "gqa", "--cases", "decode", "--dry-run", "--arch", "sm_90", "--jobs", "16", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto plan = parsed_json(result.out);
  CHECK(plan["problems"].size() == 51);
  MESSAGE(plan["variants"].get<int>(), " variants, ", plan["compile_seconds"].get<double>(), " s to compile, ",
          plan["measuring_seconds"].get<double>(), " s to measure");
  CHECK(plan["compile_seconds"].get<double>() < 60);
  CHECK(plan["measuring_seconds"].get<double>() < 300);
  for (const auto& problem : plan["problems"]) CHECK(problem["candidates"].get<int>() >= 5);
  CHECK(plan["refused"]["B_c"]["count"].get<int>() > 0);
}

TEST_CASE("the plan reckons with the speed of the GPU that it is for") {
  const auto measuring = [](const std::string& gpu, const std::string& spec, const std::string& cases) {
    const ToolResult result =
        attune_tool({"tune", source_file("specs/tune/" + spec), "--cases", cases, "--dry-run", "--gpu", gpu, "--json"});
    REQUIRE(result.exit_code == 0);
    return parsed_json(result.out)["measuring_seconds"].get<double>();
  };
  // Of memory, 4.8 TB/s beside 3.35 and 2.0, and a launch's own time.
  const double h200 = measuring("h200", "decode.yaml", "decode");
  CHECK(measuring("h100", "decode.yaml", "decode") > 1.2 * h200);
  CHECK(measuring("h100", "prefill_sm90.yaml", "prefill") ==
        doctest::Approx(measuring("h200", "prefill_sm90.yaml", "prefill")));
  const auto launch = [&](const char* gpu) {
    return tune::estimated_seconds(cli::suite("decode").back(), *find_gpu_device(gpu));
  };
  CHECK(launch("a100") > 2 * launch("h200"));
  CHECK(launch("sm_80") == launch("a100"));
  const ToolResult said =
      attune_tool({"tune", source_file("specs/tune/decode.yaml"), "--cases", "decode", "--dry-run", "--gpu", "a100"});
  CHECK_MESSAGE(contains(said.out, "to measure, at half of what NVIDIA A100-SXM4-80GB reaches"), said.out);
}

TEST_CASE("the plan for gradients has each of 16 shapes in both modes, with candidates few enough to race them all") {
  const ToolResult result = attune_tool({"tune", source_file("specs/tune/backward_sm90.yaml"), "--cases", "backward",
                                         "--dry-run", "--gpu", "h200", "--jobs", "14", "--json"});
  CHECK(result.err == "");
  REQUIRE(result.exit_code == 0);
  const auto plan = parsed_json(result.out);
  REQUIRE(plan["problems"].size() == 32);
  CHECK(plan["problems"][0]["problem"] == "backward bf16 d64 b16 hq32 hk32 lq1024 lk1024");
  CHECK(plan["problems"][31]["problem"] == "backward bf16 d128 b2 hq32 hk8 lq8192 lk8192 causal any_order");
  MESSAGE(plan["variants"].get<int>(), " variants, ", plan["compile_seconds"].get<double>(), " s to compile, ",
          plan["measuring_seconds"].get<double>(), " s to measure");
  CHECK(plan["variants"].get<int>() <= 60);
  CHECK(plan["measuring_seconds"].get<double>() < 60);
  for (const auto& problem : plan["problems"]) CHECK(problem["candidates"].get<int>() >= 1);
}

TEST_CASE("the suite paged is the suite decode in pages") {
  const auto problems = [](const std::string& suite) {
    const ToolResult result = attune_tool(
        {"tune", source_file("specs/tune/decode.yaml"), "--cases", suite, "--dry-run", "--arch", "sm_90", "--json"});
    REQUIRE(result.exit_code == 0);
    std::vector<std::string> texts;
    const auto plan = parsed_json(result.out);
    for (const auto& problem : plan["problems"]) texts.push_back(problem["problem"]);
    return texts;
  };
  std::vector<std::string> expected = problems("decode");
  CHECK(expected.size() == 11);
  for (std::string& text : expected) text += " page64";
  CHECK(problems("paged") == expected);
}

TEST_CASE("the suite varlen is the suite prefill as ragged batches of 16K tokens") {
  std::vector<Problem> expected;
  for (const tune::AnyProblem& problem : cli::suite("prefill")) {
    expected.push_back(std::get<Problem>(problem));
    expected.back().ragged = true;
    expected.back().total_q = expected.back().total_k = 16384;
  }
  std::vector<Problem> found;
  for (const tune::AnyProblem& problem : cli::suite("varlen")) found.push_back(std::get<Problem>(problem));
  CHECK(found.size() == 36);
  CHECK(found == expected);
}

TEST_CASE("a record gives the problems it has: the most called first, each once, and none of what has but one kernel") {
  const TemporaryFolder folder;
  const std::string prefill =
      R"({"operation":"prefill","dtype":"bf16","batch":4,"heads_q":32,"heads_kv":8,"seqlen_q":900,"seqlen_k":900,)"
      R"("head_dim":128,"causal":true,"ragged":true,"total_q":2000,"total_k":2000,"calls":)";
  const std::string decode =
      R"({"operation":"decode","dtype":"bf16","batch":8,"seqlen_q":1,"heads_q":32,"heads_kv":8,"head_dim":128,"max_seqlen_k":4096,)"
      R"("page_size":64,"pages":512,"table_width":64,"calls":)";
  const std::string backward =
      R"({"operation":"backward","dtype":"bf16","batch":4,"heads_q":32,"heads_kv":8,"seqlen_q":900,"seqlen_k":900,)"
      R"("head_dim":128,"causal":true,"any_order":true,"calls":)";
  const std::string record = folder.file(
      "calls.jsonl",
      prefill + "3}\n" + decode + "7}\n" + prefill + "2}\n" + backward + "1}\n" +
          R"({"operation":"merge_states","dtype":"bf16","batch":2,"seqlen":3,"heads":2,"head_dim":128,"calls":9})" +
          "\n");
  const ToolResult result = attune_tool(
      {"tune", source_file("specs/tune/prefill_sm90.yaml"), source_file("specs/tune/decode.yaml"),
       source_file("specs/tune/backward_sm90.yaml"), "--problems", record, "--dry-run", "--arch", "sm_90", "--json"});
  CHECK(result.err == "");
  REQUIRE(result.exit_code == 0);
  const auto plan = parsed_json(result.out);
  REQUIRE(plan["problems"].size() == 3);
  CHECK(contains(plan["problems"][0]["problem"].get<std::string>(), "decode bf16 d128 b8 hq32 hk8 lq1 lk4096"));
  CHECK(contains(plan["problems"][1]["problem"].get<std::string>(), "lq900 lk900 causal ragged tq2000 tk2000"));
  CHECK(plan["problems"][2]["problem"] == "backward bf16 d128 b4 hq32 hk8 lq900 lk900 causal any_order");
  for (const auto& problem : plan["problems"]) CHECK(problem["candidates"].get<int>() >= 2);
}

TEST_CASE("a record that has a bad line is refused with its place") {
  const TemporaryFolder folder;
  const std::string record = folder.file("calls.jsonl", "{\"operation\":\"dance\",\"calls\":1}\n");
  const ToolResult result = attune_tool(
      {"tune", source_file("specs/tune/decode.yaml"), "--problems", record, "--dry-run", "--arch", "sm_90"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "calls.jsonl:1:"));
}

TEST_CASE("trials of a ragged problem have its longest sequence, and as many rows as it says") {
  for (const int total : {1000, 1700, 2083, 2500, 3999, 4000, 9000}) {
    CAPTURE(total);
    const Problem problem{.batch = 4,
                          .heads_q = 1,
                          .heads_kv = 1,
                          .seqlen_q = 1000,
                          .seqlen_k = 1000,
                          .head_dim = 16,
                          .ragged = true,
                          .total_q = total,
                          .total_k = total};
    const auto trial = make_trial(problem, 1);
    const std::vector<std::int32_t>& starts = trial->sequences().cu_seqlens_q;
    REQUIRE(starts.size() == 5);
    CHECK(starts == trial->sequences().cu_seqlens_k);
    CHECK(starts[0] == 0);
    CHECK(starts[1] == 1000);
    for (std::size_t i = 1; i < 4; ++i) CHECK(starts[i + 1] - starts[i] <= starts[i] - starts[i - 1]);
    CHECK(starts[4] <= total);
    CHECK(starts[4] >= std::min(total, 4000) - 4);
  }
  // A maximum that is looser than the total.
  const Problem loose{
      .batch = 2, .seqlen_q = 500, .seqlen_k = 500, .head_dim = 16, .ragged = true, .total_q = 30, .total_k = 40};
  CHECK(make_trial(loose, 1)->sequences().cu_seqlens_q == std::vector<std::int32_t>{0, 30, 30});
}

TEST_CASE("shards divide the problems without a rest") {
  std::size_t all = 0;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const ToolResult result = attune_tool({"tune", source_file("specs/tune/decode.yaml"), "--cases", "decode",
                                           "--dry-run", "--arch", "sm_90", "--shard", shard, "--json"});
    if (result.exit_code == 0) all += parsed_json(result.out)["problems"].size();
  }
  CHECK(all == 11);
}

TEST_CASE("a dry run says candidates, refusals and times to a person") {
  const ToolResult result = attune_tool({"tune", source_file("specs/tune/decode.yaml"), "--cases", "decode", "--only",
                                         "b8", "--dry-run", "--arch", "sm_80"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "decode bf16 d128 b8 hq32 hk8 lq1 lk4096"));
  CHECK_FALSE(contains(result.out, " b64 "));
  CHECK(contains(result.out, "refused for B_c"));
  CHECK(contains(result.out, "2 problems and"));
  CHECK(contains(result.out, "to measure"));
}

TEST_CASE("what tune cannot do it says: no GPU, nothing to search, no problems, bad options") {
  const std::string spec = source_file("specs/tune/decode.yaml");
  CHECK(attune_tool({"tune"}).exit_code == 2);
  CHECK(contains(attune_tool({"tune"}).err, "a spec with `tune:`"));
  CHECK(contains(attune_tool({"tune", spec}).err, "--cases or --problems"));
  const ToolResult nothing = attune_tool({"tune", source_file("specs/decode.yaml"), "--cases", "decode"});
  CHECK(nothing.exit_code == 2);
  CHECK(contains(nothing.err, "there is nothing to search"));
  for (const std::vector<std::string>& elsewhere : std::vector<std::vector<std::string>>{
           {source_file("specs/tune/prefill_sm90.yaml"), "--cases", "quick"}, {spec, "--cases", "prefill"}}) {
    std::vector<std::string> line{"tune", "--dry-run", "--gpu", "rtx4090"};
    line.insert(line.end(), elsewhere.begin(), elsewhere.end());
    const ToolResult result = attune_tool(line);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "no spec given has kernels for any of these problems on NVIDIA GeForce RTX 4090"));
  }
  for (const char* shard : {"1/1", "a", "-1/2", "0/0", "1/2x", "", "0/4294967297", "99999999999/4"}) {
    CAPTURE(shard);
    CHECK(attune_tool({"tune", spec, "--cases", "decode", "--shard", shard}).exit_code == 2);
  }
  for (const char* devices : {"", "0,", ",1", "x", "0,,1", "99999999999", "0,0"}) {
    CAPTURE(devices);
    CHECK(attune_tool({"tune", spec, "--cases", "decode", "--devices", devices}).exit_code == 2);
  }
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"--budget", "nan"},
                                                                                      {"--budget", "inf"},
                                                                                      {"--budget", "1e400"},
                                                                                      {"--confidence", "nan"},
                                                                                      {"--seed", "-1"}}) {
    CAPTURE(option);
    const ToolResult result = attune_tool({"tune", spec, "--cases", "decode", option + "=" + value});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, option + ": '" + value + "' is no"));
  }
  CHECK(attune_tool({"tune", spec, "--cases", "nothing"}).exit_code == 2);
  CHECK(attune_tool({"tune", "--merge", spec}).exit_code == 2);
  CHECK(attune_tool({"tune", "--report", "x.svg"}).exit_code == 2);
}

TEST_CASE("a list of problems takes the command line's names and defaults") {
  const auto read = cli::parse_problems(
      "- {head_dim: 64, heads_q: 32, heads_kv: 8, seqlen_q: 4096, causal: true}\n"
      "- {operation: decode, dtype: fp16, batch: 8, heads_q: 32, heads_kv: 8, seqlen_k: 4096, page_size: 16}\n"
      "- {}\n"
      "- {batch: 4, seqlen_q: 500, seqlen_k: 600, ragged: true, total_q: 1200}\n",
      "p.yaml");
  for (const Diagnostic& problem : read.problems) FAIL_CHECK(problem.text());
  REQUIRE(read.value.size() == 4);
  CHECK(text_of(read.value[0]) == "bf16 d64 b1 hq32 hk8 lq4096 lk4096 causal");
  CHECK(text_of(read.value[1]) == "decode fp16 d128 b8 hq32 hk8 lq1 lk4096 page16");
  CHECK(text_of(read.value[2]) == "bf16 d128 b1 hq16 hk16 lq1024 lk1024");
  CHECK(text_of(read.value[3]) == "bf16 d128 b4 hq16 hk16 lq500 lk600 ragged tq1200 tk2400");
}

TEST_CASE("the problems of a table are tuned anew, ragged ones and pages too") {
  const auto own = read_tuned(source_file("specs/tuned/h200.yaml"));
  REQUIRE(own.ok());
  const auto read = cli::read_problems(source_file("specs/tuned/h200.yaml"));
  REQUIRE(read.ok());
  REQUIRE(read.value.size() == own.value.rows.size());
  for (std::size_t i = 0; i < read.value.size(); ++i) CHECK(read.value[i] == own.value.rows[i].problem);
}

TEST_CASE("what is wrong in a list of problems is reported with its place") {
  CHECK(contains(problems_text("head_dim: 64\n"), "p.yaml:1:1: the file is a mapping"));
  CHECK(contains(problems_text("rows: 7\n"), "p.yaml:1:"));
  CHECK(contains(problems_text("- {total_q: 64}\n"), "total_q is no key of a problem of prefill"));
  CHECK(contains(problems_text("- {ragged: true, total_q: 0}\n"),
                 "'0' is not a value of total_q; a whole number from 1"));
  CHECK(contains(problems_text("- 7\n"), "p.yaml:1:3: a problem is"));
  CHECK(contains(problems_text("- {head_dmi: 64}\n- {seqlen_q: many}\n"), "p.yaml:1:14: head_dmi is no key"));
  CHECK(contains(problems_text("- {head_dmi: 64}\n- {seqlen_q: many}\n"), "p.yaml:2:14: 'many' is not a value"));
  CHECK(contains(problems_text("- {operation: combine}\n"), "prefill, decode or backward"));
  CHECK(contains(problems_text("- {head_dim: 300}\n"), "head_dim"));
  CHECK(contains(problems_text("- {operation: decode, causal: true}\n"), "causal is no key of a problem of decode"));
  CHECK(contains(problems_text("- {batch: 1, batch: 2}\n"), "batch"));
  CHECK(contains(problems_text("- {batch: [1]}\n"), "batch is a list"));
  CHECK(contains(problems_text("- {operation: decode, batch: 65536, seqlen_k: 1048576, page_size: 16}\n"),
                 "pages is 2147483647; it must be from 0 to"));
  CHECK(contains(problems_text("- {operation: decode, seqlen_k: 2147483647, page_size: 1000}\n"), "max_seqlen_k is"));
  CHECK(contains(problems_text("- {batch: 2147483647, heads_q: 2147483647, heads_kv: 1, seqlen_q: 1073741824}\n"),
                 "p.yaml:1:3: its largest operand has 6.3e+29 elements"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "- 7\n";
  CHECK(cli::parse_problems(many, "p.yaml").problems.size() == 201);
}

TEST_CASE("the suite of decoding has the eleven cases of the baselines") {
  const auto problems = cli::suite("decode");
  CHECK(problems.size() == 11);
  CHECK(text_of(problems.front()) == "decode bf16 d128 b1 hq32 hk8 lq1 lk4096");
  CHECK(text_of(problems.back()) == "decode bf16 d64 b16 hq32 hk8 lq1 lk8192");
}

TEST_CASE("tables are merged from the command line, and what is none is named") {
  const TemporaryFolder folder;
  const std::string a = folder.file(
      "a.yaml",
      std::string(table) +
          R"(- {"problem": {"operation": "prefill", "dtype": "bf16", "head_dim": 128, "batch": 1, "heads_q": 16, )"
          R"("heads_kv": 16, "seqlen_q": 1024, "seqlen_k": 1024}, "variant": {"template": "prefill_sm90"}, )"
          R"("microseconds": 10.0, "default_microseconds": 11.0, "confidence": 0.99, "date": "2026-11-22", )"
          R"("driver": "13.0", "compiler": "NVRTC 13.0"})"
          "\n");
  const std::string out = (folder.path() / "out.yaml").string();
  const ToolResult result = attune_tool({"tune", "--merge", a, a, "--out", out});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "1 row for NVIDIA H200"));
  CHECK(contains(content_of(out), "\"seqlen_q\": 1024"));
  const std::string broken = folder.file("broken.yaml", "rows: 7\n");
  const ToolResult refused = attune_tool({"tune", "--merge", a, broken, "--out", out});
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, broken));
}

TEST_CASE("a report needs a journal, and names what is none") {
  const TemporaryFolder folder;
  const std::string none = folder.file("none.jsonl", "nothing\n");
  const std::string svg = (folder.path() / "r.svg").string();
  const ToolResult result = attune_tool({"tune", "--report", svg, "--journal", none});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, none + ":1: "));
  CHECK_FALSE(std::filesystem::exists(svg));
}

TEST_CASE("results of two kernels agree within rounding, row by row") {
  const Problem problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 64, .seqlen_k = 64, .head_dim = 64};
  const Outputs trusted{.o = random_values(problem.dtype, output_elements(problem), 1),
                        .lse = std::vector(query_rows(problem), 3.0F)};
  Outputs own = trusted;
  const auto trial = make_trial(problem, 1);
  CHECK(cli::differences(*trial, own, trusted).empty());
  for (std::uint16_t& bits : own.o) bits ^= 1U;  // an ulp
  CHECK(cli::differences(*trial, own, trusted).empty());
  own.o[70] = to_storage(problem.dtype, from_storage(problem.dtype, trusted.o[70]) + 0.5F);
  CHECK(contains(cli::differences(*trial, own, trusted), "1 of 128 rows differ"));
  own = trusted;
  own.lse[5] = 3.1F;
  own.o[700] = 0x7fff;  // never written
  CHECK(contains(cli::differences(*trial, own, trusted), "2 of 128 rows differ"));
  own = trusted;
  own.guards_intact = false;
  CHECK(contains(cli::differences(*trial, own, trusted), "past the end"));
}

TEST_CASE("gradients of two kernels agree within rounding, each of dq, dk and dv") {
  const BackwardProblem problem{
      .heads_q = 2, .heads_kv = 1, .seqlen_q = 64, .seqlen_k = 32, .head_dim = 128, .head_dim_v = 64};
  const auto trial = make_trial(problem, 1);
  const std::size_t dq = 128 * 128;
  const std::size_t dk = 32 * 128;
  const Outputs trusted{.o = random_values(problem.dtype, dq + dk + 32 * 64, 1), .lse = {}};
  Outputs own = trusted;
  CHECK(cli::differences(*trial, own, trusted).empty());
  for (const std::size_t place : {dq - 1, dq, dq + dk - 1, dq + dk, own.o.size() - 1}) {
    CAPTURE(place);
    own = trusted;
    own.o[place] = to_storage(problem.dtype, from_storage(problem.dtype, trusted.o[place]) + 0.5F);
    CHECK(contains(cli::differences(*trial, own, trusted), "1 of 192 rows differ"));
  }
}

TEST_CASE("rows that no sequence of a ragged batch has are left alone by both kernels, and by both alone") {
  const Problem problem{
      .heads_q = 1, .heads_kv = 1, .seqlen_q = 4, .seqlen_k = 4, .head_dim = 64, .ragged = true, .total_q = 6};
  const auto trial = make_trial(problem, 1);
  Outputs trusted = trial->outputs(trial->poisoned_results(0));
  std::fill_n(trusted.o.begin(), 5 * 64, 0x3f80);
  std::fill_n(trusted.lse.begin(), 5, 3.0F);
  Outputs own = trusted;
  CHECK(cli::differences(*trial, own, trusted).empty());
  own.o[5 * 64] = 0x3f80;
  CHECK(contains(cli::differences(*trial, own, trusted), "1 of 6 rows differ"));
  own = trusted;
  own.o[7] = 0x7fff;
  own.lse[4] = std::numeric_limits<float>::quiet_NaN();
  CHECK(contains(cli::differences(*trial, own, trusted), "2 of 6 rows differ"));
}

TEST_CASE("the progress line is a bar with what is done") {
  CHECK(cli::progress_line(
            {.to_build = 412, .built = 300, .rejected = 3, .problems = 51, .finished = 21, .last = "", .left = 252}) ==
        "[########............] 21/51 problems, 300/412 compiled, 3 rejected, 4.20 min left");
}
