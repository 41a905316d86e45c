// From recorded problems to kernels and specs: what is built serves every problem as exactly as a registry could.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string_view>
#include <variant>
#include <vector>

#include "generator/check.hpp"
#include "generator/expand.hpp"
#include "generator/spec_text.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/record/workload.hpp"

using namespace attune;

namespace {

const Device& device_named(const char* name) {
  static const std::vector<Device> devices = [] {
    std::vector<Device> all;
    for (const Arch& arch : all_archs()) {
      all.push_back(device_of(arch));
      all.back().name = arch.name;
    }
    return all;
  }();
  return *std::ranges::find(devices, name, &Device::name);
}

/// Problems of all operations, with all that can decide on a kernel.
std::vector<Recorded> random_workload(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  const auto one_of = [&](const auto&... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  std::vector<Recorded> result;
  while (result.size() < count) {
    const Dtype dtype = one_of(Dtype::fp16, Dtype::bf16);
    const int heads_kv = one_of(1, 2, 8);
    const int heads_q = heads_kv * one_of(1, 2, 4, 7, 8, 32);
    const int head_dim = 8 * static_cast<int>(1 + random() % 32);
    const Rotary rotary = head_dim >= 16 ? one_of(Rotary::none, Rotary::interleaved, Rotary::halves) : Rotary::none;
    AnyProblem problem;
    switch (random() % 6) {
      case 0:
        problem = DecodeProblem{.dtype = dtype,
                                .batch = one_of(1, 3, 64),
                                .seqlen_q = one_of(1, 5, 16),
                                .heads_q = heads_q,
                                .heads_kv = heads_kv,
                                .head_dim = head_dim,
                                .max_seqlen_k = 4096,
                                .page_size = 16,
                                .pages = 1000,
                                .table_width = one_of(1, 256),
                                .splits = one_of(0, 1, 4),
                                .softcap = one_of(0.0F, 30.0F),
                                .seqlen_new = rotary != Rotary::none ? 1 : one_of(0, 1),
                                .rotary = rotary,
                                .rotary_dim = 16,
                                .rotations = 4096};
        break;
      case 1:
        problem = StoreProblem{.dtype = dtype, .heads_kv = heads_kv, .head_dim = head_dim, .rotary = rotary};
        break;
      case 2:
        problem = MergeProblem{.dtype = dtype, .heads = heads_q, .head_dim = head_dim};
        break;
      case 3:
        problem = CheckProblem{};
        break;
      case 4:
        problem = BackwardProblem::of({.dtype = dtype,
                                       .heads_q = heads_q,
                                       .heads_kv = heads_kv,
                                       .seqlen_q = one_of(64, 1000),
                                       .seqlen_k = one_of(64, 1000),
                                       .head_dim = head_dim,
                                       .causal = one_of(false, true)},
                                      one_of(false, true));
        break;
      default: {
        Problem prefill{.dtype = dtype,
                        .batch = one_of(1, 2),
                        .heads_q = heads_q,
                        .heads_kv = heads_kv,
                        .seqlen_q = one_of(1, 64, 130, 200, 1000, 5000),
                        .seqlen_k = one_of(1, 64, 130, 200, 1000, 5000),
                        .head_dim = head_dim,
                        .head_dim_v = head_dim > 64 ? one_of(0, 0, head_dim - 64) : 0,
                        .causal = one_of(false, true),
                        .softcap = one_of(0.0F, 50.0F),
                        .ragged = one_of(false, true),
                        .mappable_strides = one_of(true, true, false)};
        if (one_of(false, false, true)) set_window(prefill, one_of(10, 4000), one_of(0, -1, 3));
        if (prefill.ragged) prefill.total_q = prefill.total_k = 6000;
        prefill.paged = one_of(false, false, true);
        if (prefill.paged) {
          prefill.page_size = 16;
          prefill.pages = prefill.table_width = 400;
        }
        problem = prefill;
      }
    }
    result.push_back({.problem = problem, .calls = static_cast<long long>(random() % 100)});
  }
  return result;
}

std::vector<ReadyKernel> ready_kernels(const std::vector<Variant>& variants) {
  std::vector<ReadyKernel> result;
  for (const Variant& variant : variants) result.push_back({.variant = variant, .name = {}, .fatbin = {}});
  return result;
}

const ReadyKernels& nothing_ready() {
  static const ReadyKernels none(std::span<const ReadyKernel>{});
  return none;
}

/// Every problem whose kernels a registry with only these would have to compile.
std::vector<std::string> to_compile(const std::vector<Variant>& variants, const std::vector<Recorded>& workload,
                                    const Device& device) {
  const std::vector<ReadyKernel> kernels = ready_kernels(variants);
  const ReadyKernels ready(kernels);
  std::vector<std::string> missing;
  const auto look = [&](const auto& problem) {
    if (!choose_own(problem, device).refusals.empty()) return;  // nothing can serve it
    for (const attune_compile_policy policy : {ATTUNE_COMPILE_MISSING, ATTUNE_COMPILE_EXACT}) {
      if (!choose_ready(ready, problem, device, policy).preferred) missing.push_back(problem.text());
    }
  };
  for (const Recorded& one : workload) {
    std::visit(look, one.problem);
    if (const auto* gradients = std::get_if<BackwardProblem>(&one.problem)) {
      look(gradients->rows());
      const bool has_sums = workspace_of(choose_own(*gradients, device).variant, *gradients, device).dq_bytes > 0;
      if (has_sums) look(gradients->conversion());
      if (!has_sums) look(gradients->queries());
    }
    const auto* decode = std::get_if<DecodeProblem>(&one.problem);
    if (decode == nullptr || !choose_own(*decode, device).refusals.empty()) continue;
    if (plan(choose_own(*decode, device).variant, *decode, device).combines()) look(decode->merge());
    if (decode->appends()) look(decode->store());
  }
  return missing;
}

std::set<Variant> expanded(const std::vector<SpecText>& specs) {
  std::set<Variant> result;
  for (const SpecText& made : specs) {
    CAPTURE(made.text);
    const Result<Spec> spec = parse_spec(made.text, made.name + ".yaml");
    for (const Diagnostic& problem : spec.problems) FAIL_CHECK(problem.text());
    const Result<Expansion> expansion = expand(spec.value);
    for (const Diagnostic& problem : expansion.problems) FAIL_CHECK(problem.text());
    result.insert(expansion.value.variants.begin(), expansion.value.variants.end());
  }
  return result;
}

}  // namespace

TEST_CASE(
    "with the kernels of a record's specs a registry compiles nothing for it, not even for exact head dimensions") {
  for (const char* name : {"sm_80", "sm_86", "sm_90", "sm_100", "sm_120"}) {
    CAPTURE(name);
    const Device& device = device_named(name);
    const std::vector<Recorded> workload = random_workload(11, 400);
    const WorkloadKernels needed = kernels_for(workload, std::span(&device, 1), nothing_ready());
    const std::set<Variant> built = expanded(spec_texts(needed.variants(), {}));
    const std::vector<Variant> chosen = needed.variants();
    CHECK(built == std::set<Variant>(chosen.begin(), chosen.end()));
    CHECK(to_compile({built.begin(), built.end()}, workload, device) == std::vector<std::string>{});
  }
}

TEST_CASE("specs for several GPUs serve each of them, and name those that each kernel was chosen for") {
  const std::vector<Device> devices{device_named("sm_80"), device_named("sm_86"), device_named("sm_90")};
  const std::vector<Recorded> workload = random_workload(12, 200);
  const WorkloadKernels needed = kernels_for(workload, devices, nothing_ready());
  const std::set<Variant> built = expanded(spec_texts(needed.variants(), {}));
  for (const Device& device : devices) {
    CHECK(to_compile({built.begin(), built.end()}, workload, device) == std::vector<std::string>{});
  }
  for (const Variant& variant : built) {
    CHECK(variant.arch != 0);
    CHECK(check(variant).empty());
  }
}

TEST_CASE("a kernel that is ready and pads no more than one's own is taken, one that pads is not") {
  const Device& device = device_named("sm_90");
  Variant tuned = choose_own(DecodeProblem{.head_dim = 64}, device).variant;
  tuned.B_c = 128;
  const std::vector<ReadyKernel> kernels = ready_kernels({tuned});
  const ReadyKernels ready(kernels);
  const auto chosen = [&](int head_dim) {
    const std::vector<Recorded> workload{{.problem = DecodeProblem{.head_dim = head_dim, .splits = 1}}};
    const WorkloadKernels needed = kernels_for(workload, std::span(&device, 1), ready);
    REQUIRE(needed.kernels.size() == 1);
    return needed.kernels.front().variant;
  };
  CHECK(chosen(64).B_c == 128);
  CHECK(chosen(16).head_dim < 64);
}

TEST_CASE("a call brings the kernels of all its launches along, and decoding what merges its parts") {
  using Names = std::vector<std::string_view>;
  const auto families_of = [](const AnyProblem& problem, const char* arch = "sm_80") {
    const Device& device = device_named(arch);
    const std::vector<Recorded> workload{{.problem = problem, .calls = 5}};
    Names families;
    for (const NeededKernel& kernel : kernels_for(workload, std::span(&device, 1), nothing_ready()).kernels) {
      CHECK(kernel.problems == 1);
      CHECK(kernel.calls == 5);
      families.push_back(family_of(kernel.variant).name);
    }
    return families;
  };
  CHECK(families_of(DecodeProblem{.splits = 1}) == Names{"decode_sm80"});
  CHECK(families_of(DecodeProblem{.splits = 0}) == Names{"decode_sm80", "combine"});
  CHECK(families_of(DecodeProblem{.splits = 3, .seqlen_new = 1}) == Names{"decode_sm80", "combine", "store_kv"});
  const BackwardProblem gradients = BackwardProblem::of({.heads_q = 4, .heads_kv = 4, .head_dim = 128}, false);
  CHECK(families_of(gradients) == Names{"backward_sm80", "backward_rows", "backward_dq_sm80"});
  CHECK(families_of(gradients, "sm_90") == Names{"backward_rows", "backward_convert", "backward_sm90"});
}

TEST_CASE("a problem that no kernel serves is named with the GPU and the reasons, and the rest goes on") {
  const std::vector<Device> devices{device_named("sm_80"), device_named("sm_90")};
  const std::vector<Recorded> workload{{.problem = Problem{.head_dim = 192, .head_dim_v = 128}},
                                       {.problem = MergeProblem{}}};
  const WorkloadKernels needed = kernels_for(workload, devices, nothing_ready());
  CHECK(needed.kernels.size() == 2);
  REQUIRE(needed.unserved.size() == 1);
  CHECK(needed.unserved.front().device == "sm_80");
  CHECK(needed.unserved.front().problem.find("d192v128") != std::string::npos);
  REQUIRE_FALSE(needed.unserved.front().reasons.empty());
}
