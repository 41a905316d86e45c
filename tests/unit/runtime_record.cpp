// Records of calls: what is written when, what a reader makes of it, and what it costs those who cannot write.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#include "generator/expression/pool.hpp"
#include "runtime/base/files.hpp"
#include "runtime/record/record.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using testing::EnvironmentVariable;
namespace fs = std::filesystem;

namespace {

class RecordFolder {
 public:
  [[nodiscard]] const fs::path& path() const { return folder_.path(); }
  [[nodiscard]] fs::path file() const { return path() / "calls.jsonl"; }

 private:
  ScratchFolder folder_;
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Recorded> read_all(const fs::path& path) {
  const Result<std::vector<Recorded>> record = parse_record(text_of(path), path.string());
  for (const Diagnostic& problem : record.problems) MESSAGE(problem.text());
  REQUIRE(record.ok());
  return record.value;
}

const Problem prefill{.dtype = Dtype::fp16,
                      .batch = 3,
                      .heads_q = 8,
                      .heads_kv = 2,
                      .seqlen_q = 300,
                      .seqlen_k = 500,
                      .head_dim = 96,
                      .head_dim_v = 64,
                      .causal = true,
                      .window_left = 100,
                      .window_right = 20,
                      .softcap = 0.1F,
                      .ragged = true,
                      .total_q = 700,
                      .total_k = 900,
                      .paged = true,
                      .page_size = 16,
                      .pages = 200,
                      .table_width = 32,
                      .mappable_strides = false};

const DecodeProblem decode{.dtype = Dtype::fp16,
                           .batch = 3,
                           .seqlen_q = 2,
                           .heads_q = 8,
                           .heads_kv = 2,
                           .head_dim = 96,
                           .max_seqlen_k = 3000,
                           .equal_lengths = true,
                           .page_size = 256,
                           .pages = 50,
                           .table_width = 12,
                           .splits = 4,
                           .window_left = 700,
                           .window_right = 0,
                           .softcap = 30,
                           .seqlen_new = 5,
                           .rotary = Rotary::interleaved,
                           .rotary_dim = 32,
                           .rotations = 4000};

const DecodeProblem ragged_decode{.seqlen_q = 4, .max_seqlen_k = 3000, .page_size = 3000, .ragged = true, .total_q = 3};

const DecodeProblem packed_decode{
    .seqlen_q = 4, .max_seqlen_k = 3000, .ragged = true, .total_q = 3, .packed_keys = true, .total_k = 5000};

const StoreProblem store{.dtype = Dtype::fp16,
                         .batch = 3,
                         .tokens = 20,
                         .heads_kv = 2,
                         .head_dim = 96,
                         .page_size = 256,
                         .pages = 50,
                         .table_width = 12,
                         .rotary = Rotary::halves,
                         .rotary_dim = 32,
                         .rotations = 700};

const MergeProblem merge{.dtype = Dtype::fp16, .batch = 3, .seqlen = 20, .heads = 4, .head_dim = 72};

}  // namespace

TEST_CASE("a line keeps every field of every kind of problem, and the calls") {
  std::vector<Recorded> all{{.problem = prefill, .calls = 1},       {.problem = decode, .calls = 0},
                            {.problem = ragged_decode, .calls = 4}, {.problem = packed_decode, .calls = 6},
                            {.problem = store, .calls = 1LL << 40}, {.problem = merge, .calls = 7},
                            {.problem = CheckProblem{}, .calls = 2}};
  // And of the usual ones, most of whose fields are left out.
  for (const AnyProblem& usual :
       {AnyProblem(Problem{}), AnyProblem(DecodeProblem{}), AnyProblem(StoreProblem{}), AnyProblem(MergeProblem{})}) {
    all.push_back({.problem = usual, .calls = 3});
  }
  const int score =
      expression::number_of_text("s + slope[h] * (k - p) where slope: fp32[head]", expression::Use::score).value();
  const int mask =
      expression::number_of_text("doc[b, p] == doc[b, k] where doc: int32[batch, position]", expression::Use::mask)
          .value();
  all.push_back({.problem = Problem{.expressions = {.score = score, .mask = mask, .sink = 1}}, .calls = 5});
  all.push_back({.problem = DecodeProblem{.expressions = {.score = score, .mask = 0, .sink = 0}}, .calls = 5});
  all.push_back({.problem = BackwardProblem{.expressions = {.score = 0, .mask = mask, .sink = 0}}, .calls = 5});
  std::string text;
  for (const Recorded& one : all) text += record_line(one);
  const Result<std::vector<Recorded>> read = parse_record(text, "calls.jsonl");
  REQUIRE(read.ok());
  CHECK(read.value == all);
  CHECK(record_line({.problem = Problem{}, .calls = 1}) ==
        R"({"operation":"prefill","dtype":"bf16","batch":1,"heads_q":1,"heads_kv":1,"seqlen_q":1,"seqlen_k":1,)"
        R"("head_dim":128,"calls":1})"
        "\n");
}

TEST_CASE("a problem is on the disk as soon as it is met, its calls whenever they have doubled, the rest at the end") {
  const RecordFolder folder;
  const auto written = [&] {
    std::vector<long long> calls;
    for (const Recorded& one : read_all(folder.file())) calls.push_back(one.calls);
    return calls;
  };
  {
    Recorder recorder(folder.file());
    CHECK(fs::exists(folder.file()));
    recorder.note(merge, 1);
    CHECK(written() == std::vector<long long>{1});
    for (int i = 0; i < 10; ++i) recorder.note(merge, 1);
    CHECK(written() == std::vector<long long>{1, 1, 2, 4});
    recorder.write_all();
    recorder.write_all();
    CHECK(written() == std::vector<long long>{1, 1, 2, 4, 3});
    recorder.note(merge, 2);
  }
  CHECK(written() == std::vector<long long>{1, 1, 2, 4, 3, 2});
  const std::vector<Recorded> met = merged(read_all(folder.file()));
  REQUIRE(met.size() == 1);
  CHECK(met.front() == Recorded{.problem = merge, .calls = 13});
}

TEST_CASE("what was prepared and not called is recorded without calls") {
  const RecordFolder folder;
  {
    Recorder recorder(folder.file());
    recorder.note(store, 0);
    recorder.note(store, 0);
    CHECK(read_all(folder.file()) == std::vector<Recorded>{{.problem = store, .calls = 0}});
    recorder.note(store, 1);
  }
  CHECK(merged(read_all(folder.file())) == std::vector<Recorded>{{.problem = store, .calls = 1}});
}

TEST_CASE("registries, threads and runs share a file, and their calls add up") {
  const RecordFolder folder;
  {
    Recorder first(folder.file());
    Recorder second(folder.file());
    std::vector<std::thread> threads;
    for (Recorder* recorder : {&first, &second}) {
      for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([recorder] {
          for (int i = 0; i < 1000; ++i) recorder->note(i % 2 == 0 ? AnyProblem(prefill) : AnyProblem(decode), 1);
        });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<Recorded> met = merged(read_all(folder.file()));
  CHECK(met == std::vector<Recorded>{{.problem = prefill, .calls = 4000}, {.problem = decode, .calls = 4000}});
}

TEST_CASE("a server whose lengths never repeat has a small record, in which every way to be served is met") {
  const RecordFolder folder;
  std::vector<Ask> asks;
  {
    Recorder recorder(folder.file());
    for (int length = 1; length <= 5000; ++length) {
      Problem problem{.batch = 2, .heads_q = 8, .heads_kv = 8, .seqlen_q = length, .seqlen_k = length, .head_dim = 64};
      problem.ragged = true;
      problem.total_q = problem.total_k = length + length / 3;
      recorder.note(problem, 1);
      asks.push_back(problem.ask());
    }
  }
  const std::vector<Recorded> met = merged(read_all(folder.file()));
  CHECK(met.size() < 100);
  CHECK(fs::file_size(folder.file()) < 200'000);
  long long calls = 0;
  for (const Recorded& one : met) calls += one.calls;
  CHECK(calls == 5000);
  for (const Ask& ask : asks) {
    CHECK(std::ranges::any_of(met, [&](const Recorded& one) { return std::get<Problem>(one.problem).ask() == ask; }));
  }
}

TEST_CASE("what is read does not depend on the order of lines") {
  std::vector<Recorded> lines;
  for (const int seqlen : {500, 400, 450, 70}) {
    Problem problem{.seqlen_q = seqlen, .seqlen_k = seqlen};
    lines.push_back({.problem = problem, .calls = seqlen});
  }
  const std::vector<Recorded> one = merged(lines);
  std::ranges::reverse(lines);
  CHECK(merged(lines) == one);
  CHECK(merged(one) == one);
}

TEST_CASE("a file that cannot be written is said once and costs no call") {
  std::vector<std::string> said;
  {
    Recorder recorder("/nowhere/at/all/calls.jsonl", [&](const std::string& line) { said.push_back(line); });
    recorder.note(prefill, 1);
    recorder.note(prefill, 1);
    recorder.note(decode, 1);
  }
  REQUIRE(said.size() == 1);
  CHECK(said.front() == "calls are not recorded: /nowhere/at/all/calls.jsonl: No such file or directory");
  // A disk without room, of a size that opening does not tell.
  said.clear();
  {
    Recorder recorder("/dev/full", [&](const std::string& line) { said.push_back(line); });
    recorder.note(prefill, 1);
    recorder.note(decode, 1);
  }
  REQUIRE(said.size() == 1);
  CHECK(said.front() == "calls are not recorded: /dev/full: No space left on device");
}

TEST_CASE("%p in the name is the process's id, and the environment names the file") {
  const RecordFolder folder;
  const auto pid = std::to_string(::getpid());
  { const Recorder recorder(folder.path() / "calls.%p.of-%p.jsonl"); }
  CHECK(fs::exists(folder.path() / ("calls." + pid + ".of-" + pid + ".jsonl")));
  const EnvironmentVariable variable("ATTUNE_RECORD", "/tmp/%p.jsonl");
  CHECK(default_record_path() == "/tmp/%p.jsonl");
  variable.set({});
  CHECK(default_record_path().empty());
  CHECK(open_recorder({}) == nullptr);
}

TEST_CASE("a line that is no problem is named by its place, and the last one is left out until it is whole") {
  const auto problems = [](const std::string& text) {
    std::string lines;
    for (const Diagnostic& problem : parse_record(text, "calls.jsonl").problems) lines += problem.text() + "\n";
    return lines;
  };
  const std::string good = record_line({.problem = merge, .calls = 1});
  CHECK(problems(good + "\n" + good).empty());
  CHECK(parse_record(good + good.substr(0, 20), "calls.jsonl").value.size() == 1);
  CHECK(problems(good + "nonsense\n") ==
        "calls.jsonl:2:1: the line is no JSON object, or has a number beyond every range; as "
        "{\"operation\":\"prefill\",...,\"calls\":1}\n");
  CHECK(problems("{\"operation\":\"atend\"}\n") == fmt::format("calls.jsonl:1:1: operation is none that is known; {}\n",
                                                               operations_text(each_operation(AnyProblem()))));
  const std::string wrong =
      problems(R"({"operation":"merge_states","dtype":"fp8","batch":2.5,"seqlen":-3,"heads":[1],"hedas":1,"calls":-1})"
               "\n");
  for (const char* part :
       {"dtype of the line is \"fp8\"; fp16 or bf16", "batch of the line is 2.5; a whole number",
        "heads of the line is [1]; a whole number", "the line has no head_dim", "calls is missing or",
        "the line has a key \"hedas\", which is unknown; did you mean heads?"}) {
    CAPTURE(part);
    CHECK(wrong.find(std::string("calls.jsonl:1:1: ") + part) != std::string::npos);
  }
  CHECK(problems(R"({"operation":"merge_states","dtype":"fp16","batch":1,"seqlen":1,"heads":1,"head_dim":7,"calls":1})"
                 "\n") == "calls.jsonl:1:1: head_dim is 7; it must be a multiple of 8 from 8 to 256\n");
  const std::string brackets(200000, '[');
  CHECK(problems(R"({"operation":)" + brackets + std::string(brackets.size(), ']') + R"(,"calls":1})" + "\n")
            .starts_with("calls.jsonl:1:1: "));
}

TEST_CASE("a number of a record that wraps, or that no type holds, is refused with its place") {
  const auto problem_of = [](const std::string& field, const std::string& calls) {
    const auto read = parse_record(R"({"operation":"store_kv","dtype":"bf16","batch":1,"tokens":1,"heads_kv":1,)"
                                   R"("head_dim":64,"page_size":1,"pages":1,"table_width":1,)" +
                                       field + R"("calls":)" + calls + "}\n",
                                   "r");
    return read.problems.empty() ? "" : read.problems.front().text();
  };
  CHECK(problem_of("", "1").empty());
  CHECK(problem_of(R"("rotations":18446744073709551615,)", "1")
            .starts_with("r:1:1: rotations of the line is 18446744073709551615;"));
  CHECK(problem_of(R"("rotations":4294967297,)", "1").starts_with("r:1:1: rotations of the line is 4294967297;"));
  CHECK(problem_of("", "18446744073709551615").starts_with("r:1:1: calls is missing or no number of calls"));
  CHECK(problem_of("", "9223372036854775807").starts_with("r:1:1: calls is missing or no number of calls"));
  CHECK(problem_of("", "1e400").starts_with("r:1:1: the line is no JSON object, or has a number beyond"));
  CHECK(is_record(R"({"operation":"store_kv","calls":1e400})"));
}

TEST_CASE("calls of records add up to no more than there can be") {
  constexpr long long most = std::numeric_limits<long long>::max();
  const Recorded one{.problem = CheckProblem{}, .calls = most - 1};
  const std::vector<Recorded> sum = merged({one, one, one});
  REQUIRE(sum.size() == 1);
  CHECK(sum.front().calls == most);
}

TEST_CASE("of a record of bad lines no more problems are kept than a person reads") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "[]\n";
  const auto read = parse_record(text, "r");
  CHECK(read.problems.size() == 201);
  CHECK(read.problems.back().text() == "r:201:1: there are more than 200 problems; the first ones come first");
}
