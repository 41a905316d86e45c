// A libcuda.so.1 without a GPU: enough of the driver API to see what the library asks of it. Two
// devices. It offers nothing but cuGetProcAddress_v2 by name, as the library must not take anything else.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "runtime/gpu/driver_abi.hpp"
#include "tests/fake_driver/fake_cuda.hpp"

namespace {

using namespace attune::cuda;
using attune::testing::FakeCuda;

FakeCuda& state() {
  static FakeCuda fake;
  return fake;
}

int& capture_mode() {
  thread_local int mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
  return mode;
}

constexpr int device_count = 2;
constexpr std::uint32_t fatbin_magic = 0xBA55ED50;

Result init(unsigned) { return success; }
Result driver_get_version(int* version) { return *version = 13000, success; }

Result get_error_name(Result, const char** name) { return *name = "CUDA_ERROR_FAKED", success; }
Result get_error_string(Result, const char** text) { return *text = "as the test asked", success; }

Result device_get_count(int* count) { return *count = device_count, success; }
Result device_get(DeviceOrdinal* device, int ordinal) { return *device = ordinal, success; }
Result device_get_name(char* name, int length, DeviceOrdinal) {
  const std::string_view text = "Fake GPU";
  return length > static_cast<int>(text.size()) ? name[text.copy(name, text.size())] = '\0', success : 1;
}
Result device_get_attribute(int* value, Attribute attribute, DeviceOrdinal) {
  switch (attribute) {
    case device_capability_major:
      *value = state().capability / 10;
      break;
    case device_capability_minor:
      *value = state().capability % 10;
      break;
    case device_multiprocessor_count:
      *value = 132;
      break;
    case device_l2_cache_size:
      *value = 50 << 20;
      break;
    case device_shared_per_block_optin:
      *value = 227 * 1024;
      break;
    case device_shared_per_multiprocessor:
      *value = 228 * 1024;
      break;
    default:
      return 1;
  }
  return success;
}

Result primary_retain(Handle* context, DeviceOrdinal device) {
  return *context = reinterpret_cast<Handle>(static_cast<std::uintptr_t>(device) + 1), success;
}
Result primary_release(DeviceOrdinal) { return success; }
/// What a thread itself made current.
struct OwnContext {
  int resets = -1;  ///< it holds until the next one
  int device = -1;
};
OwnContext& own_context() {
  thread_local OwnContext own;
  return own;
}

/// The device of the thread's context; -1: it has none.
int device_of_thread() {
  const OwnContext& own = own_context();
  return own.resets == state().resets ? own.device : state().current_device.load();
}

Result ctx_set_current(Handle context) {
  own_context() = {state().resets, static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1};
  return success;
}
Result ctx_get_current(Handle* context) {
  return *context = reinterpret_cast<Handle>(static_cast<std::uintptr_t>(device_of_thread()) + 1), success;
}
Result ctx_get_device(DeviceOrdinal* device) {
  const int current = device_of_thread();
  return current < 0 ? error_invalid_context : (*device = current, success);
}
Result ctx_synchronize() { return success; }

Result stream_synchronize(Handle) { return success; }
Result stream_is_capturing(Handle, int* status) {
  return *status = state().capturing ? capture_status_none + 1 : capture_status_none, success;
}

Result exchange_capture_mode(int* mode) {
  const int before = capture_mode();
  capture_mode() = *mode;
  return *mode = before, success;
}

Result library_load_data(Handle* library, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  if (capture_mode() != capture_mode_relaxed) ++state().unrelaxed_loads;
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic == fatbin_magic && state().refuse_fatbins) return error_no_binary_for_gpu;
  if (const int failure = state().fail_load.exchange(0)) return failure;
  ++state().loads;
  return *library = std::malloc(1), success;
}
Result library_unload(Handle library) {
  ++state().unloads;
  std::free(library);
  return success;
}
// A library is one byte: which parameters its kernel takes.
enum class KernelKind : char { prefill, tensor_maps, listed, decode, combine, store, merge, check };
Result library_get_kernel(Handle* kernel, Handle library, const char* name) {
  const std::string_view text(name);
  const bool listed = text.ends_with("_list");
  *static_cast<KernelKind*>(library) = text.starts_with("prefill_sm90")
                                           ? (listed ? KernelKind::listed : KernelKind::tensor_maps)
                                       : text.starts_with("decode")   ? KernelKind::decode
                                       : text.starts_with("combine")  ? KernelKind::combine
                                       : text.starts_with("store_kv") ? KernelKind::store
                                       : text.starts_with("merge")    ? KernelKind::merge
                                       : text.starts_with("check")    ? KernelKind::check
                                                                      : KernelKind::prefill;
  return *kernel = library, success;
}
Result kernel_get_function(Handle* function, Handle kernel) { return *function = kernel, success; }
Result kernel_set_attribute(Attribute attribute, int value, Handle, DeviceOrdinal device) {
  if (attribute != function_max_dynamic_shared) return 1;
  state().loaded_for = device;
  state().shared_limit = value;
  return success;
}
Result func_get_attribute(int* value, Attribute, Handle) { return *value = 128, success; }
Result func_load(Handle) {
  state().warmed_for = device_of_thread();
  return ++state().warmed, success;
}

