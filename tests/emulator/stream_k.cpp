// Tiles that blocks share (stream_k) on the emulator: what one leaves the next one goes on with.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "runtime/choice/choice.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

constexpr std::uint64_t poison = ~std::uint64_t{0};  // NaN as floats

/// One to three warpgroups, Q in shared memory and in registers, residuals, a cap, V with a head_dim of its own, packed
/// heads.
std::vector<Variant> variants() {
  std::vector<Variant> result;
  const auto add = [&](int head_dim, int B_r, int B_c) -> Variant& {
    Variant& variant = result.emplace_back(families()[prefill_sm90].defaults);
    variant.head_dim = head_dim;
    variant.B_r = B_r;
    variant.B_c = B_c;
    variant.stream_k = 1;
    variant.ping_pong = B_r > 64 ? 1 : 0;
    return variant;
  };
  add(64, 64, 64);
  add(64, 192, 128).softcap = 1;
  Variant& shipped = add(128, 128, 128);
  shipped.Q_columns_in_registers = 128;
  shipped.P_residual_keys = 32;
  Variant& own_V = add(192, 128, 112);
  own_V.head_dim_v = 128;
  own_V.Q_columns_in_registers = 192;
  own_V.P_residual_keys = 16;
  own_V.ping_pong = 0;
  Variant& packed = add(64, 128, 48);
  packed.gqa_ratio = 4;
  packed.pack_gqa = 1;
  packed.P_residual_keys = 32;
  packed.Q_columns_in_registers = 48;
  packed.dtype = static_cast<int>(Dtype::fp16);
  return result;
}

struct Run {
  Outputs output;
  float scale = 0;
  std::string fault;
  int shared = 0;                      ///< tiles that are not whole
  std::vector<std::uint64_t> signals;  ///< of the warps, afterwards
};

/// One launch on a GPU of so many multiprocessors, with a workspace or without one.
Run run_on(const EmulatedKernel& kernel, const testing::CallImage& image, int multiprocessors, bool has_workspace,
           int jobs) {
  Memory memory = image.memory();
  attune_prefill_args args = image.args(memory.data());
  Device device = emulator::device();
  device.multiprocessors = multiprocessors;
  const PrefillPlan planned = plan(kernel.variant, image.problem(), device);
  std::vector<std::uint64_t> workspace(planned.workspace_bytes / sizeof(std::uint64_t), poison);
  args.workspace = workspace.data();
  args.workspace_bytes = has_workspace ? planned.workspace_bytes : 0;
  Run run;
  FixedKernels kernels{&kernel};
  run.fault = emulate(kernels, {.seed = static_cast<std::uint64_t>(multiprocessors), .jobs = jobs},
                      [&](const Backend& backend) {
                        attune::run(args, image.problem(), kernel, planned, backend.executor, nullptr);
                      })
                  .fault;
  run.output = image.outputs(std::move(memory));
  run.scale = args.softmax_scale;
  run.shared = planned.shares.tiles - planned.shares.whole_tiles;
  const std::size_t words = workspace.empty() ? 0 : static_cast<std::size_t>(planned.sharing_warps());
  run.signals.assign(workspace.end() - static_cast<std::ptrdiff_t>(words), workspace.end());
  return run;
}

/// A sequence for each length, of one tile, whose pages lie backwards.
testing::CallImage image_in_pages(const Variant& variant, int page_size, const std::vector<std::int32_t>& lengths) {
  constexpr int most_keys = 480;
  Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                  .batch = static_cast<int>(lengths.size()),
                  .heads_q = 1,
                  .heads_kv = 1,
                  .seqlen_q = variant.B_r - 5,
                  .seqlen_k = most_keys,
                  .head_dim = variant.head_dim,
                  .paged = true,
                  .page_size = page_size};
  problem.table_width = (most_keys + page_size - 1) / page_size;
  problem.pages = problem.batch * problem.table_width;
  Sequences sequences;
  sequences.seqused_k = lengths;
  for (int page = problem.pages - 1; page >= 0; --page) sequences.block_table.push_back(page);
  return {problem, testing::Layout::bshd, 3, sequences};
}

}  // namespace

