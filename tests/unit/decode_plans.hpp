// What the tests of decode's plans share: a problem, the kernels that ship, and a plan by these.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "generator/collect.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/decode/plan.hpp"

namespace attune::testing {

inline const Device h200 = emulator::device();

inline const DecodeProblem typical{.batch = 4,
                                   .heads_q = 32,
                                   .heads_kv = 8,
                                   .head_dim = 128,
                                   .max_seqlen_k = 4096,
                                   .page_size = 16,
                                   .pages = 2000,
                                   .table_width = 256,
                                   .window_right = 0};

/// Other sizes, with a head of Q for each of K and V; pages as long as before, or none.
inline void set_sizes(DecodeProblem& problem, int batch, int heads_kv, int head_dim, int seqlen_k) {
  problem.batch = batch;
  problem.heads_q = problem.heads_kv = heads_kv;
  problem.head_dim = head_dim;
  problem.max_seqlen_k = seqlen_k;
  if (!problem.paged()) problem.page_size = seqlen_k;
  problem.table_width = (seqlen_k + problem.page_size - 1) / problem.page_size;
}

/// Those that ship for any GPU; an H100 and an H200 have some of clusters beside them (specs/decode_sm90.yaml).
inline std::vector<Variant> shipped(Operation operation) {
  const std::filesystem::path specs = std::filesystem::path(ATTUNE_SOURCE_DIR) / "specs";
  const Result<Collection> collected = collect(std::vector{specs / "prefill_sm80.yaml", specs / "prefill_sm90.yaml",
                                                           specs / "decode.yaml", specs / "combine.yaml"});
  REQUIRE(collected.ok());
  std::vector<Variant> variants;
  for (const Wanted& one : collected.value.wanted) {
    if (family_of(one.variant).operation == operation) variants.push_back(one.variant);
  }
  return variants;
}

inline DecodePlan plan_of(const DecodeProblem& problem, const Device& device = h200) {
  return plan(choose(shipped(Operation::decode), problem, device).value(), problem, device);
}

}  // namespace attune::testing
