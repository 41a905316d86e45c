#include "runtime/python/varlen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"
#include "runtime/python/arrays.hpp"
#include "runtime/python/attention.hpp"
#include "runtime/python/binding.hpp"
#include "runtime/python/cache_pages.hpp"
#include "runtime/python/decode.hpp"
#include "runtime/python/errors.hpp"

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

/// Where sequences begin and how many there are. Lengths that cu_seqlens_k alone says are made, and kept.
Sequences set_sequences(attune_prefill_args& args, const VarlenArguments& arguments, const First& q, Kept& kept) {
  const Sequences sequences = read_starts(args.cu_seqlens_q, q, arguments.cu_seqlens_q);
  args.batch = sequences.count;
  const bool paged = !arguments.block_table.is_none();
  const bool used = !arguments.seqused_k.is_none();
  if (paged && !used && arguments.cu_seqlens_k.is_none()) {
    raise(PyExc_ValueError,
          "cu_seqlens_k and seqused_k are both None; with a block_table one of them says how many keys there are");
  }
  if (!paged || !arguments.cu_seqlens_k.is_none()) {
    read_more_starts(args.cu_seqlens_k, q, "cu_seqlens_k", arguments.cu_seqlens_k, sequences);
  }
  read_optional_lengths(args.seqused_q, q, "seqused_q", arguments.seqused_q, sequences);
  read_optional_lengths(args.seqused_k, q, "seqused_k", arguments.seqused_k, sequences);
  if (paged && !used) {
    const Entered entered(q.framework.on_device(q.array.device));
    const nb::handle ends = arguments.cu_seqlens_k;
    kept.push_back(ends[nb::slice(nb::int_(1), nb::none(), nb::none())] - ends[nb::slice(-1)]);
    read_lengths(args.seqused_k, q, "seqused_k", kept.back(), sequences);
  }
  return sequences;
}

/// Keys in pages, or one after the other.
void set_keys(attune_prefill_args& args, const VarlenArguments& arguments, const First& first, const Operand& k,
              const Sequences& sequences) {
  if (arguments.block_table.is_none()) {
    args.total_k = count("total_k", k.shape[1]);
    return;
  }
  pages_of(first, k, sequences, nb::none(), arguments.block_table).set(args);
}

/// Of an array of rows whose first operand has this place among q, k and v.
const char* accepted_shape(const Argument& argument, std::size_t place) {
  if (argument.parts == 3) return "(total, 3, heads, head_dim)";
  if (argument.parts == 2) return "(total_k, 2, heads_kv, head_dim)";
  constexpr std::array apart{"(total_q, heads_q, head_dim)", "(total_k, heads_kv, head_dim)",
                             "(total_k, heads_kv, head_dim_v)"};
  return apart[place];
}

/// q, k and v.
std::array<Operand, 3> operands_of(const VarlenArguments& arguments, const First& first) {
  const bool paged = !arguments.block_table.is_none();
  std::array<Operand, 3> operands;
  std::span<Operand> rest(operands);
  for (const Argument& argument : arguments.arrays) {
    const bool pages = paged && rest.size() < 3;
    const char* const accepted = pages ? cache_shape(arguments.block_table) : accepted_shape(argument, 3 - rest.size());
    rest = read_parts(first, argument, pages ? 4 : 3, accepted, rest);
  }
  require_fit(operands[0], operands[1], operands[2]);
  return operands;
}

/// On the device of q.
attune_prefill_args args_of(const VarlenArguments& arguments, const First& first,
                            const std::array<Operand, 3>& operands, Kept& kept) {
  const auto& [q, k, v] = operands;
  attune_prefill_args args{};
  set_tensors(args, first, q, k, v);
  args.q = padded_rows(first, arguments.arrays.front().array, q, kept);
  const Sequences sequences = set_sequences(args, arguments, first, kept);
  set_keys(args, arguments, first, k, sequences);
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  args.seqlen_k = integer("max_seqlen_k", arguments.max_seqlen_k, "an integer");
  if (!arguments.block_table.is_none() && args.block_table == nullptr) args.seqlen_k = 0;  // the table holds no pages
  require_queries(args.seqlen_q, q, args.batch);
  args.total_q = count("total_q", q.shape[1]);
  set_scores(args, first, arguments.options, arguments.additions.rng_state, q.shape[3]);
  if (!arguments.out.is_none()) {
    require_whole_output(q, v.shape[3]);
    Operand like = q;
    like.shape[3] = v.shape[3];
    args.o = read_output(first, "out", arguments.out, like, "(total_q, heads_q, head_dim_v)").tensor;
  }
  return args;
}

