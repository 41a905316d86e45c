// The rules and default tiles of the kernels of the backward pass.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/check.hpp"
#include "generator/cost.hpp"

using namespace attune;

namespace {

constexpr int kib = 1024;
constexpr int of_h100 = 227 * kib;
constexpr int of_a100 = 163 * kib;
constexpr int of_4090 = 99 * kib;

const Family& family_called(std::string_view name) { return *std::ranges::find(families(), name, &Family::name); }

std::string refusal_of(std::string_view family, const std::function<void(Variant&)>& change) {
  Variant variant = family_called(family).defaults;
  change(variant);
  const std::vector<Refusal> refusals = check(variant);
  return refusals.empty() ? "" : refusals.front().field + ": " + refusals.front().message;
}

}  // namespace

TEST_CASE("a tile of backward_sm80 that warps cannot share is refused, with the nearest that passes") {
  const auto refusal = [](const auto& change) { return refusal_of("backward_sm80", change); };
  CHECK(refusal([](Variant&) {}).empty());
  CHECK(refusal([](Variant& v) { v.warps = 3; }) ==
        "warps: warps is 3; of B_c 128 each warp has whole tiles of 16 keys, or as many warps share each tile; nearest "
        "that passes: warps 2");
  CHECK(refusal([](Variant& v) { v.B_c = 32, v.B_r = 32; }) ==
        "B_r: B_r is 32 and head_dim 128; 4 warps that share 16 keys of B_c 32 take multiples of 64; nearest that "
        "passes: B_r 64");
  CHECK(refusal([](Variant& v) { v.B_r = 48; }).starts_with("B_r: B_r is 48, which does not divide 128; nearest"));
  CHECK(refusal([](Variant& v) {
          v.head_dim = 256;
        }).starts_with("B_c: dK, dV, S and dP take 320 registers per thread, over the 200 that 256 threads leave"));
  CHECK(refusal([](Variant& v) { v.window = v.causal = 1; }).starts_with("causal: a window has the causal mask"));
  CHECK(refusal([](Variant& v) {
          v.head_dim = 80, v.deterministic = 0;
        }).starts_with("head_dim: B_r is 64 and head_dim 80, of which 8 warps cannot share dQ"));
}

TEST_CASE("a tile of backward_sm90 that its two warpgroups cannot have is refused, with the nearest that passes") {
  const auto refusal = [](const auto& change) { return refusal_of("backward_sm90", change); };
  CHECK(refusal([](Variant&) {}).empty());
  CHECK(refusal([](Variant& v) { v.head_dim = 64, v.B_r = 128; }).empty());
  for (const int head_dim : {64, 96, 128, 192, 256}) {
    CHECK(refusal([&](Variant& v) { v.head_dim = head_dim, v.B_c = head_dim > 128 ? 64 : 128; }).empty());
  }
  CHECK(refusal([](Variant& v) {
          v.head_dim = 80;
        }).starts_with("head_dim: head_dim is 80; backward_sm90 has 64, 96, 128, 192, 256"));
  CHECK(refusal([](Variant& v) { v.B_r = 32; }).starts_with("B_r: B_r is 32; a step of backward_sm90 has 64 or 128"));
  CHECK(refusal([](Variant& v) { v.B_c = 96; }) ==
        "B_c: B_c is 96; 2 warpgroups of backward_sm90 have 64 keys each, or with B_r 64 share 64; nearest that "
        "passes: B_c 64");
  CHECK(refusal([](Variant& v) { v.head_dim = 64, v.B_r = 128, v.B_c = 64; }).starts_with("B_c: B_c is 64; 2"));
  CHECK(
      refusal([](Variant& v) { v.head_dim = 192; }) ==
      "B_c: dK, dV, S, dP and P take 288 registers per thread, over the 224 that 2 warpgroups leave without spilling; "
      "nearest that passes: B_c 64");
  CHECK(refusal([](Variant& v) { v.B_r = 128; }).find("take 288 registers per thread, over the 224") !=
        std::string::npos);
  CHECK(refusal([](Variant& v) { v.stages = 1; }).starts_with("stages: stages is 1, but the next queries are read"));
  CHECK(refusal([](Variant& v) { v.window = v.causal = 1; }).starts_with("causal: a window has the causal mask"));
}

