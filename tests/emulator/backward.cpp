// The backward pass on the emulator against its float64 reference.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/registry/registry.hpp"
#include "tests/harness/backward_image.hpp"

namespace attune::emulator_tests {

using testing::BackwardCase;
using testing::BackwardImage;
using testing::Layout;

namespace {

/// The memory that a call leaves.
Memory run(Registry& registry, const BackwardImage& image) {
  Memory memory = image.memory();
  registry.run(image.args(memory.data()), nullptr);
  return memory;
}

void check(Registry& registry, const BackwardCase& one, std::uint64_t seed) {
  const BackwardImage image(one, seed);
  image.check(run(registry, image));
}

/// The place of the first family that computes this.
int index_of(Operation operation) {
  return std::ranges::find(families(), operation, &Family::operation)->defaults.family;
}

BackwardCase dense(int head_dim, int seqlen_q, int seqlen_k, bool causal) {
  BackwardCase one;
  one.prefill.problem = {.batch = 1,
                         .heads_q = 2,
                         .heads_kv = 1,
                         .seqlen_q = seqlen_q,
                         .seqlen_k = seqlen_k,
                         .head_dim = head_dim,
                         .causal = causal};
  one.prefill.layout = Layout::gaps;
  return one;
}

}  // namespace

TEST_CASE("gradients of every head_dim agree with the reference, whatever the order of sums") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const int head_dim : {32, 64, 96, 128, 192, 256}) {
    for (const bool any_order : {false, true}) {
      BackwardCase one = dense(head_dim, 150, 170, head_dim % 64 == 0);
      one.any_order = any_order;
      one.has_dlse = any_order;
      check(registry, one, static_cast<std::uint64_t>(head_dim));
    }
  }
}

TEST_CASE(
    "random problems with windows, soft caps, ragged batches, grouped heads and poison agree with the reference") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(61);
  for (int i = 0; i < 24; ++i) check(registry, testing::random_backward_case(random, 150), random());
}

TEST_CASE("kernels for compute capability 9.0 of every head_dim, and those that they pad, agree with the reference") {
  struct Setting {
    int head_dim;
    int head_dim_v;
    int window_left;
    int window_right;
    float softcap;
    bool ragged;
    bool any_order;
  };
  constexpr std::array settings{Setting{96, 0, -1, -1, 0, false, false},   Setting{96, 64, 40, 20, 5, true, true},
                                Setting{72, 0, 30, -1, 0, true, false},    Setting{192, 0, -1, -1, 0, false, true},
                                Setting{192, 128, 50, 10, 0, true, false}, Setting{136, 0, 0, 70, 5, false, true},
                                Setting{256, 0, -1, -1, 0, false, false},  Setting{256, 0, 60, 30, 5, true, true},
                                Setting{200, 248, -1, 20, 0, true, false}};
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  std::uint64_t seed = 20;
  for (const Setting& setting : settings) {
    BackwardCase one = dense(setting.head_dim, 210, 230, setting.window_left < 0 && setting.window_right < 0);
    one.head_dim_v = setting.head_dim_v;
    one.any_order = setting.any_order;
    one.has_dlse = setting.ragged;
    Problem& problem = one.prefill.problem;
    problem.heads_q = 4;
    problem.heads_kv = 2;
    problem.window_left = setting.window_left;
    problem.window_right = setting.window_right;
    problem.softcap = setting.softcap;
    if (setting.ragged) {
      problem.ragged = true;
      problem.batch = 3;
      problem.total_q = 310;
      problem.total_k = 300;
      one.prefill.sequences.cu_seqlens_q = {0, 210, 210, 310};
      one.prefill.sequences.cu_seqlens_k = {0, 69, 70, 300};
    }
    const BackwardProblem whole = one.problem();
    const OwnChoice own = choose_own(whole, emulator::device());
    CHECK(own.variant.family == backward_sm90);
    check(registry, one, ++seed);
  }
}

TEST_CASE("where queries see one key alone, what is left of their gradients is what fp32 leaves of terms that cancel") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int head_dim : {64, 256}) {
      for (const bool any_order : {false, true}) {
        BackwardCase one = dense(head_dim, 90, 100, true);
        one.prefill.problem.dtype = dtype;
        one.prefill.problem.window_left = 0;
        one.any_order = any_order;
        check(registry, one, 9);
      }
    }
  }
}

