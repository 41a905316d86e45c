// Ragged batches of which decode has the sequences of few queries, and prefill the others.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/emulator/case.hpp"
#include "tests/harness/mixed_batch.hpp"

namespace attune::emulator_tests {
namespace {

const Device h200 = device_of(*find_arch("sm_90"));
const Device a100 = device_of(*find_arch("sm_80"));

/// None, one, few, as many as decode takes with two heads a K/V head, one more, and many; some with no key at all. The
/// sixth has so many keys that they are parted.
const testing::MixedBatch batch{.queries = {1, 0, 300, 8, 9, 1, 2, 0, 7, 1},
                                .keys = {130, 40, 300, 8, 60, 2900, 1, 0, 0, 700}};
constexpr int most_queries = 8;

Problem problem_of(bool causal) {
  return {.dtype = Dtype::bf16, .heads_q = 4, .heads_kv = 2, .head_dim = 64, .causal = causal};
}

/// Whether a kernel has written a head's row of O.
class Written {
 public:
  Written(const attune_prefill_args& args, int row, int head)
      : place_(static_cast<const std::uint16_t*>(args.o.data) + row * args.o.stride_seq + head * args.o.stride_head),
        before_(*place_) {}

  [[nodiscard]] bool is() const { return *place_ != before_; }

 private:
  const std::uint16_t* place_;
  std::uint16_t before_;
};

/// Keeps who writes what: prefill first, then those behind it on the memory as it was.
class ApartExecutor : public EmulatorExecutor {
 public:
  ApartExecutor(Memory& memory, const attune_prefill_args& args) : memory_(memory), args_(args) {}

  void run(const Plan& plan, void* stream) override {
    steps = plan.size();
    const Memory before = memory_;
    std::vector<Written> rows;
    for (int row = 0; row < args_.total_q; ++row) {
      for (int head = 0; head < args_.heads_q; ++head) rows.emplace_back(args_, row, head);
    }
    for (std::size_t i = 0; i < plan.size(); ++i) {
      Plan alone;
      alone.add(plan[i]);
      EmulatorExecutor::run(alone, stream);
      if (i == 0) {
        for (const Written& row : rows) by_prefill.push_back(row.is());
        std::ranges::copy(before, memory_.begin());
      }
    }
    for (const Written& row : rows) by_decode.push_back(row.is());
  }

  std::size_t steps = 0;
  std::vector<bool> by_prefill;
  std::vector<bool> by_decode;

 private:
  Memory& memory_;
  const attune_prefill_args& args_;
};

/// The kernels of a batch, and room for the parts of its short sequences.
struct Served {
  const EmulatedKernel* prefill;
  const EmulatedKernel* decode;
  FixedKernels kernels;
  std::vector<float> workspace;