void note(attune::testing::FakeLaunch& launch, const LaunchConfig& config, Handle kernel, const void* params) {
  launch.grid = {.x = config.grid[0], .y = config.grid[1], .z = config.grid[2]};
  launch.block = config.block[0];
  launch.shared_bytes = config.shared_bytes;
  launch.stream = config.stream;
  launch.kernel = kernel;
  launch.overlaps = false;
  for (const LaunchAttribute& one : std::span(config.attributes, config.attribute_count)) {
    if (one.id == launch_programmatic_stream_serialization) launch.overlaps = one.value.allowed == 1;
    if (one.id == launch_cluster_dimension) launch.grid.cluster = one.value.cluster[1];
  }
  const KernelKind kind = *static_cast<const KernelKind*>(kernel);
  launch.combines = kind == KernelKind::combine;
  const auto keep = [params](auto& block) { std::memcpy(&block, params, sizeof(block)); };
  switch (kind) {
    case KernelKind::listed: {
      AttuneListedPrefillParams block{};
      keep(block);
      launch.tensor_params = block;
      launch.tiles = block.list;
      return;
    }
    case KernelKind::tensor_maps:
      return keep(launch.tensor_params);
    case KernelKind::prefill:
      return keep(launch.params);
    case KernelKind::decode:
    case KernelKind::combine:
      return keep(launch.decode_params);
    case KernelKind::store:
      return keep(launch.store_params);
    case KernelKind::merge:
      return keep(launch.merge_params);
    case KernelKind::check:
      return keep(launch.check_params);
  }
}

Result launch_kernel_ex(const LaunchConfig* config, Handle kernel, void** params, void**) {
  if (const int failure = state().fail_launch) return failure;
  if (*static_cast<const KernelKind*>(kernel) == KernelKind::check) {
    *static_cast<const AttuneCheckParams*>(params[0])->fault = state().table_fault;
  }
  const int before = state().launches.fetch_add(1, std::memory_order_relaxed);
  if (before == 0) note(state().last_launch, *config, kernel, params[0]);
  if (before == 1) note(state().second_launch, *config, kernel, params[0]);
  if (before == 2) note(state().third_launch, *config, kernel, params[0]);
  return success;
}

Result launch_kernel(Handle kernel, unsigned x, unsigned y, unsigned z, unsigned block, unsigned, unsigned,
                     unsigned shared_bytes, Handle stream, void** params, void** extra) {
  const LaunchConfig config{.grid = {x, y, z},
                            .block = {block, 1, 1},
                            .shared_bytes = shared_bytes,
                            .stream = stream,
                            .attributes = nullptr,
                            .attribute_count = 0};
  return launch_kernel_ex(&config, kernel, params, extra);
}

Result tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* base, const std::uint64_t* extents,
                               const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t*, int, int,
                               int, int) {
  if (rank != 4 && rank != 5) return 1;
  ++state().encoded_maps;
  attune::testing::FakeTensorMap fake{.type = type, .tensor = {}};
  fake.tensor.base = base;
  fake.tensor.rank = rank;
  std::copy_n(extents, rank, fake.tensor.extents.begin());
  std::copy_n(strides, rank - 1, fake.tensor.strides.begin());
  std::copy_n(box, rank, fake.tensor.box.begin());
  std::memcpy(map, &fake, sizeof(fake));
  return success;
}