TEST_CASE("gradients have the same bits in every schedule of the emulator") {
  for (const int head_dim : {64, 96, 192}) {
    BackwardCase one = dense(head_dim, 200, 180, true);
    one.prefill.problem.heads_q = 4;
    one.prefill.problem.heads_kv = 2;
    const BackwardImage image(one, 8);
    std::vector<std::array<std::vector<std::uint16_t>, 3>> found;
    for (const std::uint64_t seed : {1, 2, 3}) {
      Registry registry({.device = ATTUNE_DEVICE_EMULATOR, .emulator_seed = seed});
      found.push_back(image.gradients(run(registry, image)));
    }
    const bool same_bits = found[0] == found[1] && found[0] == found[2];
    CHECK(same_bits);
  }
}

TEST_CASE("where many blocks of keys add to a query's sums in turn, large tiles agree with the reference") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    for (const int left : {-1, 150}) {
      BackwardCase one = dense(head_dim, 390, 520, left < 0);
      one.prefill.problem.window_left = left;
      one.prefill.problem.window_right = left < 0 ? -1 : 70;
      check(registry, one, 5);
    }
  }
}

TEST_CASE("the words by which blocks take turns are zeros behind a call, so that the next of its number finds none") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  BackwardCase one = dense(64, 512, 512, true);
  one.prefill.problem.heads_kv = 2;
  const BackwardImage image(one, 2);
  Memory memory = image.memory();
  const attune_backward_args args = image.args(memory.data());
  registry.run(args, nullptr);
  constexpr std::size_t rows = std::size_t{2} * 512;
  constexpr std::size_t blocks = 4;  // of 128 queries of a head
  const auto* const words = static_cast<const std::byte*>(args.workspace) + rows * (8 + 4 * 64);
  for (std::size_t i = 0; i < 2 * blocks; ++i) {
    std::uint64_t word = 1;
    std::memcpy(&word, words + i * sizeof(word), sizeof(word));
    CAPTURE(i);
    if (i % blocks != 0) CHECK(word == 0);  // the first sees the keys of one block alone
  }
}

TEST_CASE(
    "query heads that share keys are in parts where tiles of keys are few, and their gradients are the reference's") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  const Device device = emulator::device();
  struct Setting {
    int head_dim;
    int batch;
    int heads_q;
    int heads_kv;
    bool causal;
    int parts;  // of the 132 multiprocessors
  };
  constexpr std::array settings{Setting{64, 2, 6, 1, true, 6},    Setting{128, 1, 8, 2, false, 4},
                                Setting{96, 1, 3, 1, true, 3},    Setting{256, 1, 4, 1, true, 4},
                                Setting{64, 120, 4, 1, false, 2}, Setting{64, 120, 6, 2, false, 1}};
  for (const Setting& setting : settings) {
    for (const bool any_order : {false, true}) {
      const bool small = setting.batch > 100;
      BackwardCase one = dense(setting.head_dim, small ? 9 : 150, small ? 20 : 170, setting.causal);
      one.any_order = any_order;
      one.prefill.problem.batch = setting.batch;
      one.prefill.problem.heads_q = setting.heads_q;
      one.prefill.problem.heads_kv = setting.heads_kv;
      const BackwardProblem whole = one.problem();
      const Variant own = choose_own(whole, device).variant;
      CAPTURE(own.name());
      CHECK(workspace_of(own, whole, device).head_parts == setting.parts);
      check(registry, one, 14);
    }
  }
}

TEST_CASE("the words of parts are zeros behind a call") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  BackwardCase one = dense(64, 70, 200, false);
  one.any_order = true;
  const BackwardImage image(one, 2);
  const BackwardProblem whole = one.problem();
  const BackwardWorkspace workspace =
      workspace_of(choose_own(whole, emulator::device()).variant, whole, emulator::device());
  REQUIRE(workspace.key_turn_bytes > 0);
  Memory memory = image.memory();
  const attune_backward_args args = image.args(memory.data());
  registry.run(args, nullptr);
  std::vector<std::uint64_t> words(workspace.key_turn_bytes / sizeof(std::uint64_t), 1);
  std::memcpy(words.data(), static_cast<const std::byte*>(args.workspace) + workspace.key_turns_offset(),
              workspace.key_turn_bytes);
  CHECK(std::ranges::count(words, 0U) == std::ssize(words));
}

