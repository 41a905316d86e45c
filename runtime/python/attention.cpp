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
                         nb::handle rng_state, std::int64_t head_dim, std::int64_t head_dim_v) {
  const AddressedFramework* const addressed = first.framework.addressed();
  const Entered entered(addressed == nullptr ? nb::none() : addressed->on_device(first.array.device));
  std::vector<nb::object> copies;
  std::vector<Argument> padded;
  for (const Argument& argument : arguments) {
    const bool values_alone = argument.parts == 1 && padded.size() == 2;
    copies.push_back(first.framework.padded(argument.array, padded_head_dim(values_alone ? head_dim_v : head_dim)));
    padded.push_back({argument.name, copies.back(), argument.parts});
  }
  const nb::object scale = nb::float_(scale_of(options.softmax_scale, head_dim));
  Options with_scale = options;
  with_scale.softmax_scale = scale;
  return without_padding(attention(padded, with_scale, rng_state), head_dim_v);
}

/// The arguments of attention: q, k and v apart.
struct ApartArguments {
  nb::handle q;
  nb::handle k;
  nb::handle v;
  Options options;
  nb::handle rng_state;

  static constexpr auto names = joined(std::array{"q", "k", "v"}, Options::names, std::array{"rng_state"});
};

/// Those of attention_kvpacked.
struct KvPackedArguments {
  nb::handle q;
  nb::handle kv;
  Options options;
  nb::handle rng_state;

  static constexpr auto names = joined(std::array{"q", "kv"}, Options::names, std::array{"rng_state"});
};

/// Those of attention_qkvpacked.
struct QkvPackedArguments {
  nb::handle qkv;
  Options options;
  nb::handle rng_state;

  static constexpr auto names = joined(std::array{"qkv"}, Options::names, std::array{"rng_state"});
};

nb::object attention_apart(const ApartArguments& call) {
  return attention(std::array{Argument{"q", call.q, 1}, Argument{"k", call.k, 1}, Argument{"v", call.v, 1}},
                   call.options, call.rng_state);
}

nb::object attention_kvpacked(const KvPackedArguments& call) {
  return attention(std::array{Argument{"q", call.q, 1}, Argument{"kv", call.kv, 2}}, call.options, call.rng_state);
}

nb::object attention_qkvpacked(const QkvPackedArguments& call) {
  return attention(std::array{Argument{"qkv", call.qkv, 3}}, call.options, call.rng_state);
}

}  // namespace

void bind_attention(nb::module_& module) {
  bind_call<&attention_apart>(module, "attention", "The output, or (output, LSE, None).");
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

nb::object attention(std::span<const Argument> arguments, const Options& options, nb::handle rng_state) {
  const Argument& first = arguments.front();
  const First like = read_first(first);
  const Framework& framework = like.framework;
  std::array<Operand, 3> operands;
  std::span<Operand> rest(operands);
  for (const Argument& argument : arguments) {
    const Array array = read_alike(like, argument);
    framework.require_usable(argument, array);
    const auto parts = static_cast<std::size_t>(argument.parts);
    split(argument, array, 4, accepted_shapes[parts - 1], rest.first(parts));
    rest = rest.subspan(parts);
  }
  const auto& [q, k, v] = operands;
  require_fit(q, k, v);
  if (q.shape[3] != padded_head_dim(q.shape[3]) || v.shape[3] != padded_head_dim(v.shape[3])) {
    return attend_padded(arguments, like, options, rng_state, q.shape[3], v.shape[3]);
  }

  Call call{arguments, {}, like.array.device, is_true(options.return_lse)};
  attune_prefill_args& args = call.args;
  args.struct_size = sizeof(args);
  args.dtype = dtype_of(like.array.element);
  args.q = q.tensor;
  args.k = k.tensor;
  args.v = v.tensor;
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.seqlen_k = count("seqlen_k", k.shape[1]);
  args.heads_q = count("heads_q", q.shape[2]);
  args.heads_kv = count("heads_kv", k.shape[2]);
  args.head_dim = count("head_dim", q.shape[3]);
  args.head_dim_v = count("head_dim_v", v.shape[3]);
  args.softmax_scale = static_cast<float>(scale_of(options.softmax_scale, q.shape[3]));
  args.causal = is_true(options.causal) ? 1 : 0;
  const Window window = window_of(options.window_size);
  args.window = 1;
  args.window_left = window.left;
  args.window_right = window.right;
  args.softcap = static_cast<float>(number("softcap", options.softcap));
  args.dropout = dropout_of(like, options.dropout_p, rng_state);
  return framework.run(call);
}

}  // namespace attune::python
