#include "runtime/decode_emulated.hpp"

#include <cstdint>

#include "generator/check.hpp"
#include "runtime/decode_arguments.hpp"

namespace attune {
namespace {

/// A contiguous array.
emulator::Buffer array(const char* name, const void* data, int element_bytes, const std::array<long long, 4>& extents,
                       bool writable) {
  return {.name = name,
          .data = const_cast<void*>(data),
          .element_bytes = element_bytes,
          .extents = extents,
          .strides = {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3]},
          .writable = writable};
}

}  // namespace

std::vector<emulator::Buffer> buffers_of(const AttuneDecodeParams& params, const DecodePlan& plan,
                                         Operation operation) {
  std::vector<emulator::Buffer> buffers;
  const auto add = [&](const char* name, const AttuneTensor& tensor, long long outer, long long middle, long long heads,
                       bool writable) {
    if (tensor.data == nullptr) return;
    buffers.push_back({.name = name,
                       .data = tensor.data,
                       .element_bytes = sizeof(std::uint16_t),
                       .extents = {outer, middle, heads, params.head_dim},
                       .strides = {tensor.stride_batch, tensor.stride_seq, tensor.stride_head},
                       .writable = writable});
  };
  const auto add_array = [&](const char* name, const void* data, const std::array<long long, 4>& extents,
                             bool writable) {
    static_assert(sizeof(float) == sizeof(std::int32_t));
    if (data != nullptr) buffers.push_back(array(name, data, sizeof(float), extents, writable));
  };
  const int heads_q = params.heads_kv * params.gqa_ratio;
  const int rows = params.seqlen_q * params.gqa_ratio;
  const bool decodes = operation == Operation::decode;
  if (decodes) {
    add("q", params.q, params.batch, params.seqlen_q, heads_q, false);
    add("k", params.k, params.pages, params.page_size, params.heads_kv, false);
    add("v", params.v, params.pages, params.page_size, params.heads_kv, false);
    add_array("block_table", params.block_table, {1, 1, params.batch, params.table_width}, false);
  }
  add_array("seqlens_k", params.seqlens_k, {1, 1, 1, params.batch}, false);
  add("o", params.o, params.batch, params.seqlen_q, heads_q, true);
  add_array("lse", params.lse, {1, params.batch, heads_q, params.seqlen_q}, true);
  add_array("partial_o", params.partial_o, {plan.slots, params.heads_kv, rows, params.head_dim}, decodes);
  add_array("partial_lse", params.partial_lse, {1, plan.slots, params.heads_kv, rows}, decodes);
  return buffers;
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
  emulator::Report report = run(*kernels.decode, plan.grid, plan.threads, plan.shared_bytes, Operation::decode);
  if (!report.ok() || !plan.combines()) return report;
  const Resources needs = resources(kernels.combine_variant);
  return run(*kernels.combine, plan.combine_grid, needs.threads, needs.shared_bytes, Operation::combine);
}

}  // namespace attune
