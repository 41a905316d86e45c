// Registries that take kernels from bundles: files of the options and of the environment, and the process's own.
#include "runtime/bundle/bundle.hpp"

#include <doctest/doctest.h>

#ifdef ATTUNE_FAKE_LIBCUDA

#include <cstdlib>
#include <fstream>
#include <thread>

#include "attune/attune.hpp"
#include "generator/check.hpp"
#include "runtime/bundle/ready_kernels.hpp"
#include "runtime/choice/choice.hpp"
#include "tests/unit/environment.hpp"
#include "tests/unit/registry_bench.hpp"

using namespace attune;
using testing::EnvironmentVariable;
using namespace attune::registry_tests;

namespace {

/// Not the library's own kernel for any problem, and as good as that for some.
Variant own_variant_of_a_program() {
  Variant variant = families()[prefill_sm90].defaults;
  variant.causal = 1;
  variant.ping_pong = 0;
  variant.rescale_bound = 8;
  REQUIRE(check(variant).empty());
  return variant;
}

std::string bundle_of(const Variant& variant, const std::string& image = "an image") {
  return write_bundle({.kernels = {{variant, variant.name(), image}}, .tables = {}});
}

std::string written(const Bench& bench, const std::string& name, const std::string& bytes) {
  const std::filesystem::path file = bench.folder() / name;
  std::ofstream(file, std::ios::binary) << bytes;
  return file.string();
}

attune_prefill_args some_args() {
  const api::Prefill call{.shape = {.dtype = api::Dtype::bf16,
                                    .seqlen_q = 300,
                                    .seqlen_k = 500,
                                    .heads_q = 2,
                                    .heads_kv = 2,
                                    .head_dim = 128,
                                    .causal = true},
                          .q = api::bshd(address(0x1000), 300, 2, 128),
                          .k = api::bshd(address(0x2000), 500, 2, 128),
                          .v = api::bshd(address(0x3000), 500, 2, 128),
                          .o = api::bshd(address(0x4000), 300, 2, 128)};
  return call.args();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a registry launches the kernel of a bundle, compiling nothing") {
  const Bench bench;
  RegistryOptions options = bench.options(ATTUNE_COMPILE_FROZEN);
  options.bundles = {written(bench, "kernels.attune", bundle_of(own_variant_of_a_program()))};
  Registry registry(options);
  registry.run(some_args(), nullptr);
  CHECK(Bench::fake().loads == 1);
  CHECK(Bench::fake().launches == 1);
}

TEST_CASE(
    "kernels of bundles come first: those of the options, then of the environment, of the process, of the library") {
  const Bench bench;
  const Variant variant = own_variant_of_a_program();
  const std::string first = written(bench, "first.attune", bundle_of(variant, "first"));
  const std::string second = written(bench, "second.attune", bundle_of(variant, "second"));
  const EnvironmentVariable environment("ATTUNE_BUNDLES", second);
  CHECK(ReadyKernels().find(variant)->fatbin == "second");
  const std::vector<std::filesystem::path> files{first};
  const ReadyKernels ready(files);
  CHECK(ready.find(variant)->fatbin == "first");
  CHECK(ready.variants(Operation::prefill).front() == variant);

  const Problem problem{.dtype = Dtype::bf16,
                        .batch = 1,
                        .heads_q = 2,
                        .heads_kv = 2,
                        .seqlen_q = 300,
                        .seqlen_k = 500,
                        .head_dim = 128,
                        .causal = true};
  const ReadyChoice choice = choose_ready(ready, problem, device_of(*find_arch("sm_90")), ATTUNE_COMPILE_MISSING);
  REQUIRE(choice.kernel != nullptr);
  CHECK(choice.preferred);
  CHECK(choice.kernel->fatbin == "first");
}

TEST_CASE("a bundle that does not fit makes the registry fail with the reason") {
  const Bench bench;
  std::string damaged = bundle_of(own_variant_of_a_program());
  damaged.back() = '!';
  const std::string file = written(bench, "damaged.attune", damaged);
  const std::string missing = (bench.folder() / "missing.attune").string();
  for (const auto& [name, reason] : {std::pair{file, "checksum does not match; copy it again"},
                                     std::pair{missing, "missing or cannot be read; attune pack makes one"}}) {
    attune_options options{};
    options.struct_size = sizeof(options);
    const char* const names[] = {name.c_str()};
    options.bundles = names;
    options.bundle_count = 1;
    attune_registry* registry = nullptr;
    CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
    CHECK(registry == nullptr);
    CHECK(contains(attune_last_error(), name + ": "));
    CHECK(contains(attune_last_error(), reason));
  }
}

TEST_CASE("an array of bundles that is null or has a null is named") {
  attune_options options{};
  options.struct_size = sizeof(options);
  options.bundle_count = 1;
  attune_registry* registry = nullptr;
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  CHECK(contains(attune_last_error(), "attune_options.bundles is null"));
  const char* const names[] = {nullptr};
  options.bundles = names;
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_INVALID_ARGUMENT);
  // A caller from before there were bundles.
  options.struct_size = offsetof(attune_options, bundles);
  CHECK(attune_registry_create(&options, &registry) == ATTUNE_OK);
  attune_registry_destroy(registry);
}