  Served(HostKernels& kernels_of, const Problem& problem, const Device& device)
      : prefill(&kernels_of[choose_own(problem, device).variant]) {
    const std::optional<DecodeProblem> few = short_sequences(problem);
    REQUIRE(few);
    REQUIRE(few->seqlen_q == most_queries);
    decode = &kernels_of[choose_own(*few, device).variant];
    kernels = {prefill, decode, &kernels_of[choose_own(few->merge(), device).variant]};
    const DecodePlan planned = plan(decode->variant, *few, decode->device);
    REQUIRE(planned.combines());
    workspace.assign(planned.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  }

  attune_prefill_args args(const testing::CallImage& image, Memory& memory) {
    attune_prefill_args result = image.args(memory.data());
    result.workspace = workspace.data();
    result.workspace_bytes = workspace.size() * sizeof(float);
    return result;
  }
};

void check_served(HostKernels& kernels, const testing::CallImage& image, const Device& device) {
  CAPTURE(image.problem().text());
  Served served(kernels, image.problem(), device);
  CAPTURE(served.prefill->variant.name());
  Memory memory = image.memory();
  const attune_prefill_args args = served.args(image, memory);
  const emulator::Report report = run_emulated(served.kernels, args, image.problem(), {.seed = 3});
  REQUIRE_MESSAGE(report.ok(), report.fault);
  image.check(image.outputs(std::move(memory)), args.softmax_scale);
}

}  // namespace

TEST_CASE("sequences of few queries among others agree with the reference, contiguous, in pages, masked or capped") {
  HostKernels kernels;
  check_served(kernels, batch.contiguous(problem_of(true)), h200);
  check_served(kernels, batch.contiguous(problem_of(false)), a100);
  check_served(kernels, batch.in_pages(problem_of(true), 64), a100);
  check_served(kernels, batch.in_pages(problem_of(true), 16), h200);
  Problem capped = problem_of(false);
  capped.window_left = 100, capped.window_right = 5, capped.softcap = 2;
  check_served(kernels, batch.in_pages(capped, 5), h200);
  Sequences used;
  used.seqused_q = {1, 0, 260, 8, 5, 0, 2, 0, 3, 1};
  used.seqused_k = {100, 30, 300, 8, 60, 2700, 1, 0, 0, 9};
  check_served(kernels, batch.contiguous(problem_of(true), used), h200);
}

TEST_CASE("each sequence is one kernel's: decode's up to its most queries, prefill's from one more on") {
  HostKernels kernels;
  const std::vector<std::int32_t> used{1, 0, 260, 8, 8, 0, 2, 0, 3, 1};  // of the fifth no more than decode takes
  for (const std::vector<std::int32_t>& counted : {batch.queries, used}) {
    for (const Device& device : {h200, a100}) {
      Sequences sequences;
      if (counted != batch.queries) sequences.seqused_q = counted;
      const testing::CallImage image = batch.contiguous(problem_of(true), sequences);
      Served served(kernels, image.problem(), device);
      Memory memory = image.memory();
      const attune_prefill_args args = served.args(image, memory);
      ApartExecutor executor(memory, args);
      run(args, image.problem(), Backend{served.kernels, executor, nullptr});
      REQUIRE(executor.report().ok());
      CHECK(executor.steps == 3);
      std::size_t row = 0;
      for (std::size_t i = 0; i < batch.queries.size(); ++i) {
        CAPTURE(i);
        for (int place = 0; place < batch.queries[i] * args.heads_q; ++place, ++row) {
          const bool counts = place < counted[i] * args.heads_q;
          CHECK(executor.by_prefill[row] == (counts && counted[i] > most_queries));
          CHECK(executor.by_decode[row] == (counts && counted[i] <= most_queries));
        }
      }
    }
  }
}

TEST_CASE("without room for parts, or without a kernel of decode, prefill has all sequences") {
  HostKernels kernels;
  const testing::CallImage image = batch.contiguous(problem_of(true));
  Served served(kernels, image.problem(), h200);
  for (const bool has_room : {false, true}) {
    Memory memory = image.memory();
    attune_prefill_args args = served.args(image, memory);
    if (!has_room) --args.workspace_bytes;
    ApartExecutor executor(memory, args);
    FixedKernels alone{served.prefill};
    run(args, image.problem(), Backend{has_room ? alone : served.kernels, executor, nullptr});
    CHECK(executor.steps == 1);
    CHECK(std::ranges::all_of(executor.by_prefill, [](bool is) { return is; }));
  }
}

TEST_CASE("a frozen registry without a kernel of decode serves a batch as a whole, one that compiles in two parts") {
  const ScratchFolder folder;
  const testing::CallImage image = batch.contiguous(problem_of(true));
  HostKernels cached(folder.path());
  cached[choose_own(image.problem(), emulator::device()).variant];
  for (const attune_compile_policy policy : {ATTUNE_COMPILE_FROZEN, ATTUNE_COMPILE_EXACT}) {
    Registry registry({.device = ATTUNE_DEVICE_EMULATOR,
                       .policy = policy,
                       .cache_root = folder.path(),
                       .ready = ReadyKernels(std::span<const ReadyKernel>{})});
    Memory memory = image.memory();
    attune_prefill_args args = image.args(memory.data());
    registry.prepare(args);
    args.workspace_bytes = registry.workspace_bytes(args);
    CHECK((args.workspace_bytes > 0) == (policy != ATTUNE_COMPILE_FROZEN));
    std::vector<float> workspace(args.workspace_bytes / sizeof(float));
    args.workspace = workspace.empty() ? nullptr : workspace.data();
    registry.run(args, nullptr);
    CHECK(registry.counters().compiles == (policy == ATTUNE_COMPILE_FROZEN ? 0U : 2U));
    CHECK(registry.counters().failures == 0);  // a kernel that the call does without is none
    image.check(image.outputs(std::move(memory)), args.softmax_scale);
  }
}

TEST_CASE("a call that brings no memory for parts has no kernel of decode compiled") {
  const ScratchFolder folder;
  const testing::CallImage image = batch.contiguous(problem_of(true));
  HostKernels cached(folder.path());
  cached[choose_own(image.problem(), emulator::device()).variant];
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR,
                     .policy = ATTUNE_COMPILE_EXACT,
                     .cache_root = folder.path(),
                     .ready = ReadyKernels(std::span<const ReadyKernel>{})});
  Memory memory = image.memory();
  const attune_prefill_args args = image.args(memory.data());
  registry.run(args, nullptr);
  CHECK(registry.counters().compiles == 0);
  image.check(image.outputs(std::move(memory)), args.softmax_scale);
}

}  // namespace attune::emulator_tests
