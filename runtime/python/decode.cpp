#include "runtime/python/decode.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/python/cache_pages.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr const char* query_shape = "(batch, seqlen_q, heads_q, head_dim)";

/// How many keys each sequence has.
void set_lengths(attune_decode_args& args, nb::handle cache_seqlens, const First& q) {
  if (cache_seqlens.is_none()) return;
  if (nb::isinstance(cache_seqlens, q.framework.array_type())) {
    args.seqlens_k = read_lengths(q, "cache_seqlens", cache_seqlens, args.batch);
    return;
  }
  const std::string accepted = fmt::format("an integer, a {} or None", q.framework.type_name());
  const std::int32_t length = integer("cache_seqlens", cache_seqlens, accepted.c_str());
  if (length < 0 || length > args.max_seqlen_k) {
    raise(PyExc_ValueError, fmt::format("cache_seqlens is {}; it must be from 0 to {}, which the cache has room for",
                                        length, args.max_seqlen_k));
  }
  args.max_seqlen_k = length;
}

attune_decode_args args_of(const DecodeArguments& arguments, const First& first) {
  const char* const cache = cache_shape(arguments.block_table);
  const Operand q = read_operand(first, "q", arguments.q, 4, query_shape);
  const Operand k = read_operand(first, "k_cache", arguments.k_cache, 4, cache);
  const Operand v = read_operand(first, "v_cache", arguments.v_cache, 4, cache);
  require_caches_fit(q, k, v);
  require_heads_divide(q, k);

  attune_decode_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(arguments.softmax_scale, q.shape[3]));
  args.splits = integer("num_splits", arguments.num_splits, "an integer");
  const CachePages pages = pages_of(first, k, args.batch, arguments.cache_batch_idx, arguments.block_table);
  args.pages = pages.pages;
  args.page_size = pages.page_size;
  args.table_width = pages.table_width;
  args.block_table = pages.table;
  args.max_seqlen_k = pages.room;
  set_lengths(args, arguments.cache_seqlens, first);
  const Window window = window_of(arguments.window_size);
  args.window_left = window.left;
  args.window_right = is_true(arguments.causal) ? 0 : window.right;
  if (!arguments.out.is_none()) args.o = read_output(first, "out", arguments.out, q, query_shape).tensor;
  return args;
}

}  // namespace

nb::object decode(const DecodeArguments& arguments) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "attention to a cache");
  attune_decode_args args = args_of(arguments, first);
  const bool return_lse = is_true(arguments.return_lse);

  const Entered entered(framework.on_device(first.array.device));
  framework.call(
      [&](attune_registry* registry) { return attune_decode_workspace(registry, &args, &args.workspace_bytes); });
  // Freed on return, while the kernels may wait yet: the allocators hand memory on in the order of the stream.
  nb::object workspace;
  if (args.workspace_bytes > 0) {
    workspace = framework.empty_bytes(args.workspace_bytes, arguments.q);
    args.workspace = pointer<void>(framework.read("workspace", workspace).address);
  }
  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) {
    out = framework.empty_like(arguments.q);
    args.o = tensor_of(framework.read("out", out));
  }
  nb::object lse;
  if (return_lse) {
    lse = framework.empty_float32(nb::make_tuple(args.batch, args.heads_q, args.seqlen_q), arguments.q);
    args.lse = pointer<float>(framework.read("softmax_lse", lse).address);
  }
  framework.launch(&attune_decode, args, first.array.device);
  return return_lse ? nb::make_tuple(out, lse) : out;
}

}  // namespace attune::python