TEST_CASE("the words by which blocks add in their order are zeros behind a call, each half's of a step that has two") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const int head_dim : {128, 256}) {
    CAPTURE(head_dim);
    const BackwardCase one = dense(head_dim, 128, 200, false);
    const BackwardImage image(one, 2);
    const BackwardProblem whole = one.problem();
    const BackwardWorkspace workspace =
        workspace_of(choose_own(whole, emulator::device()).variant, whole, emulator::device());
    const std::size_t steps = whole.heads_q * whole.batch * 2;  // of 64 queries
    REQUIRE(workspace.turn_bytes == steps * (head_dim > 128 ? 2 : 1) * sizeof(std::uint64_t));
    Memory memory = image.memory();
    const attune_backward_args args = image.args(memory.data());
    registry.run(args, nullptr);
    std::vector<std::uint64_t> words(workspace.turn_bytes / sizeof(std::uint64_t), 1);
    std::memcpy(words.data(),
                static_cast<const std::byte*>(args.workspace) + workspace.key_turns_offset() + workspace.key_turn_bytes,
                workspace.turn_bytes);
    CHECK(std::ranges::count(words, 0U) == std::ssize(words));
  }
}

TEST_CASE("without queries the gradients of keys are zeros, and without keys those of queries") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const bool any_order : {false, true}) {
    for (const auto& [seqlen_q, seqlen_k] : {std::pair{0, 70}, {70, 0}, {1, 1}}) {
      BackwardCase one = dense(64, seqlen_q, seqlen_k, false);
      one.any_order = any_order;
      check(registry, one, 4);
    }
  }
}

TEST_CASE("gradients of rows that no sequence has or uses become zeros, and those of sequences are the reference's") {
  struct Setting {
    int head_dim;
    int head_dim_v;
    int heads_q;
    int heads_kv;
    bool any_order;
  };
  constexpr std::array settings{Setting{64, 0, 2, 2, false}, Setting{64, 0, 6, 2, true}, Setting{192, 64, 4, 1, false},
                                Setting{40, 200, 2, 1, true}};
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const Setting& setting : settings) {
    BackwardCase one = testing::far_apart_case(setting.head_dim, setting.head_dim_v, setting.heads_q, setting.heads_kv);
    one.any_order = setting.any_order;
    check(registry, one, 30);
    const BackwardImage image(one, 31);
    const BackwardProblem whole = image.problem();
    HostKernels kernels;
    FixedKernels with_dq_kernel{&kernels[default_variant(index_of(Operation::backward), whole.ask().need, 1 << 20)]};
    for (const Operation part : {Operation::backward_rows, Operation::backward_queries, Operation::backward_convert}) {
      with_dq_kernel.add(kernels[default_variant(index_of(part), whole.ask_of(part).need, 1 << 20)]);
    }
    Memory memory = image.memory();
    CHECK(run_emulated(with_dq_kernel, image.args(memory.data()), whole).fault.empty());
    image.check(memory);
  }
}

TEST_CASE("gradients become zeros where the sequences of a ragged batch are empty, whatever the longest may have") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const auto& [total_q, total_k] : {std::pair{9, 11}, {0, 300}, {300, 0}}) {
    for (const int longest : {0, 20}) {
      BackwardCase one = dense(64, longest, longest, false);
      Problem& problem = one.prefill.problem;
      problem.ragged = true;
      problem.batch = 2;
      problem.total_q = total_q;
      problem.total_k = total_k;
      one.prefill.sequences.cu_seqlens_q = one.prefill.sequences.cu_seqlens_k = {0, 0, 0};
      check(registry, one, 32);
    }
  }
}

