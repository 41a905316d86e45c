#include "runtime/python/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
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
                         nb::handle rng_state, const ExpressionOptions* expressions, std::int64_t head_dim,
                         std::int64_t head_dim_v) {
  const AddressedFramework* const addressed = first.framework.addressed();
  const Entered entered(addressed == nullptr ? nb::none() : addressed->on_device(first.array.device));
  const PaddedCopies padded(first, arguments, head_dim, head_dim_v);
  const nb::object scale = nb::float_(scale_of(options.softmax_scale, head_dim));
  Options with_scale = options;
  with_scale.softmax_scale = scale;
  return without_padding(attention(padded.arguments(), with_scale, rng_state, expressions), head_dim_v);
}

/// What a call's expressions and arrays are, for as long as it takes.
class ExpressionArguments {
 public:
  ExpressionArguments(const First& first, const ExpressionOptions& options) {
    read_text("score", options.score, score_, has_score_);
    read_text("mask", options.mask, mask_, has_mask_);
    if (!nb::isinstance<nb::dict>(options.params)) raise(PyExc_TypeError, "params is no dict of arrays by their names");
    const auto params = nb::borrow<nb::dict>(options.params);
    names_.reserve(params.size());
    for (const auto& [name, array] : params) {
      if (!nb::isinstance<nb::str>(name)) raise(PyExc_TypeError, "params is no dict of arrays by their names");
      names_.emplace_back(nb::borrow<nb::str>(name).c_str());
      arrays_.push_back(read_array(first, names_.back().c_str(), array));
    }
  }
  ExpressionArguments(const ExpressionArguments&) = delete;
  ExpressionArguments& operator=(const ExpressionArguments&) = delete;

  void set(attune_prefill_args& args) const {
    args.score = has_score_ ? score_.c_str() : nullptr;
    args.mask = has_mask_ ? mask_.c_str() : nullptr;
    args.params = arrays_.data();
    args.param_count = static_cast<std::int32_t>(arrays_.size());
  }

 private:
  static void read_text(const char* name, nb::handle text, std::string& to, bool& is_given) {
    if (text.is_none()) return;
    if (!nb::isinstance<nb::str>(text)) raise(PyExc_TypeError, fmt::format("{} is no text of an expression", name));
    to = nb::borrow<nb::str>(text).c_str();
    is_given = true;
  }

  static attune_named_array read_array(const First& first, const char* name, nb::handle array) {
    const Argument argument{name, array, 1};
    const Array like = first.framework.read(name, array);
    const bool is_real = like.element == Element::float32;
    attune_named_array result{.name = name,
                              .data = nullptr,
                              .element = is_real ? ATTUNE_FP32 : ATTUNE_INT32,
                              .rank = like.rank,
                              .extents = {}};
    constexpr int most_dimensions = 4;
    if (like.rank < 1 || like.rank > most_dimensions) {
      raise(PyExc_ValueError, fmt::format("{} has shape {}; a parameter has 1 to {} dimensions", name,
                                          shape_text(argument), most_dimensions));
    }
    const std::array<std::int64_t, most_dimensions> any{-1, -1, -1, -1};
    const Array read = read_plain(first, name, array, is_real ? Element::float32 : Element::int32,
                                  std::span(any).first(static_cast<std::size_t>(like.rank)), "");
    require_contiguous(name, read);
    std::copy_n(read.shape.begin(), read.rank, result.extents);
    result.data = pointer<const void>(read.address);
    return result;
  }

  std::string score_;
  std::string mask_;
  bool has_score_ = false;
  bool has_mask_ = false;
  std::vector<std::string> names_;  ///< to which arrays_ points
  std::vector<attune_named_array> arrays_;
};

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

/// Those of expressed_attention.
struct ExpressedArguments {
  nb::handle q;
  nb::handle k;
  nb::handle v;
  Options options;
  ExpressionOptions expressions;

  static constexpr auto names = joined(std::array{"q", "k", "v"}, Options::names, ExpressionOptions::names);
};

nb::object expressed_attention(const ExpressedArguments& call) {
  return attention(std::array{Argument{"q", call.q, 1}, Argument{"k", call.k, 1}, Argument{"v", call.v, 1}},
                   call.options, nb::none(), &call.expressions);
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

nb::object attention(std::span<const Argument> arguments, const Options& options, nb::handle rng_state,
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
    return attend_padded(arguments, like, options, rng_state, expressions, q.shape[3], v.shape[3]);
  }

  Call call{arguments, {}, like.array.device, is_true(options.return_lse)};
  attune_prefill_args& args = call.args;
  set_tensors(args, like, q, k, v);
  args.batch = count("batch", q.shape[0]);
  args.seqlen_q = count("seqlen_q", q.shape[1]);
  args.seqlen_k = count("seqlen_k", k.shape[1]);
  set_scores(args, like, options, rng_state, q.shape[3]);
  if (expressions == nullptr) return framework.run(call);
  if (framework.addressed() == nullptr) {
    raise(PyExc_NotImplementedError,
          "attention with expressions serves arrays that have an address, and JAX's have none");
  }
  const ExpressionArguments given(like, *expressions);
  given.set(args);
  return framework.run(call);
}

}  // namespace attune::python
