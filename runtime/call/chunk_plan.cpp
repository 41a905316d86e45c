#include "runtime/call/chunk_plan.hpp"

#include <fmt/format.h>

#include "generator/check.hpp"
#include "runtime/base/error.hpp"

namespace attune {
namespace {

constexpr long long chunk = 8;                 // elements of a thread
constexpr long long most_chunks = 1LL << 31U;  // kernels number them in 32 bits, those beyond the last included

}  // namespace

Launch plan_chunks(const Variant& variant, int batch, int rows, int heads, int head_dim) {
  long long chunks = head_dim / chunk;
  for (const int extent : {batch, rows, heads}) {
    if (__builtin_mul_overflow(chunks, extent, &chunks) || chunks > most_chunks) {
      throw Error(ATTUNE_UNSUPPORTED,
                  fmt::format("grid: {} x {} x {} rows of {} elements; a launch takes up to 2^34 elements", batch, rows,
                              heads, head_dim));
    }
  }
  const int threads = resources(variant).threads;
  return launch_of(variant, {.x = static_cast<unsigned>((chunks + threads - 1) / threads), .y = 1, .z = 1});
}

}  // namespace attune