Result mem_alloc(DevicePointer* pointer, std::size_t bytes) {
  return *pointer = reinterpret_cast<DevicePointer>(std::malloc(bytes)), success;
}
Result mem_free(DevicePointer pointer) { return std::free(reinterpret_cast<void*>(pointer)), success; }
Result memset_d8_async(DevicePointer to, unsigned char value, std::size_t bytes, Handle) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), success;
}
Result memcpy_htod(DevicePointer to, const void* from, std::size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), success;
}
Result memcpy_dtoh(void* to, DevicePointer from, std::size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), success;
}
Result event_create(Handle* event, unsigned) { return *event = std::malloc(1), success; }
Result event_record(Handle, Handle) { return success; }
Result event_synchronize(Handle) { return success; }
Result event_destroy(Handle event) { return std::free(event), success; }
Result event_elapsed_time(float* milliseconds, Handle, Handle) { return *milliseconds = 1.5F, success; }

struct Entry {
  std::string_view name;
  int introduced;
  void* address;
};

template <class Function>
Entry entry(std::string_view name, int introduced, Function* function) {
  return {name, introduced, reinterpret_cast<void*>(function)};
}

const auto& entries() {
  static const std::array table = {
      entry("cuInit", init_version, init),
      entry("cuDriverGetVersion", driver_get_version_version, driver_get_version),
      entry("cuGetErrorName", error_text_version, get_error_name),
      entry("cuGetErrorString", error_text_version, get_error_string),
      entry("cuDeviceGetCount", device_version, device_get_count),
      entry("cuDeviceGet", device_version, device_get),
      entry("cuDeviceGetName", device_version, device_get_name),
      entry("cuDeviceGetAttribute", device_version, device_get_attribute),
      entry("cuDevicePrimaryCtxRetain", primary_retain_version, primary_retain),
      entry("cuDevicePrimaryCtxRelease", primary_release_version, primary_release),
      entry("cuCtxSetCurrent", ctx_set_current_version, ctx_set_current),
      entry("cuCtxGetCurrent", ctx_get_current_version, ctx_get_current),
      entry("cuCtxGetDevice", ctx_version, ctx_get_device),
      entry("cuCtxSynchronize", ctx_version, ctx_synchronize),
      entry("cuStreamSynchronize", stream_version, stream_synchronize),
      entry("cuStreamIsCapturing", stream_is_capturing_version, stream_is_capturing),
      entry("cuThreadExchangeStreamCaptureMode", exchange_capture_mode_version, exchange_capture_mode),
      entry("cuLibraryLoadData", library_version, library_load_data),
      entry("cuLibraryUnload", library_version, library_unload),
      entry("cuLibraryGetKernel", library_version, library_get_kernel),
      entry("cuKernelGetFunction", library_version, kernel_get_function),
      entry("cuKernelSetAttribute", library_version, kernel_set_attribute),
      entry("cuFuncGetAttribute", func_get_attribute_version, func_get_attribute),
      entry("cuFuncLoad", func_load_version, func_load),
      entry("cuLaunchKernel", launch_kernel_version, launch_kernel),
      entry("cuLaunchKernelEx", launch_kernel_ex_version, launch_kernel_ex),
      entry("cuTensorMapEncodeTiled", tensor_map_version, tensor_map_encode_tiled),
      entry("cuMemAlloc", memory_version, mem_alloc),
      entry("cuMemFree", memory_version, mem_free),
      entry("cuMemsetD8Async", memory_version, memset_d8_async),
      entry("cuMemcpyHtoD", memory_version, memcpy_htod),
      entry("cuMemcpyDtoH", memory_version, memcpy_dtoh),
      entry("cuEventCreate", event_version, event_create),
      entry("cuEventRecord", event_version, event_record),
      entry("cuEventSynchronize", event_version, event_synchronize),
      entry("cuEventDestroy", event_destroy_version, event_destroy),
      entry("cuEventElapsedTime", event_version, event_elapsed_time),
  };
  return table;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] Result cuGetProcAddress_v2(const char* name, void** address, int version,
                                                          unsigned long long, int*) {
  *address = nullptr;
  for (const Entry& candidate : entries()) {
    if (!state().too_old && candidate.name == name && version >= candidate.introduced) *address = candidate.address;
  }
  return success;
}

[[gnu::visibility("default")]] FakeCuda* fake_cuda_state() { return &state(); }

[[gnu::visibility("default")]] int fake_cuda_capture_mode() { return capture_mode(); }

}  // extern "C"
