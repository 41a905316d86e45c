#include "runtime/cli/outputs.hpp"

#include <algorithm>
#include <limits>

#include "runtime/cli/problems.hpp"

namespace attune::cli {
namespace {

constexpr std::uint16_t poisoned_element = 0x7fff;  // a NaN in fp16 and in bf16
constexpr float poisoned_lse = std::numeric_limits<float>::quiet_NaN();

attune_tensor tensor(void* data, int seqlen, int heads, int head_dim) {
  const long long dim = head_dim;
  return {.data = data, .stride_batch = dim * heads * seqlen, .stride_seq = dim * heads, .stride_head = dim};
}

}  // namespace

Outputs::Outputs(const Problem& problem)
    : o(output_elements(problem) + guard, poisoned_element), lse(query_rows(problem) + guard, poisoned_lse) {}

bool Outputs::guards_intact() const {
  return std::all_of(o.end() - guard, o.end(), [](std::uint16_t bits) { return bits == poisoned_element; }) &&
         std::all_of(lse.end() - guard, lse.end(), [](float value) { return value != value; });
}

attune_prefill_args contiguous_args(const Problem& problem, const Operands& operands) {
  return {
      .struct_size = sizeof(attune_prefill_args),
      .dtype = static_cast<attune_dtype>(problem.dtype),
      .q = tensor(operands.q, problem.stored_rows(), problem.heads_q, problem.head_dim),
      .k = tensor(operands.k, problem.stored_keys(), problem.heads_kv, problem.head_dim),
      .v = tensor(operands.v, problem.stored_keys(), problem.heads_kv, problem.head_dim_of_v()),
      .o = tensor(operands.o, problem.stored_rows(), problem.heads_q, problem.head_dim_of_v()),
      .lse = operands.lse,
      .batch = problem.batch,
      .seqlen_q = problem.seqlen_q,
      .seqlen_k = problem.seqlen_k,
      .heads_q = problem.heads_q,
      .heads_kv = problem.heads_kv,
      .head_dim = problem.head_dim,
      .softmax_scale = static_cast<float>(usual_scale(problem)),
      .causal = problem.causal ? 1 : 0,
      .head_dim_v = problem.head_dim_v,
      .cu_seqlens_q = operands.cu_seqlens_q,
      .cu_seqlens_k = operands.cu_seqlens_k,
      .seqused_k = problem.paged ? operands.seqused_k : nullptr,
      .total_q = problem.total_q,
      .total_k = problem.total_k,
      .window = 1,
      .window_left = problem.window_left,
      .window_right = problem.window_right,
      .softcap = problem.softcap,
      .block_table = operands.block_table,
      .table_width = problem.table_width,
      .pages = problem.pages,
      .page_size = problem.page_size,
      .workspace = nullptr,
      .workspace_bytes = 0,
      .seqused_q = nullptr,
  };
}

}  // namespace attune::cli
