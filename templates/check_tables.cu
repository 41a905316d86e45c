// Checks the lengths, block tables and slots of a cache before another kernel uses them, for debugging.
//
// One thread block: a warp takes every `warps`-th sequence, lane by lane along its row of a table, and stops at the
// first that has something wrong. The warps' finds meet in shared memory, so that of several always the first is told.
#include "check_params.h"
#include "types.h"

namespace variant {
constexpr int warps = 4;
}  // namespace variant

#include "blocks/table_checks.cuh"
#include "ptx/memory.cuh"
#include "ptx/memory_chunks.cuh"
#include "ptx/thread.cuh"

constexpr int threads = variant::warps * warp_size;

extern "C" __global__ void __launch_bounds__(threads) check_tables(const __grid_constant__ AttuneCheckParams params) {
  TableFault own{};
#pragma unroll 1
  for (int batch = static_cast<int>(warp_index()); batch < params.batch; batch += variant::warps) {
    own = fault_of(params, batch);
    if (own.kind != no_fault) break;
  }
  const u32 faults = shared_memory();
  if (lane_index() == 0) store_shared(faults + warp_index() * chunk_bytes, own.words());
  block_barrier();
  if (thread_index() != 0) return;
  TableFault first{};
  for (u32 w = 0; w < variant::warps; ++w) {
    const TableFault fault(load_shared(faults + w * chunk_bytes));
    if (fault.kind != no_fault && (first.kind == no_fault || fault.batch < first.batch)) first = fault;
  }
  store_global(params.fault, first.words());
}
