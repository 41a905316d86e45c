#include "runtime/python/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/python/binding.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/operands.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// By the operands that lie in an array.
constexpr std::array accepted_shapes{"(batch, seqlen, heads, head_dim)", "(batch, seqlen, 2, heads, head_dim)",
                                     "(batch, seqlen, 3, heads, head_dim)"};

/// That the three shapes fit together.
void require_fit(const Operand& q, const Operand& k, const Operand& v) {
  if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3]) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} it must be ({}, seqlen_k, heads_kv, {})",
                                        k.name, k.text(), q.name, q.text(), q.shape[0], q.shape[3]));
  }
  if (!std::ranges::equal(std::span(v.shape).first(3), std::span(k.shape).first(3))) {
    raise(PyExc_ValueError, fmt::format("{} has shape {}; with {} of {} it must be ({}, {}, {}, head_dim_v)", v.name,
                                        v.text(), k.name, k.text(), k.shape[0], k.shape[1], k.shape[2]));
  }
  require_heads_divide(q, k);
}

/// The same call of arrays that are padded with zeros, which add nothing to any score: its result without their
/// columns.
nb::object attend_padded(std::span<const Argument> arguments, const First& first, const Options& options,
                         const Additions& additions, const ExpressionOptions* expressions, std::int64_t head_dim,
                         std::int64_t head_dim_v) {
  const Entered entered(first.framework.on_device(first.array.device));
  const PaddedCopies padded(first, arguments, head_dim, head_dim_v);
  const nb::object scale = nb::float_(scale_of(options.softmax_scale, head_dim));
  Options with_scale = options;
  with_scale.softmax_scale = scale;
  return without_padding(attention(padded.arguments(), with_scale, additions, expressions), head_dim_v);
}

/// The arguments of attention: q, k and v apart.
struct ApartArguments {
  nb::handle q;
  nb::handle k;
  nb::handle v;
  Options options;
  Additions additions;

  static constexpr auto names = joined(std::array{"q", "k", "v"}, Options::names, Additions::names);
};

/// Those of attention_kvpacked.
struct KvPackedArguments {
  nb::handle q;
  nb::handle kv;
  Options options;
  Additions additions;

  static constexpr auto names = joined(std::array{"q", "kv"}, Options::names, Additions::names);
};

/// Those of attention_qkvpacked.
struct QkvPackedArguments {
  nb::handle qkv;
  Options options;
  Additions additions;

  static constexpr auto names = joined(std::array{"qkv"}, Options::names, Additions::names);
};

nb::object attention_apart(const ApartArguments& call, const ExpressionOptions* expressions) {
  return attention(std::array{Argument{"q", call.q, 1}, Argument{"k", call.k, 1}, Argument{"v", call.v, 1}},
                   call.options, call.additions, expressions);
}

nb::object attention_plain(const ApartArguments& call) { return attention_apart(call, nullptr); }

/// Those of expressed_attention.
struct ExpressedArguments {
  ApartArguments apart;
  ExpressionOptions expressions;

  static constexpr auto names = joined(ApartArguments::names, ExpressionOptions::names);
};

nb::object expressed_attention(const ExpressedArguments& call) {
  return attention_apart(call.apart, &call.expressions);
}

nb::object attention_kvpacked(const KvPackedArguments& call) {
  return attention(std::array{Argument{"q", call.q, 1}, Argument{"kv", call.kv, 2}}, call.options, call.additions);
}

nb::object attention_qkvpacked(const QkvPackedArguments& call) {
  return attention(std::array{Argument{"qkv", call.qkv, 3}}, call.options, call.additions);
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_call<&attention_plain>(module, "attention", "The output, or (output, LSE, None).");
  bind_call<&expressed_attention>(module, "expressed_attention", "attention() with expressions of scores and masks.");
  bind_call<&attention_kvpacked>(module, "attention_kvpacked", "attention() of keys and values in one array.");
  bind_call<&attention_qkvpacked>(module, "attention_qkvpacked",
                                  "attention() of queries, keys and values in one array.");
}

nb::object without_padding(const nb::object& result, std::int64_t head_dim) {
  if (!nb::isinstance<nb::tuple>(result)) return columns_before(result, head_dim);
  nb::list parts;
  for (const nb::handle one : result) {
    parts.append(parts.size() == 0 ? columns_before(one, head_dim) : nb::borrow(one));
  }
  return nb::steal(PyList_AsTuple(parts.ptr()));
}

nb::object attention(std::span<const Argument> arguments, const Options& options, const Additions& additions,
                     const ExpressionOptions* expressions) {
  const Argument& first = arguments.front();
  const First like = read_first(first);
  const Framework& framework = like.framework;
  std::array<Operand, 3> operands;
  std::span<Operand> rest(operands);
  for (const Argument& argument : arguments) {
    const char* const accepted = accepted_shapes[static_cast<std::size_t>(argument.parts) - 1];
    rest = read_parts(like, argument, 4, accepted, rest);
  }
  const auto& [q, k, v] = operands;
  require_fit(q, k, v);
  if (q.shape[3] != padded_head_dim(q.shape[3]) || v.shape[3] != padded_head_dim(v.shape[3])) {
    return attend_padded(arguments, like, options, additions, expressions, q.shape[3], v.shape[3]);
  }

  Call call{arguments, {}, like.array.device, is_true(options.return_lse), {}, {}, additions.rng_state};
  attune_prefill_args& args = call.args;
  set_tensors(args, like, q, k, v);
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.seqlen_k = count("seqlen_k", k.shape[1]);
  set_scores(args, like, options, additions.rng_state, q.shape[3]);
  const ExpressionArguments scores(
      like, options.alibi_slopes, additions.learnable_sink, expressions,
      {.batch = args.batch, .heads_q = args.heads_q, .causal = args.causal != 0 || args.window_right == 0});
  scores.set(args);
  call.params = scores.arrays();
  call.sink = scores.sink();
  return framework.run(call);
}

}  // namespace attune::python
