// Every shipped kernel on the emulator against the float64 reference.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "generator/collect.hpp"
#include "generator/parallel.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

using testing::Layout;

/// Small problems that visit a variant's corners: odd lengths around its tile edges, rows that see no key, no keys at
/// all, shared heads, smaller head dimensions, V's apart from the others' where the family takes that, and each layout.
std::vector<Case> cases_for(const Variant& variant) {
  struct Shape {
    int batch, ratio, heads_kv, seqlen_q, seqlen_k, less_dim;
    Layout layout;
  };
  const std::array<Shape, 6> shapes{{{1, 1, 2, 130, 130, 0, Layout::packed},
                                     {2, 4, 1, 1, 197, 8, Layout::gaps},
                                     {1, 2, 1, 149, 67, 0, Layout::bhsd},
                                     {1, 3, 1, 64, 257, 24, Layout::bshd},
                                     {1, 1, 1, 5, 0, 0, Layout::bshd},
                                     {1, 1, 1, 127, 3 * variant.B_c, 0, Layout::gaps}}};
  std::vector<Case> cases;
  for (const Shape& shape : shapes) {
    if (shape.seqlen_k == 0 && family_of(variant).tensor_maps) continue;  // other families serve that
    cases.push_back({{.dtype = static_cast<Dtype>(variant.dtype),
                      .batch = shape.batch,
                      .heads_q = shape.ratio * shape.heads_kv,
                      .heads_kv = shape.heads_kv,
                      .seqlen_q = shape.seqlen_q,
                      .seqlen_k = shape.seqlen_k,
                      .head_dim = variant.head_dim - shape.less_dim,
                      .head_dim_v = variant.head_dim_v == 0 ? 0 : variant.head_dim_v - shape.less_dim,
                      .causal = variant.causal != 0},
                     shape.layout});
  }
  if (family_of(variant).tensor_maps) {
    Problem problem = cases.front().problem;
    problem.heads_q = 2 * problem.heads_kv;
    problem.head_dim = variant.head_dim - 32;
    problem.head_dim_v = variant.head_dim_of_v() - 40;
    cases.push_back({problem, Layout::packed});
  }
  return cases;
}

}  // namespace

TEST_CASE("every shipped kernel agrees with the reference on the emulator, and no access of it is unsafe") {
  const std::filesystem::path root = ATTUNE_SOURCE_DIR;
  const std::vector<std::filesystem::path> specs{root / "specs/prefill_sm80.yaml", root / "specs/prefill_sm90.yaml",
                                                 root / "specs/quickstart.yaml"};
  const Result<Collection> collected = collect(specs);
  REQUIRE(collected.ok());
  std::vector<Wanted> wanted = collected.value.wanted;
  // Sanitizers look at the emulator: every fifth kernel, which keeps step with no list of a spec, leads through it.
  std::size_t number = 0;
  if (ATTUNE_SANITIZED) std::erase_if(wanted, [&](const Wanted& /*one*/) { return number++ % 5 != 0; });
  const Result<std::vector<Source>> sources = emit_all(wanted, embedded_templates());
  REQUIRE(sources.ok());
  HostKernels kernels;
  kernels.make(sources.value);
  for (std::size_t i = 0; i < sources.value.size(); ++i) {
    const Variant& variant = sources.value[i].variant;
    for (const Case& one : cases_for(variant)) check_case(kernels[variant], one, i + 1);
  }
}

TEST_CASE("every pair of head dimensions of prefill_sm90 agrees with the reference on the emulator") {
  HostKernels kernels;
  std::uint64_t seed = 1;
  for (const auto& [head_dim, head_dim_v] : {std::pair{96, 64}, {128, 64}, {192, 96}, {256, 192}}) {
    Variant variant = families()[prefill_sm90].defaults;
    variant.head_dim = head_dim;
    variant.head_dim_v = head_dim_v;
    variant.B_c = 64;
    variant.causal = variant.tile_list = head_dim % 128 == 0 ? 1 : 0;
    for (const Case& one : cases_for(variant)) check_case(kernels[variant], one, seed++);
  }
}

}  // namespace attune::emulator_tests
