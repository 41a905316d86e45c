// The tuner over a laboratory without hardware: what it builds, measures, remembers and decides.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "generator/spec.hpp"
#include "runtime/tune/tables.hpp"
#include "runtime/tune/tuner.hpp"
#include "tests/unit/fake_lab.hpp"

namespace {

using namespace attune;
using tune::AnyProblem;
using tune_tests::FakeLab;

Device h200() {
  Device device = device_of(*find_arch("sm_90"));
  device.name = "NVIDIA H200";
  return device;
}

tune::Identity here() {
  return {.gpu = tuned_gpu(h200()), .driver = "13.0", .compiler = "NVRTC 13.0", .sources = "0123"};
}

const std::vector<Spec>& specs() {
  static const std::vector<Spec> all = [] {
    std::vector<Spec> read;
    read.push_back(parse_spec("template: prefill_sm90\ntune: {B_r: [128, 192], B_c: [64, 96, 128], stages: [2, 3]}\n",
                              "prefill.yaml")
                       .value);
    read.push_back(
        parse_spec("template: decode_sm80\ntune: {B_c: [64, 128], stages: {from: 1, to: 3, step: 1}}\n", "decode.yaml")
            .value);
    read.push_back(
        parse_spec("template: backward_sm90\ntune: {B_c: [64, 128], deterministic: [false, true]}\n", "backward.yaml")
            .value);
    return read;
  }();
  return all;
}

std::vector<AnyProblem> some_problems() {
  std::vector<AnyProblem> problems;
  for (const int seqlen : {512, 1024, 4096}) {
    for (const bool causal : {false, true}) {
      problems.emplace_back(tuned_problem(Problem{.batch = 4,
                                                  .heads_q = 16,
                                                  .heads_kv = 16,
                                                  .seqlen_q = seqlen,
                                                  .seqlen_k = seqlen,
                                                  .head_dim = 128,
                                                  .causal = causal}));
    }
  }
  for (const int seqlen : {4096, 32768}) {
    problems.emplace_back(tuned_problem(DecodeProblem{
        .batch = 2, .heads_q = 32, .heads_kv = 8, .head_dim = 128, .max_seqlen_k = seqlen, .equal_lengths = true}));
  }
  for (const bool any_order : {false, true}) {
    problems.emplace_back(tuned_problem(BackwardProblem{
        .batch = 4, .heads_q = 16, .heads_kv = 16, .seqlen_q = 4096, .seqlen_k = 4096, .any_order = any_order}));
  }
  return problems;
}

std::vector<tune::Task> tasks_of(const std::vector<AnyProblem>& problems) {
  std::vector<tune::Task> tasks;
  for (const AnyProblem& problem : problems) {
    tasks.push_back(
        {problem, tune::candidates_for(problem, h200(), specs()), tune::estimated_seconds(problem, h200())});
  }
  return tasks;
}

tune::TunerRules rules() {
  tune::TunerRules rules;
  rules.budget = 1e6;
  rules.jobs = 3;
  rules.date = "2026-11-22";
  return rules;
}

std::string table_text(const std::vector<tune::Outcome>& outcomes) {
  TunedTable table{.gpu = here().gpu, .rows = {}};
  tune::put_outcomes(table, outcomes);
  return tuned_text(table);
}

TEST_CASE("each problem gets its fastest variant, and each distinct variant is built and checked once") {
  FakeLab lab;
  tune::Journal journal(here());
  const std::vector<tune::Task> tasks = tasks_of(some_problems());
  const tune::TuneResult result = tune::tune(tasks, lab, journal, rules(), {});
  REQUIRE(result.outcomes.size() == tasks.size());
  std::set<std::string> distinct;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const tune::Task& task = tasks[i];
    CAPTURE(text_of(task.problem));
    const auto speed = [&](const Variant& variant) { return tune_tests::usual_speed(task.problem, variant); };
    const Variant best = *std::ranges::min_element(task.candidates.variants, {}, speed);
    const tune::Outcome& outcome = result.outcomes[i];
    CHECK(outcome.row.problem == task.problem);
    CHECK(speed(outcome.row.result.variant) <= speed(best) * 1.01);
    CHECK(outcome.row.result.microseconds == doctest::Approx(speed(outcome.row.result.variant) * 1e6).epsilon(0.02));
    CHECK(outcome.heuristic == task.candidates.variants.front());
    CHECK(outcome.complete);
    for (const Variant& variant : task.candidates.variants) distinct.insert(variant.name());
  }
  CHECK(lab.builds == static_cast<int>(distinct.size()));
  CHECK(lab.checks == static_cast<int>(distinct.size()));
  CHECK(result.undecided.empty());
}

