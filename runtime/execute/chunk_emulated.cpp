#include "runtime/execute/chunk_emulated.hpp"

#include "generator/check.hpp"
#include "runtime/execute/emulated_buffers.hpp"
#include "runtime/operations/merge/arguments.hpp"
#include "runtime/operations/store/arguments.hpp"

namespace attune {
namespace {

template <class Params>
emulator::Report run(const emulator::Kernel& kernel, const ChunkPlan& plan, const Params& params, Dtype dtype,
                     const EmulatedRun& how) {
  return kernel.run({.grid = plan.grid,
                     .threads = plan.threads,
                     .shared_bytes = 0,
                     .params = &params,
                     .memory = buffers_of(params, dtype),
                     .seed = how.seed,
                     .jobs = how.jobs,
                     .count_banks = how.count_banks});
}

}  // namespace

std::vector<emulator::Buffer> buffers_of(const AttuneStoreParams& params, Dtype dtype) {
  using Use = EmulatedBuffers::Use;
  EmulatedBuffers buffers(dtype);
  buffers.add_tensor("k_new", params.k_new, {params.batch, params.tokens, params.heads_kv, params.head_dim}, Use::read);
  buffers.add_tensor("v_new", params.v_new, {params.batch, params.tokens, params.heads_kv, params.head_dim}, Use::read);
  buffers.add_tensor("k", params.k, {params.pages, params.page_size, params.heads_kv, params.head_dim}, Use::written);
  buffers.add_tensor("v", params.v, {params.pages, params.page_size, params.heads_kv, params.head_dim}, Use::written);
  buffers.add_array("slot_mapping", params.slots, {1, 1, params.batch, params.tokens}, Use::read);
  buffers.add_array("seqlens_k", params.seqlens_k, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("block_table", params.block_table, {1, 1, params.batch, params.table_width}, Use::read);
  buffers.add_array("positions", params.positions, {1, 1, params.batch, params.tokens}, Use::read);
  buffers.add_angles(params.cos, params.sin, params.rotations, params.rotary_dim);
  return std::move(buffers).take();
}

std::vector<emulator::Buffer> buffers_of(const AttuneMergeParams& params, Dtype dtype) {
  using Use = EmulatedBuffers::Use;
  EmulatedBuffers buffers(dtype);
  const auto add_result = [&](const char* o_name, const AttuneTensor& o, const char* lse_name, const float* lse,
                              Use use) {
    buffers.add_tensor(o_name, o, {params.batch, params.seqlen, params.heads, params.head_dim}, use);
    buffers.add_array(lse_name, lse, {1, params.batch, params.heads, params.seqlen}, use);
  };
  add_result("o1", params.o1, "lse1", params.lse1, Use::read);
  add_result("o2", params.o2, "lse2", params.lse2, Use::read);
  add_result("o", params.o, "lse", params.lse, Use::written);
  return std::move(buffers).take();
}

emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, const attune_store_kv_args& args,
                              const StoreProblem& problem, const EmulatedRun& how) {
  return run(kernel, plan(variant, problem), make_params(args, problem), problem.dtype, how);
}

emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant,
                              const attune_merge_states_args& args, const MergeProblem& problem,
                              const EmulatedRun& how) {
  return run(kernel, plan(variant, problem), make_params(args, problem), problem.dtype, how);
}

emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, AttuneCheckParams params,
                              AttuneTableFault& fault, const EmulatedRun& how) {
  using Use = EmulatedBuffers::Use;
  alignas(16) AttuneTableFault found{};
  params.fault = &found;
  EmulatedBuffers buffers(Dtype::bf16);  // there are no tensors among them
  buffers.add_array("seqlens_k", params.seqlens_k, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("block_table", params.block_table, {1, 1, params.batch, params.table_width}, Use::read);
  buffers.add_array("slot_mapping", params.slots, {1, 1, params.batch, params.seqlen_new}, Use::read);
  buffers.add_array("cu_seqlens_q", params.cu_seqlens_q, {1, 1, 1, params.batch + 1}, Use::read);
  buffers.add_array("cu_seqlens_k", params.cu_seqlens_k, {1, 1, 1, params.batch + 1}, Use::read);
  buffers.add_array("leftpad_k", params.leftpad_k, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("seqused_q", params.seqused_q, {1, 1, 1, params.batch}, Use::read);
  buffers.add_array("fault", params.fault, {1, 1, 1, 1}, Use::written);
  const Resources needs = resources(variant);
  emulator::Report report = kernel.run({.grid = {.x = 1, .y = 1, .z = 1},
                                        .threads = needs.threads,
                                        .shared_bytes = needs.shared_bytes,
                                        .params = &params,
                                        .memory = std::move(buffers).take(),
                                        .seed = how.seed,
                                        .jobs = how.jobs,
                                        .count_banks = how.count_banks});
  fault = found;
  return report;
}

}  // namespace attune