TEST_CASE("tiles that blocks share are to the bit those of one block, and right") {
  HostKernels kernels;
  std::uint64_t seed = 1;
  for (const Variant& variant : variants()) {
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    const EmulatedKernel& kernel = kernels[variant];
    const int ratio = std::max(1, variant.gqa_ratio);
    for (const int heads_kv : {4, 7}) {
      const Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                            .batch = 1,
                            .heads_q = heads_kv * ratio,
                            .heads_kv = heads_kv,
                            .seqlen_q = (variant.B_r - 5) / (variant.pack_gqa != 0 ? ratio : 1),
                            .seqlen_k = 470,
                            .head_dim = variant.head_dim - 8,
                            .head_dim_v = variant.head_dim_v,
                            .softcap = variant.softcap != 0 ? 3.0f : 0.0f};
      CAPTURE(problem.text());
      const testing::CallImage image(problem, testing::Layout::gaps, seed++);
      const Run whole = run_on(kernel, image, 3, false, 1);
      REQUIRE_MESSAGE(whole.fault.empty(), whole.fault);
      image.check(whole.output, whole.scale);
      for (const int jobs : {1, 4}) {
        const Run shared = run_on(kernel, image, 3, true, jobs);
        REQUIRE_MESSAGE(shared.fault.empty(), shared.fault);
        CHECK(shared.shared == 4);
        CHECK(shared.output == whole.output);
        // The next launch may bear the same number, as one of a graph that is replayed does.
        CHECK(std::ranges::all_of(shared.signals, [](std::uint64_t word) { return word == 0 || word == poison; }));
        CHECK(std::ranges::count(shared.signals, 0U) > 0);
      }
    }
  }
}

TEST_CASE("tiles of keys in pages are shared where all sequences of these have as many blocks of keys") {
  HostKernels kernels;
  for (const int page_multiple : {1, 16}) {
    Variant variant = variants()[page_multiple == 1 ? 0 : 2];
    variant.paged = 1;
    variant.page_multiple = page_multiple;
    CAPTURE(variant.name());
    REQUIRE(check(variant).empty());
    const EmulatedKernel& kernel = kernels[variant];
    struct Batch {
      std::vector<std::int32_t> lengths;
      bool shares;
    };
    // Of seven tiles three blocks have one each and share the others, of four all.
    const std::vector<Batch> batches{{{461, 461, 461, 461}, true},
                                     {{3, 0, 470, 399, 400, 399, 399}, true},
                                     {{333, 333, 333, 333, 333, 200, 333}, false},
                                     {{0, 0, 0, 0}, false}};
    for (const auto& [lengths, shares] : batches) {
      CAPTURE(lengths);
      const testing::CallImage image = image_in_pages(variant, page_multiple * 3, lengths);
      const Run whole = run_on(kernel, image, 3, false, 1);
      REQUIRE_MESSAGE(whole.fault.empty(), whole.fault);
      image.check(whole.output, whole.scale);
      const Run shared = run_on(kernel, image, 3, true, 4);
      REQUIRE_MESSAGE(shared.fault.empty(), shared.fault);
      CHECK(shared.output == whole.output);
      CHECK(std::ranges::all_of(shared.signals, [](std::uint64_t word) { return word == 0 || word == poison; }));
      CHECK((std::ranges::count(shared.signals, 0U) > 0) == shares);
    }
  }
}

TEST_CASE("blocks share no tile where the last round is nearly full, or would be short") {
  const Variant variant = variants().front();
  HostKernels kernels;
  const EmulatedKernel& kernel = kernels[variant];
  struct Shape {
    int heads, seqlen_k, multiprocessors;
  };
  for (const auto& [heads, seqlen_k, multiprocessors] : {Shape{6, 470, 3}, Shape{4, 400, 3}, Shape{2, 900, 3}}) {
    const Problem problem{.dtype = static_cast<Dtype>(variant.dtype),
                          .batch = 1,
                          .heads_q = heads,
                          .heads_kv = heads,
                          .seqlen_q = 64,
                          .seqlen_k = seqlen_k,
                          .head_dim = 64};
    CAPTURE(problem.text());
    const testing::CallImage image(problem, testing::Layout::bshd, 5);
    const Run run = run_on(kernel, image, multiprocessors, true, 1);
    REQUIRE_MESSAGE(run.fault.empty(), run.fault);
    CHECK(run.shared == 0);
    CHECK(run.signals.empty());
    image.check(run.output, run.scale);
  }
}

}  // namespace attune::emulator_tests
