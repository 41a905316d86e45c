// The tuner's laboratory over the fake driver, whose kernels compute nothing: what it launches, and that it notices.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/cli/tune_bench.hpp"
#include "runtime/cli/tune_progress.hpp"
#include "tests/cli/tool.hpp"
#include "tests/fake_driver/fake_cuda.hpp"

using namespace attune;
using namespace attune::testing;

namespace {

FakeCuda& fake_cuda() {
  static void* const library = dlopen(ATTUNE_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return *reinterpret_cast<FakeCudaState*>(dlsym(library, "fake_cuda_state"))();
}

bool has_nvrtc() {
  const cli::Found<Compiler> compiler = cli::find_compiler();
  if (!compiler) MESSAGE("not tested, no NVRTC here: ", compiler.problem);
  return static_cast<bool>(compiler);
}

/// Builds a problem's heuristic choice and a sibling, opens a bench and times both.
void try_problem(const tune::AnyProblem& problem, const Variant& heuristic, const Variant& other,
                 int launches_of_each) {
  FakeCuda& fake = fake_cuda();
  cli::GpuLab lab({0}, 1);
  const std::array candidates{heuristic, other};
  for (const Variant& variant : candidates) {
    const tune::BuildReport report = lab.build(variant);
    CHECK(report.error.empty());
    CHECK(report.registers > 0);
  }
  const auto bench = lab.bench(0);
  CHECK(contains(bench->check(heuristic), "never written"));
  bench->open(problem, candidates);
  fake.launches = 0;
  const std::vector<double> seconds = bench->time(0, std::array{1, 0});
  REQUIRE(seconds.size() == 2);
  CHECK(seconds[0] == doctest::Approx(1.5e-3));
  CHECK(fake.launches == 3 * launches_of_each);  // one of them is not timed
  CHECK(contains(bench->compare(1, 0), "rows differ"));
}

}  // namespace

TEST_CASE("prefill: builds, loads, launches and finds what was never written") {
  fake_cuda().reset();
  if (!has_nvrtc()) return;
  const Problem problem =
      tuned_problem(Problem{.heads_q = 2, .heads_kv = 2, .seqlen_q = 200, .seqlen_k = 200, .head_dim = 64});
  const cli::GpuLab lab({0}, 1);
  const Variant heuristic = choose_own(problem, lab.device()).variant;
  Variant other = heuristic;
  other.B_c = 64;
  try_problem(problem, heuristic, other, 1);
}

TEST_CASE("decode: launches with the kernel that merges its parts") {
  fake_cuda().reset();
  if (!has_nvrtc()) return;
  const DecodeProblem problem = tuned_problem(
      DecodeProblem{.heads_q = 8, .heads_kv = 2, .head_dim = 64, .max_seqlen_k = 3000, .equal_lengths = true});
  const cli::GpuLab lab({0}, 1);
  const Variant heuristic = choose_own(problem, lab.device()).variant;
  Variant other = heuristic;
  other.stages = 3;
  REQUIRE(plan(heuristic, problem, lab.device()).combines());
  try_problem(problem, heuristic, other, 2);
}

TEST_CASE("gradients: launches with the kernels that go with each candidate, which differ") {
  fake_cuda().reset();
  fake_cuda().capability = 80;
  if (!has_nvrtc()) return;
  const BackwardProblem problem = tuned_problem(BackwardProblem{
      .heads_q = 2, .heads_kv = 2, .seqlen_q = 200, .seqlen_k = 200, .head_dim = 32, .any_order = true});
  const cli::GpuLab lab({0}, 1);
  const Variant heuristic = choose_own(problem, lab.device()).variant;
  Variant other = heuristic;
  other.deterministic = 1;
  REQUIRE(companions_of(heuristic, lab.device()) != companions_of(other, lab.device()));
  try_problem(problem, heuristic, other, 3);
}

TEST_CASE("a kernel that the compiler refuses is a report, not an end") {
  fake_cuda().reset();
  if (!has_nvrtc()) return;
  cli::GpuLab lab({0}, 1);
  Variant impossible = families()[prefill_sm80].defaults;
  impossible.B_r = 16 * 7;
  impossible.warps = 4;  // does not divide it
  CHECK_FALSE(lab.build(impossible).error.empty());
}

TEST_CASE("GPUs that are not there are named") {
  fake_cuda().reset();
  if (!has_nvrtc()) return;
  try {
    const cli::GpuLab lab({0, 99}, 1);
    FAIL("there is no GPU 99");
  } catch (const Error& error) {
    CHECK(contains(error.what(), "there is no GPU 99"));
  }
}

TEST_CASE("a run on a GPU whose kernels are wrong writes no row, remembers, and says so with exit 1") {
  if (!has_nvrtc()) return;
  const TemporaryFolder folder;
  const std::string spec = folder.file("s.yaml", "template: prefill_sm80\ntune: {stages: [1, 2]}\n");
  const std::string problems = folder.file("p.yaml", "- {head_dim: 16, seqlen_q: 64}\n");
  const std::string out = (folder.path() / "t.yaml").string();
  for (int run = 0; run < 2; ++run) {
    const ToolResult result =
        attune_tool_on_fake_gpu({"tune", spec, "--problems", problems, "--out", out, "--budget", "60"});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.out, "wrong on bf16 d64"));
    CHECK(contains(result.out, "no result for bf16 d16 b1 hq16 hk16 lq64 lk64: the heuristic's choice was rejected"));
    CHECK_FALSE(std::filesystem::exists(out));
    CHECK(std::filesystem::exists(folder.path() / "t.jsonl"));
  }
}

TEST_CASE("the first Ctrl-C is noted and ends nothing, nor does one that comes with it") {
  const cli::InterruptWatch watch;
  CHECK_FALSE(watch.interrupted());
  ::kill(::getpid(), SIGINT);
  for (int i = 0; i < 100 && !watch.interrupted(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(watch.interrupted());
  ::kill(::getpid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}