TEST_CASE("keys that no query sees have zeros in kernels of one stage, too") {
  for (const int stages : {1, 2}) {
    BackwardCase one = dense(64, 40, 200, false);
    one.prefill.problem.window_left = 10;
    one.prefill.problem.window_right = 5;
    const BackwardImage image(one, 12);
    const BackwardProblem problem = image.problem();
    HostKernels kernels;
    Variant keys = default_variant(index_of(Operation::backward), problem.ask().need, 1 << 20);
    keys.stages = stages;
    Memory memory = image.memory();
    FixedKernels fixed{&kernels[keys]};
    for (const Operation part : {Operation::backward_rows, Operation::backward_queries}) {
      const Need need = problem.ask_of(part).need;
      fixed.add(kernels[default_variant(index_of(part), need, 1 << 20)]);
    }
    CHECK(run_emulated(fixed, image.args(memory.data()), problem).fault.empty());
    image.check(memory);
  }
}

TEST_CASE("scores far apart, and many rows that see no key") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  for (const bool any_order : {false, true}) {
    BackwardCase one = dense(64, 150, 40, true);
    one.any_order = any_order;
    one.sharpness = 30;
    check(registry, one, 6);
  }
}

TEST_CASE("wild lengths of a ragged batch lead to no access outside the tensors of a backward call") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  Random random(71);
  for (int i = 0; i < 12; ++i) {
    BackwardCase one = dense(64, 60, 60, i % 2 == 0);
    one.any_order = i % 3 == 0;
    Problem& problem = one.prefill.problem;
    problem.ragged = true;
    problem.batch = 4;
    problem.total_q = problem.total_k = 150;
    one.prefill.sequences.cu_seqlens_q = one.prefill.sequences.cu_seqlens_k = {0, 50, 60, 90, 150};
    const BackwardImage image(one, 3);
    Memory memory = image.memory();
    attune_backward_args args = image.args(memory.data());
    Sequences told = one.prefill.sequences;
    told.seqused_q = told.seqused_k = {50, 10, 30, 60};
    for (auto* array : {&told.cu_seqlens_q, &told.cu_seqlens_k, &told.seqused_q, &told.seqused_k}) {
      testing::make_wild(random, *array, 150);
    }
    args.cu_seqlens_q = told.cu_seqlens_q.data();
    args.cu_seqlens_k = told.cu_seqlens_k.data();
    args.seqused_q = told.seqused_q.data();
    args.seqused_k = told.seqused_k.data();
    // Sequences that overlap are written by several blocks, which is all that may go wrong.
    try {
      registry.run(args, nullptr);
    } catch (const Error& error) {
      const std::string what = error.what();
      CHECK_MESSAGE(what.find("race: writes element") != std::string::npos, what);
    }
  }
}

TEST_CASE("kernels that give dQ by themselves need no sums in the workspace") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  const BackwardImage image(dense(256, 40, 0, false), 3);  // tensor maps describe no tensor without keys
  Memory memory = image.memory();
  CHECK(registry.workspace_bytes(image.args(memory.data())) == 2 * 128 * 8);
}

TEST_CASE("a workspace that is missing or too small is named") {
  Registry registry({.device = ATTUNE_DEVICE_EMULATOR});
  BackwardCase one = dense(64, 40, 40, false);
  one.prefill.problem.heads_kv = 2;
  const BackwardImage image(one, 3);
  Memory memory = image.memory();
  attune_backward_args args = image.args(memory.data());
  CHECK(registry.workspace_bytes(args) == 2 * 128 * (8 + 4 * 64) + 2 * 8);
  args.any_order = 1;
  CHECK(registry.workspace_bytes(args) == 2 * 128 * (8 + 4 * 64));
  args.workspace_bytes = 2 * 128 * 8;
  CHECK_THROWS_WITH(registry.run(args, nullptr),
                    doctest::Contains("workspace_bytes is 2048; it must be at least 67584"));
  args.workspace = static_cast<std::byte*>(args.workspace) + 8;
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("it must be a multiple of 16 bytes"));
  args.workspace = nullptr;
  CHECK_THROWS_WITH(registry.run(args, nullptr), doctest::Contains("workspace is null; it must point to 67584 bytes"));
  CHECK((memory == image.memory()));
}

}  // namespace attune::emulator_tests
