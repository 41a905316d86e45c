// Kernels with pack_gqa on the emulator against the float64 reference.
#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "generator/check.hpp"
#include "generator/parallel.hpp"
#include "runtime/choice/choice.hpp"
#include "tests/emulator/case.hpp"

namespace attune::emulator_tests {
namespace {

using testing::Layout;

/// Every ratio with a tile of its own, both masks.
std::vector<Variant> variants() {
  struct Tile {
    int ratio, head_dim, B_r, B_c;
  };
  constexpr std::array<Tile, 4> tiles{{{2, 64, 64, 64}, {4, 64, 128, 48}, {8, 128, 192, 64}, {64, 64, 192, 64}}};
  std::vector<Variant> result;
  for (const Tile& tile : tiles) {
    for (const int causal : {0, 1}) {
      Variant& variant = result.emplace_back(families()[prefill_sm90].defaults);
      variant.dtype = static_cast<int>(causal != 0 ? Dtype::bf16 : Dtype::fp16);
      variant.head_dim = tile.head_dim;
      variant.B_r = tile.B_r;
      variant.B_c = tile.B_c;
      variant.causal = causal;
      variant.gqa_ratio = tile.ratio;
      variant.pack_gqa = 1;
      variant.tile_list = causal != 0 && tile.ratio < 8 ? 1 : 0;
      variant.ping_pong = tile.B_r > 64 ? 1 : 0;
      CAPTURE(variant.name());
      REQUIRE(check(variant).empty());
    }
  }
  return result;
}

/// Few queries and more than a tile of them, keys more and fewer than queries, heads of several groups and sequences.
std::vector<Case> cases_for(const Variant& variant) {
  struct Shape {
    int batch, heads_kv, seqlen_q, seqlen_k, less_dim;
    Layout layout;
  };
  constexpr std::array<Shape, 6> shapes{{{2, 2, 1, 70, 0, Layout::bshd},
                                         {2, 1, 3, 197, 8, Layout::gaps},
                                         {2, 1, 3, 2, 0, Layout::bhsd},
                                         {1, 2, 40, 40, 0, Layout::packed},
                                         {1, 1, 130, 150, 0, Layout::bshd},
                                         {1, 1, 130, 67, 24, Layout::gaps}}};
  std::vector<Case> cases;
  for (const Shape& shape : shapes) {
    cases.push_back({{.dtype = static_cast<Dtype>(variant.dtype),
                      .batch = shape.batch,
                      .heads_q = variant.gqa_ratio * shape.heads_kv,
                      .heads_kv = shape.heads_kv,
                      .seqlen_q = shape.seqlen_q,
                      .seqlen_k = shape.seqlen_k,
                      .head_dim = variant.head_dim - shape.less_dim,
                      .causal = variant.causal != 0},
                     shape.layout});
  }
  return cases;
}

}  // namespace

TEST_CASE("packed heads agree with the reference on the emulator, whatever their ratio, lengths and layout") {
  const std::vector<Variant> wanted = variants();
  HostKernels kernels;
  std::vector<Source> sources;
  for (const Variant& variant : wanted) sources.push_back(generate(variant));
  kernels.make(sources);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (const Case& one : cases_for(wanted[i])) check_case(kernels[wanted[i]], one, i + 1);
  }
}

}  // namespace attune::emulator_tests
