#include "runtime/counters.hpp"

namespace attune {

attune_counters Counters::snapshot() const {
  constexpr double us_per_ms = 1e3;
  attune_counters result{};
  result.struct_size = sizeof(result);
  for (const Stripe& stripe : hits_) result.hits += stripe.count;
  result.misses = misses;
  result.ready_loads = ready_loads;
  result.disk_loads = disk_loads;
  result.compiles = compiles;
  result.compile_ms = static_cast<double>(compile_us) / us_per_ms;
  result.bytes_loaded = bytes_loaded;
  result.fallbacks = fallbacks;
  result.swaps = swaps;
  result.failures = failures;
  result.pending = pending;
  return result;
}

}  // namespace attune
