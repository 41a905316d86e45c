#include "runtime/python/xla_handler.hpp"

#include <cstddef>
#include <exception>
#include <limits>
#include <new>
#include <span>

#include "runtime/base/error.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/registries.hpp"
#include "runtime/python/xla_scratch.hpp"

namespace attune::python {
namespace {

xla::Error* error(const xla::Api* api, xla::ErrorCode code, const char* message) {
  xla::ErrorCreateArgs args{sizeof(args), nullptr, message, code};
  return api->error_create(&args);
}

xla::ErrorCode code_of(attune_status status) {
  switch (status) {
    case ATTUNE_INVALID_ARGUMENT:
      return xla::error_invalid_argument;
    case ATTUNE_UNSUPPORTED:
      return xla::error_unimplemented;
    case ATTUNE_NO_DEVICE:
    case ATTUNE_NOT_COMPILED:
      return xla::error_failed_precondition;
    default:
      return xla::error_internal;
  }
}

/// XLA asks every handler which version it was written for. Later minor versions change nothing that is used here, so
/// that it is XLA's own; the first one asks without its API.
void describe(const xla::CallFrame& frame) {
  xla::Metadata& metadata = *reinterpret_cast<xla::MetadataExtension*>(frame.extensions)->metadata;
  metadata.api_version.major_version = xla::major_version;
  metadata.api_version.minor_version =
      frame.api != nullptr ? frame.api->api_version.minor_version : xla::first_minor_version;
  metadata.traits = 0;
}

[[noreturn]] void mismatch() {
  throw Error(ATTUNE_INTERNAL_ERROR,
              "XLA called one of attune's functions with other arguments than attune registered");
}

const xla::Buffer& buffer(const xla::Buffers& buffers, std::int64_t index) {
  if (index >= buffers.size || buffers.types[index] != xla::argument_buffer) mismatch();
  return *static_cast<const xla::Buffer*>(buffers.values[index]);
}

template <class Value>
Value scalar(const xla::Attributes& attributes, std::int64_t index, xla::DataType type) {
  if (index >= attributes.size || attributes.types[index] != xla::attribute_scalar) mismatch();
  const auto& found = *static_cast<const xla::Scalar*>(attributes.values[index]);
  if (found.dtype != type) mismatch();
  return *static_cast<const Value*>(found.value);
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

/// Enters what attention and its gradients have in common: q, k and v, their shapes, and the attributes.
template <class Arguments>
void set_problem(Arguments& args, const xla::CallFrame& frame, const Inputs& inputs) {
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
  args.causal = scalar<bool>(frame.attributes, 0, xla::type_pred) ? 1 : 0;
  args.softcap = scalar<float>(frame.attributes, 1, xla::type_f32);
  args.softmax_scale = scalar<float>(frame.attributes, 2, xla::type_f32);
  args.window = 1;
  args.window_left = scalar<std::int32_t>(frame.attributes, 3, xla::type_s32);
  args.window_right = scalar<std::int32_t>(frame.attributes, 4, xla::type_s32);
}

void launch_prefill(const xla::CallFrame& frame, void* stream) {
  attune_prefill_args args{};
  set_problem(args, frame, inputs(frame.arguments, frame.arguments.size));
  args.o = packed(buffer(frame.results, 0), 1)[0];
  if (frame.results.size > 1) args.lse = static_cast<float*>(buffer(frame.results, 1).data);
  attune_registry* const registry = registry_of(false);
  check(attune_prefill_workspace(registry, &args, &args.workspace_bytes));
  const xla::Scratch workspace(frame, args.workspace_bytes);  // results are the same without
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  check(attune_prefill(registry, &args, stream));
}

void launch_backward(const xla::CallFrame& frame, void* stream) {
  const std::int64_t count = frame.results.size;
  const std::int64_t others = frame.arguments.size - count;  // out, softmax_lse, their gradients
  if (others != 3 && others != 4) mismatch();
  const auto other = [&](std::int64_t index) -> const xla::Buffer& { return buffer(frame.arguments, count + index); };
  const Inputs gradients = inputs(frame.results, count);
  attune_backward_args args{};
  set_problem(args, frame, inputs(frame.arguments, count));
  args.o = packed(other(0), 1)[0];
  args.lse = static_cast<const float*>(other(1).data);
  args.dout = packed(other(2), 1)[0];
  if (others == 4) args.dlse = static_cast<const float*>(other(3).data);
  args.dq = gradients.q_tensor();
  args.dk = gradients.k_tensor();
  args.dv = gradients.v_tensor();
  attune_registry* const registry = registry_of(false);
  check(attune_backward_workspace(registry, &args, &args.workspace_bytes));
  const xla::Scratch workspace(frame, args.workspace_bytes);
  if (workspace.bytes() < args.workspace_bytes) throw std::bad_alloc();
  args.workspace = workspace.data();
  check(attune_backward(registry, &args, stream));
}

using Launch = void(const xla::CallFrame& frame, void* stream);

xla::Error* handle(xla::CallFrame* frame, Launch* launch) noexcept {
  if (frame->extensions != nullptr && frame->extensions->type == xla::extension_metadata) {
    describe(*frame);
    return nullptr;
  }
  xla::StreamGetArgs current{sizeof(current), nullptr, frame->context, nullptr};
  if (xla::Error* failed = frame->api->stream_get(&current)) return failed;
  try {
    launch(*frame, current.stream);
    return nullptr;
  } catch (const Error& failed) {
    return error(frame->api, code_of(failed.status()), failed.what());
  } catch (const std::bad_alloc&) {
    return error(frame->api, xla::error_resource_exhausted, "no memory for the workspace of attune's gradients");
  } catch (const std::exception& failed) {
    return error(frame->api, xla::error_internal, failed.what());
  }
}

}  // namespace

xla::Error* xla_prefill(xla::CallFrame* frame) noexcept { return handle(frame, &launch_prefill); }

xla::Error* xla_backward(xla::CallFrame* frame) noexcept { return handle(frame, &launch_backward); }

}  // namespace attune::python