TEST_CASE("a bundle of the environment that does not fit is left out with a line that says why") {
  const Bench bench;
  const std::string good = written(bench, "good.attune", bundle_of(own_variant_of_a_program()));
  const std::string bad = written(bench, "bad.attune", "no bundle");
  const EnvironmentVariable environment("ATTUNE_BUNDLES", bad + "::" + good + ":");
  std::vector<std::string> lines;
  const Bundles bundles = environment_bundles([&](const std::string& line) { lines.push_back(line); });
  REQUIRE(bundles.size() == 1);
  CHECK(bundles.front()->kernels().size() == 1);
  REQUIRE(lines.size() == 1);
  CHECK(lines.front() == "$ATTUNE_BUNDLES: " + bad + ": this is no bundle of kernels; attune pack makes one");
}

TEST_CASE("a bundle that the process adds is in every registry created afterwards, and one that does not fit in none") {
  // For a GPU that no other test has: what is added stays.
  Variant variant = families()[merge_states].defaults;
  variant.arch = set_of(*find_arch("sm_121"));
  static const std::string bundle = bundle_of(variant);
  CHECK(ReadyKernels().find(variant) == nullptr);
  register_bundle(bundle);
  REQUIRE(ReadyKernels().find(variant) != nullptr);
  // As it lies, not copied.
  const std::string_view image = ReadyKernels().find(variant)->fatbin;
  CHECK(image.data() > bundle.data());
  CHECK(image.data() < bundle.data() + bundle.size());

  const std::size_t count = registered_bundles().size();
  CHECK(status_of([] { register_bundle("no bundle"); }) == ATTUNE_INVALID_ARGUMENT);
  CHECK(registered_bundles().size() == count);
  CHECK(attune_add_bundle(nullptr, 3) == ATTUNE_INVALID_ARGUMENT);
  CHECK(contains(attune_last_error(), "data is null"));
  CHECK(attune_add_bundle("abc", 3) == ATTUNE_INVALID_ARGUMENT);
  CHECK(contains(attune_last_error(), "no bundle of kernels"));
  CHECK(attune_add_bundle(bundle.data(), bundle.size()) == ATTUNE_OK);
}

TEST_CASE("threads may add bundles and create registries at once") {
  Variant variant = families()[merge_states].defaults;
  variant.arch = set_of(*find_arch("sm_120"));
  static const std::string bundle = bundle_of(variant);
  const std::size_t before = registered_bundles().size();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([] {
        register_bundle(bundle);
        const ReadyKernels ready;
      });
    }
  }
  CHECK(registered_bundles().size() == before + 8);
}

#endif
