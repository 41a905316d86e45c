#include "runtime/python/xla_handler.hpp"

#include <cstddef>
#include <exception>
#include <limits>
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
  throw Error(ATTUNE_INTERNAL_ERROR, "XLA called attune_prefill with other arguments than attune registered");
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

void launch(const xla::CallFrame& frame, void* stream) {
  // (q, k, v), (q, kv) or (qkv): the last argument holds what the others leave.
  const std::int64_t last = frame.arguments.size - 1;
  const xla::Buffer& first = buffer(frame.arguments, 0);
  const Packed q = packed(first, last == 0 ? 3 : 1);
  const Packed k = last == 0 ? q : packed(buffer(frame.arguments, 1), last == 1 ? 2 : 1);
  const Packed v = last == 2 ? packed(buffer(frame.arguments, 2), 1) : k;
  if (last > 2 || (first.dtype != xla::type_f16 && first.dtype != xla::type_bf16)) mismatch();
  attune_prefill_args args{};
  args.struct_size = sizeof(args);
  args.dtype = first.dtype == xla::type_bf16 ? ATTUNE_BF16 : ATTUNE_FP16;
  args.q = q[0];
  args.k = k[k.parts == 3 ? 1 : 0];
  args.v = v[v.parts - 1];
  args.o = packed(buffer(frame.results, 0), 1)[0];
  if (frame.results.size > 1) args.lse = static_cast<float*>(buffer(frame.results, 1).data);
  args.batch = narrow(q.batch);
  args.seqlen_q = narrow(q.seqlen);
  args.seqlen_k = narrow(k.seqlen);
  args.heads_q = narrow(q.heads);
  args.heads_kv = narrow(k.heads);
  args.head_dim = narrow(q.head_dim);
  args.head_dim_v = narrow(v.head_dim);
  args.causal = scalar<bool>(frame.attributes, 0, xla::type_pred) ? 1 : 0;
  args.softcap = scalar<float>(frame.attributes, 1, xla::type_f32);
  args.softmax_scale = scalar<float>(frame.attributes, 2, xla::type_f32);
  args.window = 1;
  args.window_left = scalar<std::int32_t>(frame.attributes, 3, xla::type_s32);
  args.window_right = scalar<std::int32_t>(frame.attributes, 4, xla::type_s32);
  attune_registry* const registry = registry_of(false);
  check(attune_prefill_workspace(registry, &args, &args.workspace_bytes));
  const xla::Scratch workspace(frame, args.workspace_bytes);  // results are the same without
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  check(attune_prefill(registry, &args, stream));
}

}  // namespace

xla::Error* xla_prefill(xla::CallFrame* frame) noexcept {
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
  } catch (const std::exception& failed) {
    return error(frame->api, xla::error_internal, failed.what());
  }
}

}  // namespace attune::python
