#include "runtime/python/decode.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/python/arrays.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/cache_pages.hpp"
#include "runtime/python/cache_prefill.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"
#include "runtime/python/rotation.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

constexpr const char* new_shape = "(batch, seqlen_new, heads_kv, head_dim)";
constexpr const char* query_shape = "(batch, seqlen_q, heads_q, head_dim)";
constexpr const char* ragged_shape = "(total_q, heads_q, head_dim)";

bool is_ragged(const DecodeArguments& arguments) { return !arguments.cu_seqlens_q.is_none(); }

const char* shape_of_q(const DecodeArguments& arguments) { return is_ragged(arguments) ? ragged_shape : query_shape; }

/// How many sequences there are, and how many queries each has.
Sequences set_queries(attune_decode_args& args, const DecodeArguments& arguments, const First& first,
                      const Operand& q) {
  if (is_ragged(arguments) == arguments.max_seqlen_q.is_none()) {
    raise(PyExc_ValueError, "cu_seqlens_q and max_seqlen_q go together; one of them is None");
  }
  if (!is_ragged(arguments)) {
    args.batch = count("batch", q.shape[0]);
    args.seqlen_q = count("seqlen_q", q.shape[1]);
    return {"q", args.batch};
  }
  if (!arguments.k.is_none()) {
    raise(PyExc_ValueError, "k is given with cu_seqlens_q; store_kvcache writes the new keys of a ragged batch");
  }
  const Sequences sequences = read_starts(args.cu_seqlens_q, first, arguments.cu_seqlens_q);
  args.batch = sequences.count;
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  if (args.seqlen_q == 0 && q.shape[1] > 0 && args.batch > 0) {
    raise(PyExc_ValueError, fmt::format("max_seqlen_q is 0, and q of {} has rows; it must be at least the queries of "
                                        "any sequence",
                                        q.text()));
  }
  args.total_q = count("total_q", q.shape[1]);
  return sequences;
}

/// New keys and values, which are written into the cache first.
void set_new(attune_decode_args& args, const DecodeArguments& arguments, const First& first, const Operand& q,
             const Operand& k_cache, Kept& kept) {
  if (arguments.k.is_none() != arguments.v.is_none()) {
    raise(PyExc_ValueError, "k and v go together; one of them is None");
  }
  const Rotation rotation =
      rotation_of(first, arguments.rotary_cos, arguments.rotary_sin, arguments.rotary_interleaved);
  if (arguments.k.is_none()) {
    if (rotation.kind == ATTUNE_ROTARY_NONE) return;
    raise(PyExc_ValueError, "rotary_cos is given without k and v; it rotates new keys and the queries");
  }
  const Operand k = read_operand(first, "k", arguments.k, 4, new_shape);
  const Operand v = read_operand(first, "v", arguments.v, 4, new_shape);
  const Shape wanted{q.shape[0], k.shape[1], k_cache.shape[2], k_cache.shape[3]};
  for (const Operand& one : {k, v}) {
    if (one.shape == wanted) continue;
    raise(PyExc_ValueError,
          fmt::format("{} has shape {}; with {} of {} and {} of {} it must be {}", one.name, one.text(), q.name,
                      q.text(), k_cache.name, k_cache.text(), tuple_text(wanted)));
  }
  if (arguments.cache_seqlens.is_none() && k.shape[1] > 0) {
    raise(PyExc_ValueError, "cache_seqlens is None; with k and v it says after which keys the new ones are written");
  }
  first.framework.require_writable({"k_cache", arguments.k_cache, 1});
  first.framework.require_writable({"v_cache", arguments.v_cache, 1});
  args.k_new = padded_rows(first, arguments.k, k, kept);
  args.v_new = padded_rows(first, arguments.v, v, kept);
  args.seqlen_new = count("seqlen_new", k.shape[1]);
  rotation.set(args);
}

/// How many keys each sequence has.
void set_lengths(attune_decode_args& args, nb::handle cache_seqlens, const First& q, const Sequences& sequences) {
  if (cache_seqlens.is_none()) return;
  if (nb::isinstance(cache_seqlens, q.framework.array_type())) {
    return read_lengths(args.seqlens_k, q, "cache_seqlens", cache_seqlens, sequences);
  }
  const std::string accepted = fmt::format("an integer, a {} or None", q.framework.type_name());
  const std::int32_t length = integer("cache_seqlens", cache_seqlens, accepted.c_str());
  const std::int32_t room = args.max_seqlen_k - args.seqlen_new;
  if (length < 0 || length > room) {
    raise(PyExc_ValueError,
          fmt::format("cache_seqlens is {}; it must be from 0 to {}, which the cache has room for", length, room));
  }
  args.max_seqlen_k = length + args.seqlen_new;
}