TEST_CASE("a candidate that fails to compile, spills, is wrong or differs at full size is not chosen") {
  for (const std::string kind : {"error", "spill", "wrong", "differs"}) {
    CAPTURE(kind);
    FakeLab lab;
    const std::vector<tune::Task> tasks = tasks_of({some_problems().front()});
    const Variant bad = tasks[0].candidates.variants[2];
    lab.speed = [&](const AnyProblem&, const Variant& variant) { return variant == bad ? 1e-5 : 1e-4; };
    if (kind == "error") {
      lab.compiler = [&](const Variant& variant) { return tune::BuildReport{.error = variant == bad ? "no" : ""}; };
    } else if (kind == "spill") {
      lab.compiler = [&](const Variant& variant) {
        return tune::BuildReport{.error = "", .spill_bytes = variant == bad ? 8 : 0};
      };
    } else {
      (kind == "wrong" ? lab.checker : lab.comparer) = [&](const Variant& variant) {
        return std::string(variant == bad ? "off" : "");
      };
    }
    tune::Journal journal(here());
    const tune::TuneResult result = tune::tune(tasks, lab, journal, rules(), {});
    REQUIRE(result.outcomes.size() == 1);
    CHECK(result.outcomes[0].row.result.variant == result.outcomes[0].heuristic);  // all others are as fast
    REQUIRE(result.rejected.size() == 1);
    CHECK(result.rejected[0].variant == bad.name());
  }
}

TEST_CASE("the heuristic's choice may spill, but without it there is no race") {
  FakeLab lab;
  const std::vector<tune::Task> tasks = tasks_of({some_problems().front()});
  const Variant heuristic = tasks[0].candidates.variants.front();
  lab.compiler = [&](const Variant& variant) {
    return tune::BuildReport{.error = "", .spill_bytes = variant == heuristic ? 64 : 0};
  };
  tune::Journal journal(here());
  CHECK(tune::tune(tasks, lab, journal, rules(), {}).outcomes.size() == 1);

  FakeLab broken;
  broken.checker = [&](const Variant& variant) { return std::string(variant == heuristic ? "off" : ""); };
  tune::Journal other(here());
  const tune::TuneResult result = tune::tune(tasks, broken, other, rules(), {});
  CHECK(result.outcomes.empty());
  REQUIRE(result.undecided.size() == 1);
  CHECK(result.undecided[0].reason == "the heuristic's choice was rejected");
  CHECK(result.rejected.front().variant == heuristic.name());
}

TEST_CASE("a second run with the journal builds, checks and measures nothing") {
  const ScratchFolder folder;
  const std::vector<tune::Task> tasks = tasks_of(some_problems());
  std::string first;
  {
    FakeLab lab;
    tune::Journal journal(folder.path() / "j.jsonl", here());
    first = table_text(tune::tune(tasks, lab, journal, rules(), {}).outcomes);
  }
  FakeLab lab;
  tune::Journal journal(folder.path() / "j.jsonl", here());
  const tune::TuneResult result = tune::tune(tasks, lab, journal, rules(), {});
  CHECK(table_text(result.outcomes) == first);
  CHECK(lab.builds == 0);
  CHECK(lab.checks == 0);
  CHECK(lab.rounds == 0);
}