/// The same call of arrays that are padded with zeros, which add nothing to any score: its result without their
/// columns.
nb::object attend_padded(const VarlenArguments& arguments, const First& first, const std::array<Operand, 3>& operands) {
  const auto& [q, k, v] = operands;
  if (!arguments.out.is_none()) require_whole_output(q, v.shape[3]);
  const Entered entered(first.framework.on_device(first.array.device));
  const PaddedCopies padded(first, arguments.arrays, q.shape[3], v.shape[3]);
  const nb::object scale = nb::float_(scale_of(arguments.options.softmax_scale, q.shape[3]));
  VarlenArguments same = arguments;
  same.arrays = padded.arguments();
  same.options.softmax_scale = scale;
  return without_padding(varlen(same), v.shape[3]);
}

/// Whether decode takes the call: it divides the keys of few sequences among the multiprocessors, and reads those that
/// heads share once for all of them. Wrong arguments are prefill's to name.
bool is_served_by_decode(const attune_prefill_args& args) {
  constexpr std::int32_t most_queries = 8;  // with 16 prefill is as fast, templates/decode_sm80.md
  constexpr std::int64_t most_shared_heads = 256;
  return args.seqlen_q >= 1 && args.seqlen_q <= most_queries && args.head_dim_v == args.head_dim &&
         args.dropout.p == 0 && args.heads_q <= most_shared_heads * args.heads_kv && args.window_left >= -1 &&
         args.window_right >= -1 &&
         (args.batch <= most_launched_sequences ||
          (args.score == nullptr && args.mask == nullptr && args.sink == nullptr));
}

/// Up to how many queries prefill leaves a sequence to decode, as far as sizes alone say.
int short_queries_of(const attune_prefill_args& args) {
  return short_queries({.batch = args.batch,
                        .longest = args.seqlen_q,
                        .total = args.total_q,
                        .more_keys = args.page_size > 0 || args.total_k > args.total_q,
                        .gqa_ratio = args.heads_q / args.heads_kv});
}

