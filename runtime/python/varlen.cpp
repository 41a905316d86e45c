#include "runtime/python/varlen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "runtime/python/cache_pages.hpp"
#include "runtime/python/decode.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// That the three shapes fit together.
void require_fit(const Operand& q, const Operand& k, const Operand& v) {
  if (k.shape[3] != q.shape[3]) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} its head_dim must be {}", k.name, k.text(),
                                        q.name, q.text(), q.shape[3]));
  }
  if (!std::ranges::equal(std::span(v.shape).first(3), std::span(k.shape).first(3))) {
    const auto extents = std::span(k.shape).subspan(static_cast<std::size_t>(4 - k.rank));
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} it must be ({}, head_dim_v)", v.name, v.text(),
                                        k.name, k.text(), fmt::join(extents.first(extents.size() - 1), ", ")));
  }
  require_heads_divide(q, k);
}

/// Where sequences begin; their number follows from cu_seqlens_q.
void set_sequences(attune_prefill_args& args, const VarlenArguments& arguments, const First& q) {
  const auto read = [&](const char* name, nb::handle array, std::int64_t extent, const std::string& demand) {
    const Array found = read_plain(q, name, array, Element::int32, std::array{extent}, demand);
    return std::pair(pointer<const std::int32_t>(found.address), found.shape[0]);
  };
  const auto [starts, count_of_starts] = read("cu_seqlens_q", arguments.cu_seqlens_q, -1, "it must be (batch + 1,)");
  args.cu_seqlens_q = starts;
  args.batch = count("batch", count_of_starts - 1);
  const std::string with = fmt::format("with {} sequences in cu_seqlens_q it must be", args.batch);
  const bool paged = !arguments.block_table.is_none();
  if (!paged || !arguments.cu_seqlens_k.is_none()) {
    args.cu_seqlens_k = read("cu_seqlens_k", arguments.cu_seqlens_k, count_of_starts, with + " (batch + 1,)").first;
  }
  if (!arguments.seqused_k.is_none()) {
    args.seqused_k = read("seqused_k", arguments.seqused_k, args.batch, with + " (batch,)").first;
  } else if (paged) {
    raise(PyExc_ValueError, "seqused_k is None; with a block_table it says how many keys each sequence has");
  }
}

/// Keys in pages, or one after the other.
void set_keys(attune_prefill_args& args, const VarlenArguments& arguments, const First& first, const Operand& k) {
  if (arguments.block_table.is_none()) {
    args.total_k = count("total_k", k.shape[1]);
    return;
  }
  const CachePages pages = pages_of(first, k, args.batch, nb::none(), arguments.block_table);
  args.block_table = pages.table;
  args.table_width = pages.table_width;
  args.pages = pages.pages;
  args.page_size = pages.page_size;
}

attune_prefill_args args_of(const VarlenArguments& arguments, const First& first) {
  const bool paged = !arguments.block_table.is_none();
  const int rank = paged ? 4 : 3;
  const Operand q = read_operand(first, "q", arguments.q, 3, "(total_q, heads_q, head_dim)");
  const Operand k = read_operand(first, "k", arguments.k, rank,
                                 paged ? cache_shape(arguments.block_table) : "(total_k, heads_kv, head_dim)");
  const Operand v = read_operand(first, "v", arguments.v, rank,
                                 paged ? cache_shape(arguments.block_table) : "(total_k, heads_kv, head_dim_v)");
  require_fit(q, k, v);

  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  set_sequences(args, arguments, first);
  set_keys(args, arguments, first, k);
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  args.seqlen_k = integer("max_seqlen_k", arguments.max_seqlen_k, "an integer");
  args.total_q = count("total_q", q.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.head_dim_v = count("head_dim_v", v.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(arguments.softmax_scale, q.shape[3]));
  args.causal = is_true(arguments.causal) ? 1 : 0;
  const Window window = window_of(arguments.window_size);
  args.window = 1;
  args.window_left = window.left;
  args.window_right = window.right;
  args.softcap = static_cast<float>(number("softcap", arguments.softcap));
  if (!arguments.out.is_none()) {
    Operand like = q;
    like.shape[3] = v.shape[3];
    args.o = read_output(first, "out", arguments.out, like, "(total_q, heads_q, head_dim_v)").tensor;
  }
  return args;
}

/// Whether decode takes the call: it divides the keys of few sequences among the multiprocessors, and reads those that
/// heads share once for all of them. Wrong arguments are prefill's to name.
bool is_served_by_decode(const attune_prefill_args& args) {
  constexpr std::int32_t most_queries = 8;  // with 16 prefill is as fast, templates/decode_sm80.md
  constexpr std::int64_t most_shared_heads = 256;
  return args.seqlen_q >= 1 && args.seqlen_q <= most_queries && args.head_dim_v == args.head_dim &&
         args.heads_q <= most_shared_heads * args.heads_kv && args.window_left >= -1 && args.window_right >= -1;
}

/// The same call for decode.
attune_decode_args decode_args_of(const attune_prefill_args& args, bool paged) {
  attune_decode_args result{};
  result.struct_size = sizeof(result);
  result.dtype = args.dtype;
  result.q = args.q;
  result.k = args.k;
  result.v = args.v;
  result.o = args.o;
  result.lse = args.lse;
  result.batch = args.batch;
  result.seqlen_q = args.seqlen_q;
  result.heads_q = args.heads_q;
  result.heads_kv = args.heads_kv;
  result.head_dim = args.head_dim;
  result.max_seqlen_k = args.seqlen_k;
  result.softmax_scale = args.softmax_scale;
  result.window_left = args.window_left;
  result.window_right = args.causal != 0 ? 0 : args.window_right;
  result.softcap = args.softcap;
  result.cu_seqlens_q = args.cu_seqlens_q;
  result.total_q = args.total_q;
  result.seqlens_k = args.seqused_k;
  if (paged) {
    result.block_table = args.block_table;
    result.table_width = args.table_width;
    result.pages = args.pages;
    result.page_size = args.page_size;
  } else {
    result.cu_seqlens_k = args.cu_seqlens_k;
    result.total_k = args.total_k;
  }
  return result;
}

}  // namespace

nb::object varlen(const VarlenArguments& arguments) {
  const First first = read_first({"q", arguments.q, 1});
  const AddressedFramework& framework = require_addressed(first, "attention over a ragged batch");
  attune_prefill_args args = args_of(arguments, first);
  const bool return_lse = is_true(arguments.return_lse);

  const Entered entered(framework.on_device(first.array.device));
  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) {
    out = args.head_dim_v == args.head_dim
              ? framework.empty_like(arguments.q)
              : framework.empty(nb::make_tuple(args.total_q, args.heads_q, args.head_dim_v), arguments.q);
    args.o = rows_tensor_of(framework.read("out", out));
  }
  nb::object lse;
  if (return_lse) {
    lse = framework.empty_float32(nb::make_tuple(args.heads_q, args.total_q), arguments.q);
    args.lse = pointer<float>(framework.read("softmax_lse", lse).address);
  }
  if (is_served_by_decode(args)) {
    launch_decode(framework, first, decode_args_of(args, !arguments.block_table.is_none()));
  } else {
    framework.launch(&attune_prefill, args, first.array.device);
  }
  return return_lse ? nb::make_tuple(out, lse, nb::none()) : out;
}

}  // namespace attune::python