TEST_CASE("a run that dies anywhere and goes on measures nothing twice and ends with the same table") {
  const std::vector<tune::Task> tasks = tasks_of(some_problems());
  FakeLab whole;
  tune::Journal unbroken(here());
  const std::string expected = table_text(tune::tune(tasks, whole, unbroken, rules(), {}).outcomes);
  for (const int rounds : {0, 1, 57, 130, 333}) {
    CAPTURE(rounds);
    const ScratchFolder folder;
    {
      FakeLab lab;
      lab.rounds_until_death = rounds;
      tune::Journal journal(folder.path() / "j.jsonl", here());
      CHECK_THROWS_AS(tune::tune(tasks, lab, journal, rules(), {}), Error);
    }
    std::ofstream(folder.path() / "j.jsonl", std::ios::app) << R"({"round":"torn","num)";
    FakeLab lab;
    tune::Journal journal(folder.path() / "j.jsonl", here());
    const tune::TuneResult result = tune::tune(tasks, lab, journal, rules(), {});
    CHECK(table_text(result.outcomes) == expected);
    CHECK(lab.rounds + rounds == whole.rounds);
  }
}

TEST_CASE("an interrupted run keeps what is known and goes on later") {
  const ScratchFolder folder;
  const std::vector<tune::Task> tasks = tasks_of(some_problems());
  FakeLab whole;
  tune::Journal unbroken(here());
  const std::string expected = table_text(tune::tune(tasks, whole, unbroken, rules(), {}).outcomes);
  {
    FakeLab lab;
    tune::Journal journal(folder.path() / "j.jsonl", here());
    const tune::TuneResult result =
        tune::tune(tasks, lab, journal, rules(), {.progress = {}, .interrupted = [&] { return lab.rounds >= 250; }});
    CHECK(result.interrupted);
    CHECK(result.outcomes.size() >= 1);
    CHECK(result.outcomes.size() + result.undecided.size() == tasks.size());
    CHECK(lab.rounds <= 251);
  }
  FakeLab lab;
  tune::Journal journal(folder.path() / "j.jsonl", here());
  CHECK(table_text(tune::tune(tasks, lab, journal, rules(), {}).outcomes) == expected);
}

TEST_CASE("a variant that stopped the GPU is known to the next run") {
  const ScratchFolder folder;
  const std::vector<tune::Task> tasks = tasks_of({some_problems().front()});
  const Variant bad = tasks[0].candidates.variants[1];
  {
    FakeLab lab;
    lab.checker = [&](const Variant& variant) -> std::string {
      if (variant == bad) throw Error(ATTUNE_DRIVER_ERROR, "an illegal address");
      return "";
    };
    tune::Journal journal(folder.path() / "j.jsonl", here());
    CHECK_THROWS_AS(tune::tune(tasks, lab, journal, rules(), {}), Error);
  }
  FakeLab lab;
  tune::Journal journal(folder.path() / "j.jsonl", here());
  const tune::TuneResult result = tune::tune(tasks, lab, journal, rules(), {});
  REQUIRE(result.rejected.size() == 1);
  CHECK(result.rejected[0].variant == bad.name());
  CHECK(result.rejected[0].reason == "it failed: an illegal address");
  CHECK(result.outcomes.size() == 1);
}

TEST_CASE("shards and devices change nothing: merged in any order they are the whole") {
  const std::vector<AnyProblem> problems = some_problems();
  FakeLab whole;
  whole.gpu_count = 3;
  tune::Journal unbroken(here());
  const std::string expected = table_text(tune::tune(tasks_of(problems), whole, unbroken, rules(), {}).outcomes);
  const ScratchFolder folder;
  std::vector<std::filesystem::path> files;
  constexpr int shards = 3;
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<AnyProblem> own = problems;
    std::erase_if(own, [&](const AnyProblem& one) { return tune::shard_of(one, shards) != shard; });
    files.push_back(folder.path() / (std::to_string(shard) + (shard == 1 ? ".yaml" : ".jsonl")));
    FakeLab lab;
    tune::Journal journal(folder.path() / (std::to_string(shard) + ".jsonl"), here());
    const tune::TuneResult result = tune::tune(tasks_of(own), lab, journal, rules(), {});
    if (shard == 1) std::ofstream(files.back()) << table_text(result.outcomes);
  }
  std::ranges::sort(files);
  do {
    CHECK(tuned_text(tune::merged(files)) == expected);
  } while (std::ranges::next_permutation(files).found);
}