/// The same call for decode.
attune_decode_args decode_args_of(const attune_prefill_args& args, bool paged) {
  attune_decode_args result{};
  result.struct_size = sizeof(result);
  copy_attention(result, args);
  result.max_seqlen_k = args.seqlen_k;
  result.window_right = args.causal != 0 ? 0 : args.window_right;
  result.seqlens_k = args.seqused_k;
  result.seqused_q = args.seqused_q;
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

/// The arguments of varlen: q, k and v apart.
struct ApartArguments {
  nb::handle q;
  nb::handle k;
  nb::handle v;
  nb::handle cu_seqlens_q;
  nb::handle cu_seqlens_k;
  nb::handle max_seqlen_q;
  nb::handle max_seqlen_k;
  Options options;
  nb::handle block_table;
  nb::handle seqused_q;
  nb::handle seqused_k;
  nb::handle out;
  Additions additions;

  static constexpr auto names =
      joined(std::array{"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}, Options::names,
             std::array{"block_table", "seqused_q", "seqused_k", "out"}, Additions::names);
};

/// Those of varlen_kvpacked.
struct KvPackedArguments {
  nb::handle q;
  nb::handle kv;
  nb::handle cu_seqlens_q;
  nb::handle cu_seqlens_k;
  nb::handle max_seqlen_q;
  nb::handle max_seqlen_k;
  Options options;
  Additions additions;

  static constexpr auto names =
      joined(std::array{"q", "kv", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}, Options::names,
             Additions::names);
};

/// Those of varlen_qkvpacked.
struct QkvPackedArguments {
  nb::handle qkv;
  nb::handle cu_seqlens;
  nb::handle max_seqlen;
  Options options;
  Additions additions;

  static constexpr auto names = joined(std::array{"qkv", "cu_seqlens", "max_seqlen"}, Options::names, Additions::names);
};

nb::object varlen_apart(const ApartArguments& call, const ExpressionOptions* expressions) {
  return varlen({.arrays = std::array{Argument{"q", call.q, 1}, Argument{"k", call.k, 1}, Argument{"v", call.v, 1}},
                 .cu_seqlens_q = call.cu_seqlens_q,
                 .cu_seqlens_k = call.cu_seqlens_k,
                 .max_seqlen_q = call.max_seqlen_q,
                 .max_seqlen_k = call.max_seqlen_k,
                 .options = call.options,
                 .block_table = call.block_table,
                 .seqused_q = call.seqused_q,
                 .seqused_k = call.seqused_k,
                 .out = call.out,
                 .additions = call.additions,
                 .expressions = expressions});
}

nb::object varlen_plain(const ApartArguments& call) { return varlen_apart(call, nullptr); }

/// Those of expressed_varlen.
struct ExpressedArguments {
  ApartArguments apart;
  ExpressionOptions expressions;

  static constexpr auto names = joined(ApartArguments::names, ExpressionOptions::names);
};

nb::object expressed_varlen(const ExpressedArguments& call) { return varlen_apart(call.apart, &call.expressions); }

/// Without pages and without `out`.
nb::object varlen_packed(std::span<const Argument> arrays, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                         nb::handle max_seqlen_q, nb::handle max_seqlen_k, const Options& options,
                         const Additions& additions) {
  return varlen({.arrays = arrays,
                 .cu_seqlens_q = cu_seqlens_q,
                 .cu_seqlens_k = cu_seqlens_k,
                 .max_seqlen_q = max_seqlen_q,
                 .max_seqlen_k = max_seqlen_k,
                 .options = options,
                 .block_table = nb::none(),
                 .seqused_q = nb::none(),
                 .seqused_k = nb::none(),
                 .out = nb::none(),
                 .additions = additions});
}

nb::object varlen_kvpacked(const KvPackedArguments& call) {
  return varlen_packed(std::array{Argument{"q", call.q, 1}, Argument{"kv", call.kv, 2}}, call.cu_seqlens_q,
                       call.cu_seqlens_k, call.max_seqlen_q, call.max_seqlen_k, call.options, call.additions);
}

nb::object varlen_qkvpacked(const QkvPackedArguments& call) {
  return varlen_packed(std::array{Argument{"qkv", call.qkv, 3}}, call.cu_seqlens, call.cu_seqlens, call.max_seqlen,
                       call.max_seqlen, call.options, call.additions);
}

}  // namespace

void bind_varlen(nb::module_& module) {
  bind_call<&varlen_plain>(module, "varlen", "The output, or (output, LSE, None).");
  bind_call<&expressed_varlen>(module, "expressed_varlen", "varlen() with expressions of scores and masks.");
  bind_call<&varlen_kvpacked>(module, "varlen_kvpacked", "varlen() of keys and values in one array.");
  bind_call<&varlen_qkvpacked>(module, "varlen_qkvpacked", "varlen() of queries, keys and values in one array.");
}

nb::object varlen(const VarlenArguments& arguments) {
  const First first = read_first(arguments.arrays.front());
  const AddressedFramework& framework = require_addressed(first, "attention over a ragged batch");
  const std::array<Operand, 3> operands = operands_of(arguments, first);
  for (const Operand& operand : operands) {
    if (operand.shape[3] == padded_head_dim(operand.shape[3])) continue;
    if (arguments.block_table.is_none()) return attend_padded(arguments, first, operands);
    if (&operand != &operands.front()) require_rows_in_place(operand);
  }
  const Entered entered(framework.on_device(first.array.device));
  Kept kept;
  attune_prefill_args args = args_of(arguments, first, operands, kept);
  const ExpressionArguments scores(
      first, arguments.options.alibi_slopes, arguments.additions.learnable_sink, arguments.expressions,
      {.batch = args.batch, .heads_q = args.heads_q, .causal = args.causal != 0 || args.window_right == 0});
  scores.set(args);
  const bool return_lse = is_true(arguments.options.return_lse);

  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) {
    const std::int64_t columns = padded_head_dim(args.head_dim_v);
    const bool like_q = first.argument.parts == 1 && args.head_dim_v == args.head_dim && columns == args.head_dim_v;
    out = like_q ? framework.empty_like(first.argument.array)
                 : framework.empty(nb::make_tuple(args.total_q, args.heads_q, columns), first.argument.array);
    args.o = tensor_of(framework.read("out", out), 3);
    if (columns != args.head_dim_v) out = columns_before(out, args.head_dim_v);
  }
  nb::object lse;
  if (return_lse) {
    lse = framework.result_lse(nb::make_tuple(args.heads_q, args.total_q), first.argument.array, args.lse);
  }
  // A mask that looks things up has one here, for what mask_blocks finds, and a batch in which some sequences have few
  // queries; to ask costs each call.
  nb::object workspace;
  if (is_served_by_decode(args)) {
    launch_decode(framework, first, decode_args_of(args, !arguments.block_table.is_none()));
  } else {
    if (args.mask != nullptr || short_queries_of(args) > 0)
      workspace = framework.workspace(&attune_prefill_workspace, args, first.argument.array);
    framework.launch(&attune_prefill, args, first.array.device);
  }
  return return_lse ? nb::make_tuple(out, lse, nb::none()) : out;
}

}  // namespace attune::python
