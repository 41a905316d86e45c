#include "runtime/execute/decode_emulated.hpp"

#include <utility>

#include "generator/check.hpp"
#include "runtime/execute/chunk_emulated.hpp"
#include "runtime/execute/emulated_buffers.hpp"
#include "runtime/operations/decode/arguments.hpp"

namespace attune {
std::vector<emulator::Buffer> buffers_of(const AttuneDecodeParams& params, const DecodePlan& plan,
                                         Operation operation) {
  using Use = EmulatedBuffers::Use;
  EmulatedBuffers buffers(static_cast<Dtype>(plan.variant.dtype));
  const int heads_q = params.heads_kv * params.gqa_ratio;
  const int rows = params.seqlen_q * params.gqa_ratio;
  const bool ragged = params.cu_seqlens_q != nullptr;
  const int sequences = ragged ? 1 : params.batch;
  const int queries = ragged ? params.total_q : params.seqlen_q;
  const bool decodes = operation == Operation::decode;
  if (decodes) {
    buffers.add_tensor("q", params.q, {sequences, queries, heads_q, params.head_dim}, Use::read);
    const bool packed = params.cu_seqlens_k != nullptr;
    const long long pages = packed ? 1 : params.pages;
    const long long tokens = packed ? params.pages : params.page_size;
    buffers.add_tensor("k", params.k, {pages, tokens, params.heads_kv, params.head_dim}, Use::read);
    buffers.add_tensor("v", params.v, {pages, tokens, params.heads_kv, params.head_dim}, Use::read);
    if (!packed) {
      buffers.add_array("block_table", params.block_table, {1, 1, params.batch, params.table_width}, Use::read);
    }
    buffers.add_angles(params.cos, params.sin, params.rotations, params.rotary_dim);
  }
  buffers.add_array("seqlens_k", params.seqlens_k, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("cu_seqlens_q", params.cu_seqlens_q, {1, 1, 1, params.batch + 1}, Use::read);
  buffers.add_array("cu_seqlens_k", params.cu_seqlens_k, {1, 1, 1, params.batch + 1}, Use::read);
  buffers.add_array("leftpad_k", params.leftpad_k, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("seqused_q", params.seqused_q, {1, 1, 1, params.batch}, Use::read);
  buffers.add_tensor("o", params.o, {sequences, queries, heads_q, params.head_dim}, Use::written);
  buffers.add_array("lse", params.lse, {1, sequences, heads_q, queries}, Use::written);
  const Use of_parts = decodes ? Use::written : Use::read;
  buffers.add_array("partial_o", params.partial_o, {plan.slots, params.heads_kv, rows, params.head_dim}, of_parts);
  buffers.add_array("partial_lse", params.partial_lse, {1, plan.slots, params.heads_kv, rows}, of_parts);
  buffers.add_array("cuts", reinterpret_cast<int*>(params.cuts), {1, 1, plan.cuts, 2}, of_parts);
  return std::move(buffers).take();
}

emulator::Report run_emulated(const DecodeKernels& kernels, const attune_decode_args& args,
                              const DecodeProblem& problem, const DecodePlan& plan, const EmulatedRun& how) {
  if (plan.grid.blocks() == 0) return {};
  const AttuneDecodeParams params = make_params(args, problem, plan);
  const auto run = [&](const emulator::Kernel& kernel, const Grid& grid, int threads, int shared_bytes,
                       Operation operation) {
    return kernel.run({.grid = grid,
                       .threads = threads,
                       .shared_bytes = shared_bytes,
                       .params = &params,
                       .memory = buffers_of(params, plan, operation),
                       .seed = how.seed,
                       .jobs = how.jobs,
                       .count_banks = how.count_banks});
  };
  if (kernels.store != nullptr) {
    emulator::Report stored =
        run_emulated(*kernels.store, kernels.store_variant, store_args(args, problem), problem.store(), how);
    if (!stored.ok()) return stored;
  }
  emulator::Report report = run(*kernels.decode, plan.grid, plan.threads, plan.shared_bytes, Operation::decode);
  if (!report.ok() || !plan.combines()) return report;
  const Resources needs = resources(kernels.combine_variant);
  return run(*kernels.combine, plan.combine_grid, needs.threads, needs.shared_bytes, Operation::combine);
}

}  // namespace attune
