#include "runtime/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>

#include "runtime/error.hpp"
#include "runtime/tensor_arguments.hpp"
#include "runtime/tensor_params.hpp"

namespace attune {
namespace {

/// Of attune_prefill_args before V had a head_dim of its own.
constexpr std::size_t oldest_args_size = offsetof(attune_prefill_args, causal) + sizeof(attune_prefill_args::causal);

void check_scalars(std::vector<std::string>& found, const attune_prefill_args& args) {
  check_softmax_scale(found, args.softmax_scale);
  if (args.causal != 0 && args.causal != 1) {
    found.push_back(fmt::format("causal is {}; it must be 0 or 1", args.causal));
  }
}

void check_memory(std::vector<std::string>& found, const attune_prefill_args& args, const Problem& problem) {
  const Extents queries{problem.batch, problem.seqlen_q, problem.heads_q};
  const Extents keys{queries.empty() ? 0 : problem.batch, problem.seqlen_k, problem.heads_kv};
  check_tensor(found, "q", args.q, queries, problem.head_dim, Access::read);
  check_tensor(found, "k", args.k, keys, problem.head_dim, Access::read);
  check_tensor(found, "v", args.v, keys, problem.head_dim_of_v(), Access::read);
  check_tensor(found, "o", args.o, queries, problem.head_dim_of_v(), Access::write);
  check_alignment(found, "lse", args.lse, alignof(float));
}

/// Whether tensor maps take the strides; those of single elements do not count.
bool has_mappable_strides(const attune_tensor& tensor, const Extents& extents, int head_dim) {
  const auto passes = [&](std::int64_t stride, std::int64_t extent) {
    return extent <= 1 || is_mappable(stride, head_dim);
  };
  return passes(tensor.stride_batch, extents.batch) && passes(tensor.stride_seq, extents.seq) &&
         passes(tensor.stride_head, extents.heads);
}

}  // namespace

Problem check_arguments(const attune_prefill_args& args) {
  if (args.struct_size < oldest_args_size) {
    throw Error(
        ATTUNE_INVALID_ARGUMENT,
        fmt::format("attune_prefill_args.struct_size is {}; it must be sizeof(attune_prefill_args), at least {}",
                    args.struct_size, oldest_args_size));
  }
  const bool has_head_dim_v = args.struct_size >= offsetof(attune_prefill_args, head_dim_v) + sizeof(args.head_dim_v);
  Problem problem{.dtype = static_cast<Dtype>(raw(args.dtype)),
                  .batch = args.batch,
                  .heads_q = args.heads_q,
                  .heads_kv = args.heads_kv,
                  .seqlen_q = args.seqlen_q,
                  .seqlen_k = args.seqlen_k,
                  .head_dim = args.head_dim,
                  .head_dim_v = has_head_dim_v && args.head_dim_v != args.head_dim ? args.head_dim_v : 0,
                  .causal = args.causal != 0};
  std::vector<std::string> found = problems_of(problem);
  const bool shapes_ok = found.empty();
  check_scalars(found, args);
  if (shapes_ok) check_memory(found, args, problem);
  if (!found.empty()) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
  const Extents queries{problem.batch, problem.seqlen_q, problem.heads_q};
  const Extents keys{problem.batch, problem.seqlen_k, problem.heads_kv};
  problem.mappable_strides = has_mappable_strides(args.q, queries, problem.head_dim) &&
                             has_mappable_strides(args.k, keys, problem.head_dim) &&
                             has_mappable_strides(args.v, keys, problem.head_dim_of_v()) &&
                             has_mappable_strides(args.o, queries, problem.head_dim_of_v());
  return problem;
}

bool is_empty(const Problem& problem) { return problem.batch == 0 || problem.seqlen_q == 0; }

AttunePrefillParams make_params(const attune_prefill_args& args, const Problem& problem) {
  const Extents queries{problem.batch, problem.seqlen_q, problem.heads_q};
  const Extents keys{problem.batch, problem.seqlen_k, problem.heads_kv};
  return {.q = tensor_params(args.q, queries),
          .k = tensor_params(args.k, keys),
          .v = tensor_params(args.v, keys),
          .o = tensor_params(args.o, queries),
          .lse = args.lse,
          .scale_log2 = scale_log2_of(args.softmax_scale),
          .batch = problem.batch,
          .heads_q = problem.heads_q,
          .seqlen_q = problem.seqlen_q,
          .seqlen_k = problem.seqlen_k,
          .head_dim = problem.head_dim,
          .gqa_ratio = problem.heads_q / problem.heads_kv};
}

}  // namespace attune
