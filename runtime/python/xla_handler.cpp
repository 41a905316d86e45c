#include "runtime/python/xla_handler.hpp"

#include <exception>
#include <new>

#include "runtime/base/error.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/registries.hpp"
#include "runtime/python/xla_arguments.hpp"
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

void launch_prefill(const xla::CallFrame& frame, void* stream) {
  const XlaExpressions expressions(frame);
  attune_prefill_args args = prefill_arguments(frame, expressions);
  attune_registry* const registry = registry_of(false);
  check(attune_prefill_workspace(registry, &args, &args.workspace_bytes));
  const xla::Scratch workspace(frame, args.workspace_bytes);  // results are the same without
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  check(attune_prefill(registry, &args, stream));
}

void launch_backward(const xla::CallFrame& frame, void* stream) {
  const XlaExpressions expressions(frame);
  attune_backward_args args = backward_arguments(frame, expressions);
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