TEST_CASE("adding a problem moves no other one to another shard and changes no other row") {
  std::vector<AnyProblem> problems = some_problems();
  TunedTable table{.gpu = here().gpu, .rows = {}};
  FakeLab lab;
  tune::Journal journal(here());
  tune::put_outcomes(table, tune::tune(tasks_of(problems), lab, journal, rules(), {}).outcomes);
  const TunedTable before = table;
  Problem added = std::get<Problem>(problems.front());
  added.batch = 3;
  FakeLab other;
  tune::Journal fresh(here());
  tune::put_outcomes(table, tune::tune(tasks_of({added}), other, fresh, rules(), {}).outcomes);
  CHECK(table.rows.size() == before.rows.size() + 1);
  for (const TunedRow& row : before.rows) {
    const TunedRow* now = table.find(row.problem);
    REQUIRE(now != nullptr);
    CHECK(*now == row);
  }
}

TEST_CASE("of rows for one problem the newest counts, whatever the order of the files") {
  const ScratchFolder folder;
  const std::vector<tune::Task> tasks = tasks_of({some_problems().front()});
  std::vector<std::filesystem::path> files;
  for (const std::string date : {"2026-11-20", "2026-11-22", "2026-11-21"}) {
    FakeLab lab;
    files.push_back(folder.path() / (std::string(date) + ".jsonl"));
    tune::Journal journal(files.back(), here());
    tune::TunerRules own = rules();
    own.date = date;
    tune::tune(tasks, lab, journal, own, {});
  }
  CHECK(tune::merged(files).rows.at(0).result.date == "2026-11-22");
  std::swap(files[0], files[1]);
  CHECK(tune::merged(files).rows.at(0).result.date == "2026-11-22");
}

TEST_CASE("the budget is kept, also where compilations take all of it, and long problems get more of it") {
  for (const double budget : {0.05, 0.5, 3.0}) {
    CAPTURE(budget);
    FakeLab lab;
    lab.build_seconds = 0.001;
    tune::Journal journal(here());
    tune::TunerRules own = rules();
    own.budget = budget;
    const std::vector<tune::Task> tasks = tasks_of(some_problems());
    const tune::TuneResult result = tune::tune(tasks, lab, journal, own, {});
    CHECK(lab.now() <= budget + 0.1);
    CHECK(result.outcomes.size() + result.undecided.size() == tasks.size());
  }
  FakeLab slow;
  slow.build_seconds = 100;
  tune::Journal journal(here());
  tune::TunerRules own = rules();
  own.budget = 10;
  const tune::TuneResult result = tune::tune(tasks_of(some_problems()), slow, journal, own, {});
  CHECK(result.outcomes.empty());
  CHECK(slow.builds <= 3);
  CHECK(result.undecided.front().reason == "no time was left");
}

TEST_CASE("progress ends with everything built and finished") {
  FakeLab lab;
  tune::Journal journal(here());
  tune::Status last;
  const std::vector<tune::Task> tasks = tasks_of(some_problems());
  tune::tune(tasks, lab, journal, rules(),
             {.progress = [&](const tune::Status& status) { last = status; }, .interrupted = {}});
  CHECK(last.problems == static_cast<int>(tasks.size()));
  CHECK(last.finished == last.problems);
  CHECK(last.built == last.to_build);
  CHECK_FALSE(last.last.empty());
}

}  // namespace
