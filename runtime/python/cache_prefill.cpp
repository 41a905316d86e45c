#include "runtime/python/cache_prefill.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/operations/decode/problem.hpp"
#include "runtime/python/errors.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// What the call's attention is to prefill, but for where its keys are.
attune_prefill_args attention_of(const attune_decode_args& args) {
  attune_prefill_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.q = args.q;
  result.k = args.k;
  result.v = args.v;
  result.o = args.o;
  result.lse = args.lse;
  result.batch = args.batch;
  result.seqlen_q = args.seqlen_q;
  result.seqlen_k = args.max_seqlen_k;
  result.heads_q = args.heads_q;
  result.heads_kv = args.heads_kv;
  result.head_dim = args.head_dim;
  result.head_dim_v = args.head_dim;
  result.softmax_scale = args.softmax_scale;
  result.cu_seqlens_q = args.cu_seqlens_q;
  result.total_q = args.total_q;
  result.window = 1;
  result.window_left = args.window_left;
  result.window_right = args.window_right;
  result.softcap = args.softcap;
  result.score = args.score;
  result.mask = args.mask;
  result.params = args.params;
  result.param_count = args.param_count;
  result.sink = args.sink;
  return result;
}

/// Says where the keys are, new ones among them. Sequences of one length that the host knows, each at its own place,
/// are a dense batch; any others lie in pages, as in a cache without a table each in one.
void set_keys(attune_prefill_args& prefill, const AddressedFramework& framework, const First& first,
              const attune_decode_args& args, nb::handle cache_seqlens, Kept& kept) {
  const nb::handle like = first.argument.array;
  const bool one_length = !nb::isinstance(cache_seqlens, framework.array_type());
  if (one_length && args.block_table == nullptr && args.cu_seqlens_q == nullptr) return;
  prefill.page_size = args.page_size;
  prefill.pages = args.pages;
  prefill.table_width = args.table_width;
  prefill.block_table = args.block_table;
  prefill.seqused_k = args.seqlens_k;
  const auto made = [&](const char* name, nb::object array) {
    kept.push_back(std::move(array));
    return pointer<const std::int32_t>(framework.read(name, kept.back()).address);
  };
  if (args.block_table == nullptr) {
    prefill.block_table = made("block_table", framework.counted_int32(args.batch, like));
  }
  if (one_length) {
    prefill.seqused_k = made("cache_seqlens", framework.full_int32(args.batch, args.max_seqlen_k, like));
  } else if (args.seqlen_new > 0) {
    prefill.seqused_k = made("cache_seqlens", nb::borrow(cache_seqlens) + nb::int_(args.seqlen_new));
  }
}

attune_store_kv_args store_of(const attune_decode_args& args) {
  attune_store_kv_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.k_new = args.k_new;
  result.v_new = args.v_new;
  result.k = args.k;
  result.v = args.v;
  result.seqlens_k = args.seqlens_k;
  result.block_table = args.block_table;
  result.batch = args.batch;
  result.tokens = args.seqlen_new;
  result.heads_kv = args.heads_kv;
  result.head_dim = args.head_dim;
  result.page_size = args.page_size;
  result.pages = args.pages;
  result.table_width = args.table_width;
  result.rotary = args.rotary;
  result.rotary_cos = args.rotary_cos;
  result.rotary_sin = args.rotary_sin;
  result.rotary_dim = args.rotary_dim;
  result.rotations = args.rotations;
  return result;
}

/// A contiguous copy of the queries, which becomes those of the call.
attune_tensor copy_queries(const AddressedFramework& framework, nb::handle q, const attune_decode_args& args,
                           Kept& kept) {
  nb::object copy =
      framework.empty(nb::make_tuple(args.batch, args.seqlen_q, args.heads_q, padded_head_dim(args.head_dim)), q);
  copy[nb::ellipsis()] = q;
  kept.push_back(copy);
  return tensor_of(framework.read("q", copy), 4);
}

/// The rotation of that copy, by the positions that decode's kernels give to queries: one after the other from the
/// first new key's on where it matters to a query which one it is, else all at the first, as heads of one query are.
attune_rotary_embedding_args rotation_of_queries(const attune_decode_args& args, const attune_tensor& copy) {
  const bool one_position = args.window_left < 0 && args.window_right < 0;
  attune_rotary_embedding_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.q = copy;
  result.offsets = args.seqlens_k;
  result.rotary_cos = args.rotary_cos;
  result.rotary_sin = args.rotary_sin;
  result.batch = args.batch;
  result.seqlen = one_position ? 1 : args.seqlen_q;
  result.heads_q =
      one_position ? count("seqlen_q * heads_q", std::int64_t{args.seqlen_q} * args.heads_q) : args.heads_q;
  result.head_dim = padded_head_dim(args.head_dim);
  result.rotary = args.rotary;
  result.rotary_dim = args.rotary_dim;
  result.rotations = args.rotations;
  return result;
}

/// Throws what is wrong with a call of prefill; launches nothing.
void require_valid(const AddressedFramework& framework, const attune_prefill_args& prefill) {
  attune_serving serving{};
  serving.struct_size = sizeof(serving);
  framework.call(
      [&](attune_registry* registry) { return attune_registry_serving(registry, ATTUNE_PREFILL, &prefill, &serving); });
}

/// Throws what is wrong with those arguments of decode that prefill has not; a call without queries launches nothing.
void require_valid(const AddressedFramework& framework, const First& first, attune_decode_args args) {
  args.seqlen_q = 0;
  args.seqlen_new = 0;
  args.rotary = ATTUNE_ROTARY_NONE;
  framework.launch(&attune_decode, args, first.array.device);
}

void refuse(const attune_decode_args& args, const char* name, const char* reason) {
  raise(PyExc_NotImplementedError, fmt::format("{} is given with {} queries a sequence; with more than {} {}", name,
                                               args.seqlen_q, most_decode_queries, reason));
}

}  // namespace

bool has_many_queries(const attune_decode_args& args) { return args.seqlen_q > most_decode_queries; }

void launch_prefill(const AddressedFramework& framework, const First& first, const attune_decode_args& args,
                    nb::handle q, nb::handle cache_seqlens) {
  if (args.leftpad_k != nullptr) refuse(args, "cache_leftpad", "sequences begin where the cache does");
  if (args.check_tables != 0) refuse(args, "check_tables", "tables are not checked");
  require_valid(framework, first, args);
  Kept kept;
  attune_prefill_args prefill = attention_of(args);
  set_keys(prefill, framework, first, args, cache_seqlens, kept);
  const bool rotates = args.rotary != ATTUNE_ROTARY_NONE;
  if (rotates) prefill.q = copy_queries(framework, q, args, kept);
  // Kernels are found, and mistakes named, before the cache is written.
  const nb::object workspace = framework.workspace(&attune_prefill_workspace, prefill, first.argument.array);
  if (args.seqlen_new > 0) require_valid(framework, prefill);
  if (rotates) framework.launch(&attune_rotary_embedding, rotation_of_queries(args, prefill.q), first.array.device);
  if (args.seqlen_new > 0) framework.launch(&attune_store_kv, store_of(args), first.array.device);
  framework.launch(&attune_prefill, prefill, first.array.device);
}

}  // namespace attune::python
