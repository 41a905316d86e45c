#include "runtime/plan/chunk_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/check.hpp"
#include "runtime/error.hpp"
#include "runtime/plan/refusals.hpp"

namespace attune {
namespace {

constexpr long long chunk = 8;                 // elements of a thread
constexpr long long most_chunks = 1LL << 31U;  // kernels number them in 32 bits, those behind the last included

template <class AnyProblem>
std::optional<Variant> choose_first(std::span<const Variant> candidates, const AnyProblem& problem,
                                    const Device& device) {
  const auto found = std::ranges::find_if(
      candidates, [&](const Variant& variant) { return refusals(variant, problem, device).empty(); });
  return found == candidates.end() ? std::nullopt : std::optional(*found);
}

/// For a batch x rows x heads x head_dim tensor.
ChunkPlan plan_chunks(const Variant& variant, int batch, int rows, int heads, int head_dim) {
  long long chunks = head_dim / chunk;
  for (const int extent : {batch, rows, heads}) {
    if (__builtin_mul_overflow(chunks, extent, &chunks) || chunks > most_chunks) {
      throw Error(ATTUNE_UNSUPPORTED,
                  fmt::format("grid: {} x {} x {} rows of {} elements; a launch takes up to 2^34 elements", batch, rows,
                              heads, head_dim));
    }
  }
  const int threads = resources(variant).threads;
  return {.grid = {.x = static_cast<unsigned>((chunks + threads - 1) / threads), .y = 1, .z = 1}, .threads = threads};
}

}  // namespace

std::vector<std::string> refusals(const Variant& variant, const StoreProblem& problem, const Device& device) {
  std::vector<std::string> result = common_refusals(variant, StoreProblem::operation, problem.dtype, device);
  check_rotary(result, variant, problem.rotary);
  return result;
}

std::vector<std::string> refusals(const Variant& variant, const MergeProblem& problem, const Device& device) {
  return common_refusals(variant, MergeProblem::operation, problem.dtype, device);
}

std::optional<Variant> choose(std::span<const Variant> candidates, const StoreProblem& problem, const Device& device) {
  return choose_first(candidates, problem, device);
}

std::optional<Variant> choose(std::span<const Variant> candidates, const MergeProblem& problem, const Device& device) {
  return choose_first(candidates, problem, device);
}

Variant own_variant(const StoreProblem& problem, const Device& device) {
  Variant variant = default_variant(store_kv, problem.dtype, problem.head_dim, false, device.shared_per_block);
  variant.rotary = static_cast<int>(problem.rotary);
  return variant;
}

Variant own_variant(const MergeProblem& problem, const Device& device) {
  return default_variant(merge_states, problem.dtype, problem.head_dim, false, device.shared_per_block);
}

ChunkPlan plan(const Variant& variant, const StoreProblem& problem) {
  return plan_chunks(variant, problem.batch, problem.tokens, problem.heads_kv, problem.head_dim);
}

ChunkPlan plan(const Variant& variant, const MergeProblem& problem) {
  return plan_chunks(variant, problem.batch, problem.seqlen, problem.heads, problem.head_dim);
}

}  // namespace attune
