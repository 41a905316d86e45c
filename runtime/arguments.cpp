#include "runtime/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/error.hpp"
#include "runtime/tensor_arguments.hpp"
#include "runtime/tensor_params.hpp"

namespace attune {
namespace {

/// Of attune_prefill_args before V had a head_dim of its own.
constexpr std::size_t oldest_args_size = offsetof(attune_prefill_args, causal) + sizeof(attune_prefill_args::causal);

/// Whether the caller knows of the fields behind head_dim_v.
bool has_features(const attune_prefill_args& args) {
  return args.struct_size >= offsetof(attune_prefill_args, softcap) + sizeof(args.softcap);
}

void add_features(Problem& problem, const attune_prefill_args& args) {
  problem.softcap = args.softcap;
  if (args.window != 0) {
    problem.window_left = args.window_left;
    problem.window_right = args.window_right;
  }
  problem.ragged = args.cu_seqlens_q != nullptr || args.cu_seqlens_k != nullptr;
  if (!problem.ragged) return;
  problem.total_q = args.total_q;
  problem.total_k = args.total_k;
}

Extents queries_of(const Problem& problem) {
  return {problem.stored_sequences(), problem.stored_rows(), problem.heads_q};
}

Extents keys_of(const Problem& problem) {
  return {problem.stored_sequences(), problem.stored_keys(), problem.heads_kv};
}

void check_scalars(std::vector<std::string>& found, const attune_prefill_args& args) {
  check_softmax_scale(found, args.softmax_scale);
  if (args.causal != 0 && args.causal != 1) {
    found.push_back(fmt::format("causal is {}; it must be 0 or 1", args.causal));
  }
  if (has_features(args) && args.window != 0 && args.window != 1) {
    found.push_back(fmt::format("window is {}; it must be 0 or 1", args.window));
  }
}

/// What makes a batch ragged: both arrays of lengths, or none.
void check_ragged(std::vector<std::string>& found, const attune_prefill_args& args) {
  if ((args.cu_seqlens_q == nullptr) != (args.cu_seqlens_k == nullptr)) {
    const bool q = args.cu_seqlens_q == nullptr;
    found.push_back(fmt::format("cu_seqlens_{} is null, and cu_seqlens_{} is not; a ragged batch needs both",
                                q ? "q" : "k", q ? "k" : "q"));
  } else if (args.cu_seqlens_q == nullptr && args.seqused_k != nullptr) {
    found.emplace_back("seqused_k is given without cu_seqlens_q and cu_seqlens_k; only ragged batches have it");
  }
}

void check_memory(std::vector<std::string>& found, const attune_prefill_args& args, const Problem& problem) {
  const Extents queries = queries_of(problem);
  Extents keys = keys_of(problem);
  if (queries.empty()) keys.batch = 0;
  check_tensor(found, "q", args.q, queries, problem.head_dim, Access::read);
  check_tensor(found, "k", args.k, keys, problem.head_dim, Access::read);
  check_tensor(found, "v", args.v, keys, problem.head_dim_of_v(), Access::read);
  check_tensor(found, "o", args.o, queries, problem.head_dim_of_v(), Access::write);
  check_alignment(found, "lse", args.lse, alignof(float));
  if (!problem.ragged) return;
  check_alignment(found, "cu_seqlens_q", args.cu_seqlens_q, alignof(std::int32_t));
  check_alignment(found, "cu_seqlens_k", args.cu_seqlens_k, alignof(std::int32_t));
  check_alignment(found, "seqused_k", args.seqused_k, alignof(std::int32_t));
}

/// Whether tensor maps take the strides; those of single elements do not count.
bool has_mappable_strides(const attune_tensor& tensor, const Extents& extents, int head_dim) {
  const auto passes = [&](std::int64_t stride, std::int64_t extent) {
    return extent <= 1 || is_mappable(stride, head_dim);
  };
  return passes(tensor.stride_batch, extents.batch) && passes(tensor.stride_seq, extents.seq) &&
         passes(tensor.stride_head, extents.heads);
}

/// A bound of a window as kernels take it: no more than hides nothing.
int bounded(int bound, int seqlen) { return bound < 0 ? seqlen : std::min(bound, seqlen); }

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
  if (has_features(args)) add_features(problem, args);
  std::vector<std::string> found = problems_of(problem);
  const bool shapes_ok = found.empty();
  check_scalars(found, args);
  if (has_features(args)) check_ragged(found, args);
  if (shapes_ok) check_memory(found, args, problem);
  if (!found.empty()) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
  problem.set_window(problem.window_left, problem.window_right);
  const Extents queries = queries_of(problem);
  const Extents keys = keys_of(problem);
  problem.mappable_strides = has_mappable_strides(args.q, queries, problem.head_dim) &&
                             has_mappable_strides(args.k, keys, problem.head_dim) &&
                             has_mappable_strides(args.v, keys, problem.head_dim_of_v()) &&
                             has_mappable_strides(args.o, queries, problem.head_dim_of_v());
  return problem;
}

bool is_empty(const Problem& problem) {
  return problem.batch == 0 || problem.seqlen_q == 0 || problem.stored_rows() == 0;
}

AttunePrefillParams make_params(const attune_prefill_args& args, const Problem& problem) {
  const Extents queries = queries_of(problem);
  const Extents keys = keys_of(problem);
  const ScoreScales scales = scales_of(args.softmax_scale, problem.softcap);
  AttunePrefillParams params{.q = tensor_params(args.q, queries),
                             .k = tensor_params(args.k, keys),
                             .v = tensor_params(args.v, keys),
                             .o = tensor_params(args.o, queries),
                             .lse = args.lse,
                             .scale_log2 = scales.scale_log2,
                             .batch = problem.batch,
                             .heads_q = problem.heads_q,
                             .seqlen_q = problem.seqlen_q,
                             .seqlen_k = problem.seqlen_k,
                             .head_dim = problem.head_dim,
                             .gqa_ratio = problem.heads_q / problem.heads_kv,
                             .window_left = bounded(problem.window_left, problem.seqlen_k),
                             .window_right = problem.causal ? 0 : bounded(problem.window_right, problem.seqlen_q),
                             .cap_scale = scales.cap_scale,
                             .total_q = problem.total_q,
                             .total_k = problem.total_k,
                             .cu_seqlens_q = nullptr,
                             .cu_seqlens_k = nullptr,
                             .seqused_k = nullptr};
  if (problem.ragged) {
    params.cu_seqlens_q = args.cu_seqlens_q;
    params.cu_seqlens_k = args.cu_seqlens_k;
    params.seqused_k = args.seqused_k;
  }
  return params;
}

}  // namespace attune