TEST_CASE("a tile of backward_dq_sm80 whose rows warps cannot share is refused") {
  const auto refusal = [](const auto& change) { return refusal_of("backward_dq_sm80", change); };
  CHECK(refusal([](Variant&) {}).empty());
  CHECK(refusal([](Variant& v) { v.B_r = 64; }).starts_with("B_r: B_r is 64, which is not a multiple of 16 * warps"));
  CHECK(refusal([](Variant& v) { v.B_c = 256; }).find("dQ, S and dP take") != std::string::npos);
}

TEST_CASE("the backward pass has a tile for every head_dim and GPU, with sums of any order or not") {
  for (const std::string_view name : {"backward_sm80", "backward_dq_sm80", "backward_rows", "backward_convert"}) {
    const Family& family = family_called(name);
    for (const auto& [capability, shared] : {std::pair{90, of_h100}, {80, of_a100}, {89, of_4090}}) {
      for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
        for (const int deterministic : {0, 1}) {
          Need need{.operation = family.operation, .head_dim = head_dim};
          if (family.has_key("deterministic")) need.deterministic = deterministic;
          const Variant variant = default_variant(family.defaults.family, need, shared);
          CAPTURE(variant.name());
          CAPTURE(shared);
          CHECK(check(variant).empty());
          CHECK(check_limits(variant, capability, shared).empty());
          CHECK(variant.head_dim >= head_dim);
          CHECK(meets(variant, need));
        }
      }
    }
  }
}

TEST_CASE(
    "where shared memory is short, gradients in any order keep their keys and warps, and share no tiles of keys") {
  const Family& family = family_called("backward_sm80");
  for (const int head_dim : {72, 80, 96}) {
    const Need need{.operation = family.operation, .head_dim = head_dim, .deterministic = 0};
    const Variant variant = default_variant(family.defaults.family, need, of_4090);
    CAPTURE(variant.name());
    CHECK(variant.stages == 1);
    CHECK(variant.B_c == 128);
    CHECK(variant.warps == 8);
    Variant roomy = variant;
    roomy.stages = 2;
    CHECK(resources(variant).shared_bytes == 90624);
    CHECK(resources(roomy).shared_bytes == 90624 + 25088 + 16384);  // a stage, and P's tile
  }
}

TEST_CASE("backward_sm90 has a tile for every head_dim, whose warpgroups share keys where they cannot hold gradients") {
  const Family& family = family_called("backward_sm90");
  for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
    const Need need{.operation = family.operation, .head_dim = head_dim};
    const Variant variant = default_variant(family.defaults.family, need, of_h100);
    CAPTURE(variant.name());
    CHECK(check(variant).empty());
    CHECK(check_limits(variant, 90, of_h100).empty());
    CHECK(meets(variant, need));
    CHECK(variant.B_c == (head_dim > 128 ? 64 : 128));
  }
}

TEST_CASE("the cost of a kernel of backward_sm90 grows with its tile") {
  const auto cost = [](int head_dim, int B_r, int B_c) {
    Variant variant = family_called("backward_sm90").defaults;
    variant.head_dim = head_dim;
    variant.B_r = B_r;
    variant.B_c = B_c;
    return estimate(std::span(&variant, 1));
  };
  CHECK(cost(64, 64, 64).seconds > 0.25);
  CHECK(cost(64, 128, 128).seconds > cost(64, 64, 128).seconds);
  CHECK(cost(128, 64, 128).bytes > cost(64, 64, 128).bytes);
  CHECK(cost(256, 64, 64).seconds < 1);
}

TEST_CASE("a kernel that always sums in one order serves whoever asks for any, and no other the one who asks for one") {
  Variant variant = family_called("backward_sm80").defaults;
  Need need{.operation = Operation::backward, .deterministic = 0};
  CHECK(meets(variant, need));
  need.deterministic = 1;
  CHECK(meets(variant, need));
  variant.deterministic = 0;
  CHECK_FALSE(meets(variant, need));
  need.deterministic = 0;
  CHECK(meets(variant, need));
}
