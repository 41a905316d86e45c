#include "runtime/python/xla_arguments.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>

#include "runtime/base/error.hpp"

namespace attune::python {
namespace {

[[noreturn]] void mismatch() {
  throw Error(ATTUNE_INTERNAL_ERROR,
              "XLA called one of attune's functions with other arguments than attune registered");
}

const xla::Buffer& buffer(const xla::Buffers& buffers, std::int64_t index) {
  if (index >= buffers.size || buffers.types[index] != xla::argument_buffer) mismatch();
  return *static_cast<const xla::Buffer*>(buffers.values[index]);
}

/// The value of the attribute of this name, which must be of this kind.
const void* attribute(const xla::Attributes& attributes, std::string_view name, int kind) {
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    const xla::ByteSpan& found = *attributes.names[i];
    if (std::string_view(found.data, found.size) != name) continue;
    if (attributes.types[i] != kind) break;
    return attributes.values[i];
  }
  mismatch();
}

template <class Value>
Value scalar(const xla::Attributes& attributes, std::string_view name, xla::DataType type) {
  const auto& found = *static_cast<const xla::Scalar*>(attribute(attributes, name, xla::attribute_scalar));
  if (found.dtype != type) mismatch();
  return *static_cast<const Value*>(found.value);
}

std::string_view text(const xla::Attributes& attributes, std::string_view name) {
  const auto& found = *static_cast<const xla::ByteSpan*>(attribute(attributes, name, xla::attribute_text));
  return {found.data, found.size};
}

std::int32_t narrow(std::int64_t extent) {
  if (extent > std::numeric_limits<std::int32_t>::max()) throw Error(ATTUNE_INVALID_ARGUMENT, "an extent exceeds 2^31");
  return static_cast<std::int32_t>(extent);
}

/// A buffer that holds `parts` arrays (batch, seqlen, heads, head_dim), along a dimension before heads where there are
/// several. Whatever comes before seqlen is batch.
struct Packed {
  void* data;
  std::int64_t batch;
  std::int64_t seqlen;
  std::int64_t parts;
  std::int64_t heads;
  std::int64_t head_dim;

  /// One of the arrays.
  [[nodiscard]] attune_tensor operator[](std::int64_t part) const {
    constexpr std::int64_t element_bytes = 2;
    const std::int64_t row = heads * head_dim;
    return {static_cast<std::byte*>(data) + part * row * element_bytes, seqlen * parts * row, parts * row, head_dim};
  }
};

Packed packed(const xla::Buffer& buffer, std::int64_t parts) {
  const std::size_t own = parts > 1 ? 4 : 3;  // dimensions that are no batch
  if (buffer.rank <= static_cast<std::int64_t>(own)) mismatch();
  const std::span dims(buffer.dims, static_cast<std::size_t>(buffer.rank));
  const auto last = dims.last(own);
  if (parts > 1 && last[1] != parts) mismatch();
  Packed result{buffer.data, 1, last.front(), parts, last[own - 2], last.back()};
  for (const std::int64_t extent : dims.first(dims.size() - own)) result.batch *= extent;
  return result;
}

/// What q, k and v are, or their gradients: three buffers, two (q, kv) or one (qkv).
struct Inputs {
  Packed q;
  Packed k;
  Packed v;

