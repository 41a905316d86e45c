#include "runtime/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "runtime/error.hpp"
#include "runtime/tensor_params.hpp"

namespace attune {
namespace {

constexpr std::uintptr_t vector_bytes = 16;    // of one cp.async copy
constexpr std::int64_t stride_step = 8;        // elements: the same 16 bytes
constexpr std::int64_t bytes_per_element = 2;  // fp16 and bf16

// A scale of 0 would turn a masked score's -inf into NaN; with this one every finite score still becomes 0.
constexpr float smallest_scale = 1e-30F;

/// Of attune_prefill_args before V had a head_dim of its own.
constexpr std::size_t oldest_args_size = offsetof(attune_prefill_args, causal) + sizeof(attune_prefill_args::causal);

/// An argument's own extents, in the order of its strides.
struct Extents {
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;

  [[nodiscard]] bool empty() const { return batch == 0 || seq == 0; }
};

enum class Access { read, write };

void check_stride(std::vector<std::string>& found, const char* tensor, const char* dimension, std::int64_t stride,
                  std::int64_t extent, Access access) {
  if (extent <= 1) return;  // never used
  if (stride < 0 || stride % stride_step != 0) {
    found.push_back(fmt::format("{}.stride_{} is {}; it must be a multiple of {} elements, 0 or more", tensor,
                                dimension, stride, stride_step));
  } else if (access == Access::write && stride == 0) {
    found.push_back(fmt::format("{}.stride_{} is 0; rows that are written must not share memory", tensor, dimension));
  }
}

/// Whether the offset of the last element, in bytes, fits 63 bits.
bool offsets_fit(const attune_tensor& tensor, const Extents& extents, std::int64_t head_dim) {
  std::int64_t last = head_dim;
  const auto extend = [&last](std::int64_t stride, std::int64_t extent) {
    std::int64_t span = 0;
    return extent <= 1 ||
           (!__builtin_mul_overflow(stride, extent - 1, &span) && !__builtin_add_overflow(last, span, &last));
  };
  return extend(tensor.stride_batch, extents.batch) && extend(tensor.stride_seq, extents.seq) &&
         extend(tensor.stride_head, extents.heads) &&
         last <= std::numeric_limits<std::int64_t>::max() / bytes_per_element;
}

void check_tensor(std::vector<std::string>& found, const char* name, const attune_tensor& tensor,
                  const Extents& extents, std::int64_t head_dim, Access access) {
  if (extents.empty()) return;  // neither read nor written
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.data == nullptr) {
    found.push_back(fmt::format("{}.data is null; it must point to device memory", name));
  } else if (address % vector_bytes != 0) {
    found.push_back(fmt::format("{}.data is {:#x}; it must be a multiple of {} bytes", name, address, vector_bytes));
  }
  const std::size_t before = found.size();
  check_stride(found, name, "batch", tensor.stride_batch, extents.batch, access);
  check_stride(found, name, "seq", tensor.stride_seq, extents.seq, access);
  check_stride(found, name, "head", tensor.stride_head, extents.heads, access);
  if (found.size() == before && !offsets_fit(tensor, extents, head_dim)) {
    found.push_back(fmt::format("{}: strides {}, {} and {} reach beyond 2^63 bytes", name, tensor.stride_batch,
                                tensor.stride_seq, tensor.stride_head));
  }
}

void check_scalars(std::vector<std::string>& found, const attune_prefill_args& args) {
  if (!std::isfinite(args.softmax_scale) || args.softmax_scale < 0) {
    found.push_back(fmt::format("softmax_scale is {}; it must be finite and 0 or more", args.softmax_scale));
  }
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
  const auto lse = reinterpret_cast<std::uintptr_t>(args.lse);
  if (lse % alignof(float) != 0) {
    found.push_back(fmt::format("lse is {:#x}; it must be a multiple of {} bytes", lse, alignof(float)));
  }
}

/// Whether tensor maps take the strides; those of single elements do not count.
bool has_mappable_strides(const attune_tensor& tensor, const Extents& extents, int head_dim) {
  const auto passes = [&](std::int64_t stride, std::int64_t extent) {
    return extent <= 1 || is_mappable(stride, head_dim);
  };
  return passes(tensor.stride_batch, extents.batch) && passes(tensor.stride_seq, extents.seq) &&
         passes(tensor.stride_head, extents.heads);
}

/// A size-1 dimension may come with any stride; 0 keeps every address a kernel forms an aligned one.
AttuneTensor tensor_params(const attune_tensor& tensor, const Extents& extents) {
  const auto used = [](std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride : 0; };
  return {.data = tensor.data,
          .stride_batch = used(tensor.stride_batch, extents.batch),
          .stride_seq = used(tensor.stride_seq, extents.seq),
          .stride_head = used(tensor.stride_head, extents.heads)};
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
          .scale_log2 = std::max(args.softmax_scale * std::numbers::log2e_v<float>, smallest_scale),
          .batch = problem.batch,
          .heads_q = problem.heads_q,
          .seqlen_q = problem.seqlen_q,
          .seqlen_k = problem.seqlen_k,
          .head_dim = problem.head_dim,
          .gqa_ratio = problem.heads_q / problem.heads_kv};
}

}  // namespace attune
