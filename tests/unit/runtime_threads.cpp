// Eight threads with one registry do all that can be done with one, at once, over a driver that is not one
// (tests/fake_driver): what ThreadSanitizer looks at.
#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <array>
#include <string>
#include <vector>

#include "attune/attune.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/registry/prepare_all.hpp"
#include "tests/harness/needs.hpp"
#include "tests/unit/at_once.hpp"
#include "tests/unit/ready_set.hpp"
#include "tests/unit/tuned_tables.hpp"

namespace {

using namespace attune;
using namespace attune::registry_tests;
using testing::at_once;

/// What serves every call below, with a padded head_dim.
std::vector<Variant> ready_variants() {
  constexpr int room = 227 * 1024;
  std::vector<Variant> variants{prefill_variant(128)};
  for (const int family : {decode_sm80, combine, store_kv, merge_states, check_tables}) {
    variants.push_back(default_variant(family, need_for(Dtype::bf16, 128), room, 16));
  }
  return variants;
}

attune_decode_args decode_args(int splits) {
  const api::Decode call{.shape = {.batch = 2,
                                   .heads_q = 8,
                                   .heads_kv = 2,
                                   .head_dim = 96,
                                   .max_seqlen_k = 3000,
                                   .page_size = 256,
                                   .pages = 50,
                                   .table_width = 12,
                                   .splits = splits},
                         .q = api::bshd(address(0x1000), 1, 8, 96),
                         .k = api::bshd(address(0x2000), 256, 2, 96),
                         .v = api::bshd(address(0x3000), 256, 2, 96),
                         .o = api::bshd(address(0x4000), 1, 8, 96),
                         .seqlens_k = static_cast<const std::int32_t*>(address(0x6000)),
                         .block_table = static_cast<const std::int32_t*>(address(0x7000)),
                         .workspace = address(0x8000),
                         .workspace_bytes = std::size_t{1} << 30};
  return call.args();
}

attune_store_kv_args store_args() {
  api::Store call{.shape = {.batch = 2, .tokens = 3, .heads_kv = 2, .head_dim = 96, .page_size = 256, .pages = 50},
                  .k_new = api::bshd(address(0x1000), 3, 2, 96),
                  .v_new = api::bshd(address(0x2000), 3, 2, 96),
                  .k = api::bshd(address(0x3000), 256, 2, 96),
                  .v = api::bshd(address(0x4000), 256, 2, 96),
                  .slot_mapping = static_cast<const std::int64_t*>(address(0x5000)),
                  .check_tables = true};
  return call.args();
}

attune_merge_states_args merge_args() {
  const api::Merge call{.shape = {.batch = 3, .seqlen = 20, .heads = 4, .head_dim = 72},
                        .o1 = api::bshd(address(0x1000), 20, 4, 72),
                        .o2 = api::bshd(address(0x2000), 20, 4, 72),
                        .o = api::bshd(address(0x3000), 20, 4, 72),
                        .lse1 = static_cast<const float*>(address(0x4000)),
                        .lse2 = static_cast<const float*>(address(0x5000))};
  return call.args();
}

/// One of the things that a thread does with a registry. 16 and 32 are head dimensions that a ready kernel pads.
void use(Registry& registry, int what) {
  const attune_prefill_args prefill = prefill_args(std::array{128, 16, 64, 32}.at(static_cast<std::size_t>(what) % 4));
  const attune_decode_args decode = decode_args(1 + what % 2);
  const attune_store_kv_args store = store_args();
  const attune_merge_states_args merge = merge_args();
  switch (what % 9) {
    case 0:
      return registry.run(prefill, nullptr);
    case 1:
      return registry.run(decode, nullptr);
    case 2:
      return registry.run(store, nullptr);
    case 3:
      return registry.run(merge, nullptr);
    case 4:
      return registry.prepare(prefill);
    case 5:
      registry.serving(prefill);
      registry.serving(decode);
      return;
    case 6:
      registry.workspace_bytes(prefill);
      registry.workspace_bytes(decode_args(0));
      return;
    case 7:
      (void)registry.counters();
      return;
    default:
      return prepare_all(registry, std::array<AnyArgs, 4>{prefill, decode, store, merge}, 2, nullptr);
  }
}

/// All threads use one registry on two devices, one of them ends its background half way, and each opens and closes
/// another one over the same folder meanwhile.
void use_at_once(const Bench& bench, attune_compile_policy policy, int calls) {
  CAPTURE(static_cast<int>(policy));
  testing::FakeCuda& fake = Bench::fake();
  fake.capability = 80;
  const ReadySet ready(ready_variants());
  LogLines lines;
  RegistryOptions options = bench.options(policy);
  options.ready = ready.kernels();
  options.tuned = std::vector{tuned_tests::table_of({.name = "Fake GPU", .capability = 80, .multiprocessors = 132})};
  options.log = lines.log();
  options.record = bench.folder() / "record.jsonl";
  const Driver devices;
  {
    Registry registry(options);
    const std::vector<std::string> thrown = at_once([&](int thread) {
      devices.make_current(thread % 2);
      for (int i = 0; i < calls; ++i) {
        use(registry, thread + i);
        if (thread == 0 && i == calls / 2) registry.finish();
        if (i == thread * 3) {
          Registry another(options);
          use(another, thread);
        }
      }
    });
    CHECK_MESSAGE(thrown.empty(), (thrown.empty() ? "" : thrown.front()));
    registry.finish();
    const attune_counters counters = registry.counters();
    CHECK(counters.pending == 0);
    CHECK(counters.failures == 0);
    CHECK(counters.hits > 0);
  }
  CHECK(lines.of(ATTUNE_LOG_WARNING).empty());
  CHECK(fake.unloads == fake.loads);
  CHECK(fake.unrelaxed_loads == 0);
}

}  // namespace

TEST_CASE("eight threads use one registry of GPU kernels while others open and close: nothing fails or stays pending") {
  const Bench bench;
  // Whoever is first loads a kernel and publishes its row: that happens once in a registry's life.
  for (int round = 0; round < 20; ++round) use_at_once(bench, ATTUNE_COMPILE_MISSING, 30);
}

TEST_CASE("eight threads use one registry that compiles, in the background or in the call that needs the kernel") {
  if (!can_compile()) return;
  for (const attune_compile_policy policy : {ATTUNE_COMPILE_BACKGROUND, ATTUNE_COMPILE_EXACT}) {
    const Bench bench;
    use_at_once(bench, policy, 100);
    use_at_once(bench, policy, 100);  // now from the disk
    use_at_once(bench, ATTUNE_COMPILE_FROZEN, 100);
  }
}

#else

TEST_CASE("eight threads use one registry of GPU kernels") { MESSAGE("skipped: built without ATTUNE_FAKE_LIBCUDA"); }

#endif