  [[nodiscard]] attune_tensor q_tensor() const { return q[0]; }
  [[nodiscard]] attune_tensor k_tensor() const { return k[k.parts == 3 ? 1 : 0]; }
  [[nodiscard]] attune_tensor v_tensor() const { return v[v.parts - 1]; }
};

/// The first `count` of the buffers.
Inputs inputs(const xla::Buffers& buffers, std::int64_t count) {
  if (count < 1 || count > 3) mismatch();
  const Packed q = packed(buffer(buffers, 0), count == 1 ? 3 : 1);
  const Packed k = count == 1 ? q : packed(buffer(buffers, 1), count == 2 ? 2 : 1);
  return {q, k, count == 3 ? packed(buffer(buffers, 2), 1) : k};
}

/// An array that expressions look up.
attune_named_array named(const xla::Buffer& buffer, const std::string& name) {
  attune_named_array array{.name = name.c_str(),
                           .data = buffer.data,
                           .element = buffer.dtype == xla::type_f32 ? ATTUNE_FP32 : ATTUNE_INT32,
                           .rank = narrow(buffer.rank),
                           .extents = {}};
  if (buffer.dtype != xla::type_f32 && buffer.dtype != xla::type_s32) mismatch();
  if (buffer.rank > static_cast<std::int64_t>(std::size(array.extents))) mismatch();
  std::copy_n(buffer.dims, buffer.rank, array.extents);
  return array;
}

/// Enters what attention and its gradients have in common: q, k and v, their shapes, the attributes and expressions.
template <class Arguments>
void set_problem(Arguments& args, const xla::CallFrame& frame, const Inputs& inputs,
                 const XlaExpressions& expressions) {
  const xla::DataType dtype = buffer(frame.arguments, 0).dtype;
  if (dtype != xla::type_f16 && dtype != xla::type_bf16) mismatch();
  args.struct_size = sizeof(args);
  args.dtype = dtype == xla::type_bf16 ? ATTUNE_BF16 : ATTUNE_FP16;
  args.q = inputs.q_tensor();
  args.k = inputs.k_tensor();
  args.v = inputs.v_tensor();
  args.batch = narrow(inputs.q.batch);
  args.seqlen_q = narrow(inputs.q.seqlen);
  args.seqlen_k = narrow(inputs.k.seqlen);
  args.heads_q = narrow(inputs.q.heads);
  args.heads_kv = narrow(inputs.k.heads);
  args.head_dim = narrow(inputs.q.head_dim);
  args.head_dim_v = narrow(inputs.v.head_dim);
  args.causal = scalar<bool>(frame.attributes, "causal", xla::type_pred) ? 1 : 0;
  args.softcap = scalar<float>(frame.attributes, "softcap", xla::type_f32);
  args.softmax_scale = scalar<float>(frame.attributes, "softmax_scale", xla::type_f32);
  args.window = 1;
  args.window_left = scalar<std::int32_t>(frame.attributes, "window_left", xla::type_s32);
  args.window_right = scalar<std::int32_t>(frame.attributes, "window_right", xla::type_s32);
  args.score = expressions.score.empty() ? nullptr : expressions.score.c_str();
  args.mask = expressions.mask.empty() ? nullptr : expressions.mask.c_str();
  args.dropout.p = scalar<float>(frame.attributes, "dropout_p", xla::type_f32);
  args.params = expressions.params.data();
  args.param_count = narrow(static_cast<std::int64_t>(expressions.params.size()));
}

/// Whether a buffer with seed and offset is the last before the arrays of expressions.
bool drops(const xla::CallFrame& frame) { return scalar<float>(frame.attributes, "dropout_p", xla::type_f32) != 0; }

/// Seed and offset: four halves, each one's lower half first.
const std::int64_t* dropout_state(const xla::CallFrame& frame, std::int64_t index) {
  const xla::Buffer& state = buffer(frame.arguments, index);
  if (state.dtype != xla::type_s32 || state.rank != 1 || state.dims[0] != 4) mismatch();
  return static_cast<const std::int64_t*>(state.data);
}

}  // namespace

XlaExpressions::XlaExpressions(const xla::CallFrame& frame)
    : score(text(frame.attributes, "score")), mask(text(frame.attributes, "mask")) {
  for (std::string_view rest = text(frame.attributes, "params"); !rest.empty();) {
    const std::size_t end = rest.find(' ');
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  const auto count = static_cast<std::int64_t>(names.size());
  others = frame.arguments.size - count;
  if (others < 1) mismatch();
  for (std::int64_t i = 0; i < count; ++i) {
    params.push_back(named(buffer(frame.arguments, others + i), names[static_cast<std::size_t>(i)]));
  }
}

attune_prefill_args prefill_arguments(const xla::CallFrame& frame, const XlaExpressions& expressions) {
  attune_prefill_args args{};
  const bool has_sink = scalar<bool>(frame.attributes, "sink", xla::type_pred);
  const bool has_dropout = drops(frame);
  const std::int64_t count = expressions.others - (has_sink ? 1 : 0) - (has_dropout ? 1 : 0);
  set_problem(args, frame, inputs(frame.arguments, count), expressions);
  if (has_sink) {
    const xla::Buffer& sink = buffer(frame.arguments, count);
    args.sink_like_q = sink.dtype == xla::type_f32 ? 0 : 1;
    if (args.sink_like_q != 0 && sink.dtype != buffer(frame.arguments, 0).dtype) mismatch();
    args.sink = sink.data;
  }
  if (has_dropout) args.dropout.state = dropout_state(frame, expressions.others - 1);
  args.o = packed(buffer(frame.results, 0), 1)[0];
  if (frame.results.size > 1) args.lse = static_cast<float*>(buffer(frame.results, 1).data);
  return args;
}

attune_backward_args backward_arguments(const xla::CallFrame& frame, const XlaExpressions& expressions) {
  const std::int64_t count = frame.results.size;
  const bool has_dropout = drops(frame);
  const std::int64_t more = expressions.others - count - (has_dropout ? 1 : 0);  // out, softmax_lse, their gradients
  if (more != 3 && more != 4) mismatch();
  const auto other = [&](std::int64_t index) -> const xla::Buffer& { return buffer(frame.arguments, count + index); };
  const Inputs gradients = inputs(frame.results, count);
  attune_backward_args args{};
  set_problem(args, frame, inputs(frame.arguments, count), expressions);
  args.o = packed(other(0), 1)[0];
  args.lse = static_cast<const float*>(other(1).data);
  args.dout = packed(other(2), 1)[0];
  if (more == 4) args.dlse = static_cast<const float*>(other(3).data);
  if (has_dropout) args.dropout.state = dropout_state(frame, expressions.others - 1);
  args.dq = gradients.q_tensor();
  args.dk = gradients.k_tensor();
  args.dv = gradients.v_tensor();
  return args;
}

}  // namespace attune::python