/// On the device of q.
attune_decode_args args_of(const DecodeArguments& arguments, const First& first, Kept& kept) {
  const char* const cache = cache_shape(arguments.block_table);
  const Operand q = read_operand(first, "q", arguments.q, is_ragged(arguments) ? 3 : 4, shape_of_q(arguments));
  const Operand k = read_operand(first, "k_cache", arguments.k_cache, 4, cache);
  const Operand v = read_operand(first, "v_cache", arguments.v_cache, 4, cache);
  require_caches_fit(q, k, v);
  require_rows_in_place(k);
  require_rows_in_place(v);
  require_heads_divide(q, k);

  attune_decode_args args{};
  set_tensors(args, first, q, k, v);
  args.q = padded_rows(first, arguments.q, q, kept);
  const Sequences sequences = set_queries(args, arguments, first, q);
  args.softmax_scale = static_cast<float>(scale_of(arguments.softmax_scale, q.shape[3]));
  args.splits = integer("num_splits", arguments.num_splits, "an integer");
  const CachePages pages = pages_of(first, k, sequences, arguments.cache_batch_idx, arguments.block_table);
  pages.set(args);
  args.max_seqlen_k = pages.room;
  keep(kept, pages.made);
  set_new(args, arguments, first, q, k, kept);
  set_lengths(args, arguments.cache_seqlens, first, sequences);
  read_optional_lengths(args.leftpad_k, first, "cache_leftpad", arguments.cache_leftpad, sequences);
  const Window window = window_of(arguments.window_size);
  args.window_left = window.left;
  args.window_right = is_true(arguments.causal) ? 0 : window.right;
  args.softcap = static_cast<float>(number("softcap", arguments.softcap));
  args.check_tables = is_true(arguments.check_tables) ? 1 : 0;
  if (!arguments.out.is_none()) {
    require_whole_output(q, q.shape[3]);
    args.o = read_output(first, "out", arguments.out, q, shape_of_q(arguments)).tensor;
  }
  return args;
}

nb::object decode_plain(const DecodeArguments& call) { return decode(call); }

/// The arguments of expressed_decode.
struct ExpressedArguments {
  DecodeArguments plain;
  ExpressionOptions expressions;

  static constexpr auto names = joined(DecodeArguments::names, ExpressionOptions::names);
};

nb::object expressed_decode(const ExpressedArguments& call) { return decode(call.plain, &call.expressions); }

}  // namespace

void bind_decode(nb::module_& module) {
  bind_call<&decode_plain>(module, "decode", "The output, or (output, LSE).");
  bind_call<&expressed_decode>(module, "expressed_decode", "decode() with expressions of scores and masks.");
}

nb::object decode(const DecodeArguments& arguments, const ExpressionOptions* expressions) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "attention to a cache");
  const Entered entered(framework.on_device(first.array.device));
  Kept kept;
  attune_decode_args args = args_of(arguments, first, kept);
  const ExpressionArguments scores(first, arguments.alibi_slopes, arguments.learnable_sink, expressions,
                                   {.batch = args.batch, .heads_q = args.heads_q, .causal = args.window_right == 0});
  scores.set(args);
  const bool return_lse = is_true(arguments.return_lse);

  nb::object lengths;  // new keys are written after those that the device is told of; freed as the workspace is
  if (args.seqlen_new > 0 && args.seqlens_k == nullptr) {
    lengths = framework.full_int32(args.batch, args.max_seqlen_k - args.seqlen_new, arguments.q);
    args.seqlens_k = pointer<const std::int32_t>(framework.read("cache_seqlens", lengths).address);
  }
  const bool padded = args.head_dim != padded_head_dim(args.head_dim);
  const nb::handle q = padded ? kept.front() : arguments.q;  // the first copy was q's
  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) {
    out = framework.result_like(q, is_ragged(arguments) ? 3 : 4, args.o);
    if (padded) out = columns_before(out, args.head_dim);
  }
  nb::object lse;
  if (return_lse) {
    lse = framework.result_lse(is_ragged(arguments) ? nb::make_tuple(args.heads_q, args.total_q)
                                                    : nb::make_tuple(args.batch, args.heads_q, args.seqlen_q),
                               arguments.q, args.lse);
  }
  if (has_many_queries(args)) {
    launch_prefill(framework, first, args, arguments, q);
  } else {
    launch_decode(framework, first, args);
  }
  return return_lse ? nb::make_tuple(out, lse) : out;
}

void launch_decode(const AddressedFramework& framework, const First& first, attune_decode_args args) {
  const nb::object workspace = framework.workspace(&attune_decode_workspace, args, first.argument.array);
  framework.launch(&attune_decode, args, first.array.device);
}

}  // namespace attune::python
