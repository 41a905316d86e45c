#include "runtime/python/varlen.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/python/attention.hpp"
#include "runtime/python/binding.hpp"
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

/// Where sequences begin; their number follows from cu_seqlens_q. Lengths that cu_seqlens_k alone says are returned, to
/// be kept until the launch.
nb::object set_sequences(attune_prefill_args& args, const VarlenArguments& arguments, const First& q) {
  const Starts starts = read_starts(q, "cu_seqlens_q", arguments.cu_seqlens_q);
  args.cu_seqlens_q = starts.starts;
  args.batch = starts.batch;
  const std::string with = fmt::format("with {} sequences in cu_seqlens_q it must be", args.batch);
  const auto read = [&](const char* name, nb::handle array, std::int64_t extent, const std::string& demand) {
    return pointer<const std::int32_t>(
        read_plain(q, name, array, Element::int32, std::array{extent}, with + demand).address);
  };
  const bool paged = !arguments.block_table.is_none();
  const bool used = !arguments.seqused_k.is_none();
  if (paged && !used && arguments.cu_seqlens_k.is_none()) {
    raise(PyExc_ValueError,
          "cu_seqlens_k and seqused_k are both None; with a block_table one of them says how many keys there are");
  }
  if (!paged || !arguments.cu_seqlens_k.is_none()) {
    args.cu_seqlens_k = read("cu_seqlens_k", arguments.cu_seqlens_k, args.batch + std::int64_t{1}, " (batch + 1,)");
  }
  if (!arguments.seqused_q.is_none()) args.seqused_q = read("seqused_q", arguments.seqused_q, args.batch, " (batch,)");
  if (used) {
    args.seqused_k = read("seqused_k", arguments.seqused_k, args.batch, " (batch,)");
  } else if (paged) {
    const Entered entered(q.framework.addressed()->on_device(q.array.device));
    const nb::handle ends = arguments.cu_seqlens_k;
    nb::object lengths = ends[nb::slice(nb::int_(1), nb::none(), nb::none())] - ends[nb::slice(-1)];
    args.seqused_k = read("seqused_k", lengths, args.batch, " (batch,)");
    return lengths;
  }
  return {};
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

/// By the operands that lie in an array.
constexpr std::array accepted_shapes{"(total, heads, head_dim)", "(total_k, 2, heads_kv, head_dim)",
                                     "(total, 3, heads, head_dim)"};

/// q, k and v.
std::array<Operand, 3> operands_of(const VarlenArguments& arguments, const First& first) {
  const bool paged = !arguments.block_table.is_none();
  std::array<Operand, 3> operands;
  std::span<Operand> rest(operands);
  for (const Argument& argument : arguments.arrays) {
    const Array array = read_alike(first, argument);
    first.framework.require_usable(argument, array);
    const auto parts = static_cast<std::size_t>(argument.parts);
    const char* accepted = accepted_shapes[parts - 1];
    if (parts == 1 && rest.size() == 3) accepted = "(total_q, heads_q, head_dim)";
    if (parts == 1 && rest.size() == 2) accepted = "(total_k, heads_kv, head_dim)";
    if (parts == 1 && rest.size() == 1) accepted = "(total_k, heads_kv, head_dim_v)";
    const bool pages = paged && rest.size() < 3;
    split(argument, array, pages ? 4 : 3, pages ? cache_shape(arguments.block_table) : accepted, rest.first(parts));
    rest = rest.subspan(parts);
  }
  require_fit(operands[0], operands[1], operands[2]);
  return operands;
}

/// Rows that no launch would write are not what a caller asked for.
void require_queries(std::int32_t max_seqlen_q, const Operand& q, std::int32_t batch) {
  if (max_seqlen_q != 0 || q.shape[1] == 0 || batch == 0) return;
  raise(PyExc_ValueError,
        fmt::format("max_seqlen_q is 0, and {} of {} has rows; it must be at least the queries of any sequence", q.name,
                    q.text()));
}

/// On the device of q.
attune_prefill_args args_of(const VarlenArguments& arguments, const First& first,
                            const std::array<Operand, 3>& operands, Kept& kept) {
  const auto& [q, k, v] = operands;
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(first.array.element);
  args.q = padded_rows(first, arguments.arrays.front().array, q, kept);
  args.k = k.tensor;
  args.v = v.tensor;
  keep(kept, set_sequences(args, arguments, first));
  set_keys(args, arguments, first, k);
  args.seqlen_q = integer("max_seqlen_q", arguments.max_seqlen_q, "an integer");
  args.seqlen_k = integer("max_seqlen_k", arguments.max_seqlen_k, "an integer");
  if (!arguments.block_table.is_none() && args.block_table == nullptr) args.seqlen_k = 0;  // the table holds no pages
  require_queries(args.seqlen_q, q, args.batch);
  args.total_q = count("total_q", q.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.head_dim_v = count("head_dim_v", v.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(arguments.options.softmax_scale, q.shape[3]));
  args.causal = is_true(arguments.options.causal) ? 1 : 0;
  const Window window = window_of(arguments.options.window_size);
  args.window = 1;
  args.window_left = window.left;
  args.window_right = window.right;
  args.softcap = static_cast<float>(number("softcap", arguments.options.softcap));
  args.dropout = dropout_of(first, arguments.options.dropout_p, arguments.rng_state);
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
  const Entered entered(first.framework.addressed()->on_device(first.array.device));
  std::vector<nb::object> copies;
  std::vector<Argument> padded;
  for (const Argument& argument : arguments.arrays) {
    const Operand& of = argument.parts == 1 && padded.size() == 2 ? v : q;
    copies.push_back(first.framework.padded(argument.array, padded_head_dim(of.shape[3])));
    padded.push_back({argument.name, copies.back(), argument.parts});
  }
  const nb::object scale = nb::float_(scale_of(arguments.options.softmax_scale, q.shape[3]));
  VarlenArguments same = arguments;
  same.arrays = padded;
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
         args.window_right >= -1;
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
  nb::handle rng_state;

  static constexpr auto names =
      joined(std::array{"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}, Options::names,
             std::array{"block_table", "seqused_q", "seqused_k", "out", "rng_state"});
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
  nb::handle rng_state;

  static constexpr auto names =
      joined(std::array{"q", "kv", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"}, Options::names,
             std::array{"rng_state"});
};

/// Those of varlen_qkvpacked.
struct QkvPackedArguments {
  nb::handle qkv;
  nb::handle cu_seqlens;
  nb::handle max_seqlen;
  Options options;
  nb::handle rng_state;

  static constexpr auto names =
      joined(std::array{"qkv", "cu_seqlens", "max_seqlen"}, Options::names, std::array{"rng_state"});
};

nb::object varlen_apart(const ApartArguments& call) {
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
                 .rng_state = call.rng_state});
}

/// Without pages and without `out`.
nb::object varlen_packed(std::span<const Argument> arrays, nb::handle cu_seqlens_q, nb::handle cu_seqlens_k,
                         nb::handle max_seqlen_q, nb::handle max_seqlen_k, const Options& options,
                         nb::handle rng_state) {
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
                 .rng_state = rng_state});
}

