// Windows, soft caps and ragged batches through the C ABI, by kernels that NVRTC compiles on this machine.
#include <doctest/doctest.h>

#include <vector>

#include "runtime/operations/prefill/short_sequences.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/harness/mixed_batch.hpp"
#include "tests/harness/random_prefill.hpp"

namespace attune::gpu_tests {
namespace {

using testing::PrefillCase;
using testing::random_paged_case;
using testing::random_prefill_case;

/// Runs these calls and checks each.
void check_calls(const std::vector<PrefillCase>& cases) {
  const TestRegistry registry;
  std::vector<attune_prefill_args> calls;
  for (std::uint64_t i = 0; i < cases.size(); ++i) calls.push_back(cases[i].image(i + 1).args(no_memory()));
  prepare_ahead(registry, ATTUNE_PREFILL, calls);
  for (std::uint64_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    check_call(registry, TestCall(cases[i].image(i + 1)));
  }
}

}  // namespace

TEST_CASE("200 random problems with windows, soft caps and ragged batches agree with the reference") {
  Random random(21);
  std::vector<PrefillCase> cases;
  for (int i = 1; i <= 200; ++i) cases.push_back(random_prefill_case(random, i % 10 == 0 ? 3000 : 400));
  check_calls(cases);
}

TEST_CASE("ten runs on the same ragged batch give the same bits") {
  const TestRegistry registry;
  Random random(22);
  PrefillCase one;
  while (!one.problem.ragged || !has_window(one.problem) || one.problem.total_q < 300) {
    one = random_prefill_case(random, 700);
  }
  const TestCall call(one.image(3));
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs first = call.fetch();
  check_same_bits(registry, call, first, 9);
}

TEST_CASE("a launch whose lengths change on the device follows them") {
  const TestRegistry registry;
  const Problem problem{.batch = 2,
                        .heads_q = 4,
                        .heads_kv = 2,
                        .seqlen_q = 300,
                        .seqlen_k = 300,
                        .head_dim = 64,
                        .causal = true,
                        .ragged = true,
                        .total_q = 400,
                        .total_k = 400};
  for (const std::int32_t boundary : {0, 100, 250, 300}) {
    const Sequences sequences{.cu_seqlens_q = {0, boundary, 300}, .cu_seqlens_k = {0, boundary, 300}, .seqused_k = {}};
    check_call(registry, TestCall(CallImage(problem, Layout::bshd, 5, sequences)));
  }
}

TEST_CASE("wild lengths on the device lead to no access outside the tensors") {
  const TestRegistry registry;
  Random random(23);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    PrefillCase one = random_prefill_case(random, 200);
    if (!one.problem.ragged || one.problem.total_q == 0) continue;
    one.problem.head_dim = 64;
    one.problem.dtype = Dtype::bf16;
    const CallImage image = one.image(i);
    const TestCall sane(image);
    testing::make_wild(random, one.sequences.cu_seqlens_q, one.problem.total_q);
    testing::make_wild(random, one.sequences.cu_seqlens_k, one.problem.total_k);
    const DeviceBuffer cu_seqlens_q(gpu().driver, one.sequences.cu_seqlens_q.size() * sizeof(std::int32_t));
    const DeviceBuffer cu_seqlens_k(gpu().driver, one.sequences.cu_seqlens_k.size() * sizeof(std::int32_t));
    cu_seqlens_q.upload(one.sequences.cu_seqlens_q);
    cu_seqlens_k.upload(one.sequences.cu_seqlens_k);
    attune_prefill_args args = sane.args;
    args.cu_seqlens_q = static_cast<const std::int32_t*>(cu_seqlens_q.data());
    args.cu_seqlens_k = static_cast<const std::int32_t*>(cu_seqlens_k.data());
    CHECK_MESSAGE(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    gpu().driver.synchronize();  // throws where an access failed
    CHECK(sane.fetch().guards_intact);
  }
}

TEST_CASE("100 random problems whose keys are in pages agree with the reference") {
  Random random(24);
  std::vector<PrefillCase> cases;
  for (int i = 1; i <= 100; ++i) cases.push_back(random_paged_case(random, i % 10 == 0 ? 3000 : 400));
  check_calls(cases);
}

TEST_CASE("ten runs on the same pages give the same bits") {
  const TestRegistry registry;
  Random random(25);
  PrefillCase one;
  while (one.problem.seqlen_q < 300 || one.problem.seqlen_k < 300) one = random_paged_case(random, 700);
  const TestCall call(one.image(4));
  REQUIRE(call.run(registry) == ATTUNE_OK);
  const Outputs first = call.fetch();
  check_same_bits(registry, call, first, 9);
}

TEST_CASE("sequences of few queries beside long ones agree with the reference, to the same bits each time") {
  const TestRegistry registry;
  testing::MixedBatch batch;
  for (int i = 0; i < 40; ++i) {
    batch.queries.push_back(i % 13 == 5 ? 700 - 9 * i : i % 6);  // decode's limit is 4
    batch.keys.push_back(i == 20 ? 30000 : i % 7 == 3 ? batch.queries.back() : 150 * i);
  }
  for (const int page_size : {0, 1, 16, 64}) {
    for (const int head_dim : {64, 128}) {
      const Problem problem{.heads_q = 8, .heads_kv = 2, .head_dim = head_dim, .causal = head_dim == 128};
      TestCall call(page_size == 0 ? batch.contiguous(problem) : batch.in_pages(problem, page_size));
      REQUIRE(short_sequences(call.image().problem()));
      REQUIRE(attune_prefill_workspace(registry.get(), &call.args, &call.args.workspace_bytes) == ATTUNE_OK);
      REQUIRE(call.args.workspace_bytes > 0);
      const DeviceBuffer workspace(gpu().driver, call.args.workspace_bytes);
      call.args.workspace = workspace.data();
      check_call(registry, call);
      const Outputs first = call.fetch();
      for (int i = 1; i < 5; ++i) {
        call.poison();
        REQUIRE(call.run(registry) == ATTUNE_OK);
        CHECK(call.fetch() == first);
      }
    }
  }
}

TEST_CASE("wild tables and lengths on the device lead to no access outside the pages") {
  const TestRegistry registry;
  Random random(26);
  for (std::uint64_t i = 1; i <= 60; ++i) {
    PrefillCase one = random_paged_case(random, 200);
    one.problem.head_dim = 64;
    one.problem.dtype = Dtype::bf16;
    const TestCall sane(one.image(i));
    testing::make_wild(random, one.sequences.seqused_k, one.problem.seqlen_k);
    testing::make_wild(random, one.sequences.block_table, one.problem.pages);
    const DeviceBuffer seqused_k(gpu().driver, one.sequences.seqused_k.size() * sizeof(std::int32_t));
    const DeviceBuffer block_table(gpu().driver, one.sequences.block_table.size() * sizeof(std::int32_t));
    seqused_k.upload(one.sequences.seqused_k);
    block_table.upload(one.sequences.block_table);
    attune_prefill_args args = sane.args;
    args.seqused_k = static_cast<const std::int32_t*>(seqused_k.data());
    args.block_table = static_cast<const std::int32_t*>(block_table.data());
    CHECK_MESSAGE(attune_prefill(registry.get(), &args, nullptr) == ATTUNE_OK, attune_last_error());
    gpu().driver.synchronize();  // throws where an access failed
    CHECK(sane.fetch().guards_intact);
  }
}

}  // namespace attune::gpu_tests