nb::object varlen_kvpacked(const KvPackedArguments& call) {
  return varlen_packed(std::array{Argument{"q", call.q, 1}, Argument{"kv", call.kv, 2}}, call.cu_seqlens_q,
                       call.cu_seqlens_k, call.max_seqlen_q, call.max_seqlen_k, call.options, call.rng_state);
}

nb::object varlen_qkvpacked(const QkvPackedArguments& call) {
  return varlen_packed(std::array{Argument{"qkv", call.qkv, 3}}, call.cu_seqlens, call.cu_seqlens, call.max_seqlen,
                       call.max_seqlen, call.options, call.rng_state);
}

}  // namespace

void bind_varlen(nb::module_& module) {
  bind_call<&varlen_apart>(module, "varlen", "The output, or (output, LSE, None).");
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
  const bool return_lse = is_true(arguments.options.return_lse);

  nb::object out = nb::borrow(arguments.out);
  if (out.is_none()) {
    const std::int64_t columns = padded_head_dim(args.head_dim_v);
    const bool like_q = first.argument.parts == 1 && args.head_dim_v == args.head_dim && columns == args.head_dim_v;
    out = like_q ? framework.empty_like(first.argument.array)
                 : framework.empty(nb::make_tuple(args.total_q, args.heads_q, columns), first.argument.array);
    args.o = rows_tensor_of(framework.read("out", out));
    if (columns != args.head_dim_v) out = columns_before(out, args.head_dim_v);
  }
  nb::object lse;
  if (return_lse) {
    lse = framework.empty_float32(nb::make_tuple(args.heads_q, args.total_q), first.argument.array);
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
