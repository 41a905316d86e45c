#include "runtime/gpu/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

#include "runtime/base/error.hpp"
#include "runtime/gpu/driver_abi.hpp"

namespace attune {
namespace {

cuda::DevicePointer device_address(const void* pointer) { return reinterpret_cast<cuda::DevicePointer>(pointer); }

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

struct Driver::Api {
  cuda::GetProcAddress* get_proc_address = nullptr;
  cuda::GetErrorText* get_error_name = nullptr;
  cuda::GetErrorText* get_error_string = nullptr;
  cuda::DeviceGetCount* device_get_count = nullptr;
  cuda::DeviceGet* device_get = nullptr;
  cuda::DeviceGetName* device_get_name = nullptr;
  cuda::DeviceGetAttribute* device_get_attribute = nullptr;
  cuda::PrimaryRetain* primary_retain = nullptr;
  cuda::PrimaryRelease* primary_release = nullptr;
  cuda::CtxSetCurrent* ctx_set_current = nullptr;
  cuda::CtxGetCurrent* ctx_get_current = nullptr;
  cuda::CtxGetDevice* ctx_get_device = nullptr;
  cuda::CtxSynchronize* ctx_synchronize = nullptr;
  cuda::StreamSynchronize* stream_synchronize = nullptr;
  cuda::StreamIsCapturing* stream_is_capturing = nullptr;
  cuda::ExchangeCaptureMode* exchange_capture_mode = nullptr;
  cuda::LibraryLoadData* library_load_data = nullptr;
  cuda::LibraryUnload* library_unload = nullptr;
  cuda::LibraryGetKernel* library_get_kernel = nullptr;
  cuda::KernelGetFunction* kernel_get_function = nullptr;
  cuda::KernelSetAttribute* kernel_set_attribute = nullptr;
  cuda::FuncGetAttribute* func_get_attribute = nullptr;
  cuda::FuncLoad* func_load = nullptr;  // null before CUDA 12.4
  cuda::LaunchKernel* launch_kernel = nullptr;
  cuda::LaunchKernelEx* launch_kernel_ex = nullptr;
  cuda::TensorMapEncodeTiled* tensor_map_encode_tiled = nullptr;
  cuda::MemAlloc* mem_alloc = nullptr;
  cuda::MemFree* mem_free = nullptr;
  cuda::MemsetD8Async* memset_d8_async = nullptr;
  cuda::MemcpyHtoD* memcpy_htod = nullptr;
  cuda::MemcpyDtoH* memcpy_dtoh = nullptr;
  cuda::EventCreate* event_create = nullptr;
  cuda::EventRecord* event_record = nullptr;
  cuda::EventSynchronize* event_synchronize = nullptr;
  cuda::EventDestroy* event_destroy = nullptr;
  cuda::EventElapsedTime* event_elapsed_time = nullptr;
  int version = 0;

  std::mutex retained_mutex;
  std::vector<std::pair<int, cuda::Handle>> retained;  ///< primary contexts that make_current() holds

  /// The entry point of that name whose ABI appeared in `introduced`, or null when the driver has none.
  void* find(const char* name, int introduced) const {
    void* address = nullptr;
    int status = 0;
    const cuda::Result result = get_proc_address(name, &address, introduced, 0, &status);
    return result == cuda::success ? address : nullptr;
  }

  template <class Function>
  void require(Function*& slot, const char* name, int introduced) const {
    slot = reinterpret_cast<Function*>(find(name, introduced));
    if (slot == nullptr) {
      throw Error(ATTUNE_NO_DEVICE, fmt::format("the NVIDIA driver has no {} (CUDA {}); Attune needs a driver for CUDA "
                                                "12.0 or newer (525.60 or newer)",
                                                name, cuda_version_text(introduced)));
    }
  }

  void resolve();

  [[nodiscard]] std::string error_text(cuda::Result result) const {
    const char* name = nullptr;
    const char* description = nullptr;
    if (get_error_name(result, &name) != cuda::success || name == nullptr) name = "CUDA_ERROR";
    if (get_error_string(result, &description) != cuda::success || description == nullptr) description = "unknown";
    return fmt::format("{} ({})", name, description);
  }

  void check(cuda::Result result, const char* call, attune_status status = ATTUNE_DRIVER_ERROR) const {
    if (result != cuda::success) fail(result, call, status);
  }

  [[noreturn]] void fail(cuda::Result result, const char* call, attune_status status) const {
    // An image without code for this GPU is no fault of the driver: another image may serve.
    if (result == cuda::error_no_binary_for_gpu || result == cuda::error_unsupported_ptx_version) {
      status = ATTUNE_UNSUPPORTED;
    }
    throw Error(status, fmt::format("{} failed: {}", call, error_text(result)));
  }

  [[nodiscard]] int attribute(cuda::Attribute attribute, cuda::DeviceOrdinal device) const {
    int value = 0;
    check(device_get_attribute(&value, attribute, device), "cuDeviceGetAttribute");
    return value;
  }

  /// Brings the kernel's code into the current context: lazy loading would do so at the first launch,
  /// which may be inside a graph capture.
  void warm(cuda::Handle kernel) const {
    cuda::Handle function = nullptr;
    check(kernel_get_function(&function, kernel), "cuKernelGetFunction");
    if (func_load != nullptr) check(func_load(function), "cuFuncLoad");
    int registers = 0;
    check(func_get_attribute(&registers, cuda::function_num_regs, function), "cuFuncGetAttribute");
  }
};

namespace {

/// While it lives, this thread's driver calls neither break nor are refused for a capture in progress.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(cuda::ExchangeCaptureMode* exchange) : exchange_(exchange) { exchange_(&mode_); }
  ~RelaxedCapture() { exchange_(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cuda::ExchangeCaptureMode* exchange_;
  int mode_ = cuda::capture_mode_relaxed;
};

}  // namespace

void Driver::Api::resolve() {
  require(get_error_name, "cuGetErrorName", cuda::error_text_version);
  require(get_error_string, "cuGetErrorString", cuda::error_text_version);
  require(device_get_count, "cuDeviceGetCount", cuda::device_version);
  require(device_get, "cuDeviceGet", cuda::device_version);
  require(device_get_name, "cuDeviceGetName", cuda::device_version);
  require(device_get_attribute, "cuDeviceGetAttribute", cuda::device_version);
  require(primary_retain, "cuDevicePrimaryCtxRetain", cuda::primary_retain_version);
  require(primary_release, "cuDevicePrimaryCtxRelease", cuda::primary_release_version);
  require(ctx_set_current, "cuCtxSetCurrent", cuda::ctx_set_current_version);
  require(ctx_get_current, "cuCtxGetCurrent", cuda::ctx_get_current_version);
  require(ctx_get_device, "cuCtxGetDevice", cuda::ctx_version);
  require(ctx_synchronize, "cuCtxSynchronize", cuda::ctx_version);
  require(stream_synchronize, "cuStreamSynchronize", cuda::stream_version);
  require(stream_is_capturing, "cuStreamIsCapturing", cuda::stream_is_capturing_version);
  require(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", cuda::exchange_capture_mode_version);
  require(library_load_data, "cuLibraryLoadData", cuda::library_version);
  require(library_unload, "cuLibraryUnload", cuda::library_version);
  require(library_get_kernel, "cuLibraryGetKernel", cuda::library_version);
  require(kernel_get_function, "cuKernelGetFunction", cuda::library_version);
  require(kernel_set_attribute, "cuKernelSetAttribute", cuda::library_version);
  require(func_get_attribute, "cuFuncGetAttribute", cuda::func_get_attribute_version);
  func_load = reinterpret_cast<cuda::FuncLoad*>(find("cuFuncLoad", cuda::func_load_version));
  require(launch_kernel, "cuLaunchKernel", cuda::launch_kernel_version);
  require(launch_kernel_ex, "cuLaunchKernelEx", cuda::launch_kernel_ex_version);
  require(tensor_map_encode_tiled, "cuTensorMapEncodeTiled", cuda::tensor_map_version);
  require(mem_alloc, "cuMemAlloc", cuda::memory_version);
  require(mem_free, "cuMemFree", cuda::memory_version);
  require(memset_d8_async, "cuMemsetD8Async", cuda::memory_version);
  require(memcpy_htod, "cuMemcpyHtoD", cuda::memory_version);
  require(memcpy_dtoh, "cuMemcpyDtoH", cuda::memory_version);
  require(event_create, "cuEventCreate", cuda::event_version);
  require(event_record, "cuEventRecord", cuda::event_version);
  require(event_synchronize, "cuEventSynchronize", cuda::event_version);
  require(event_destroy, "cuEventDestroy", cuda::event_destroy_version);
  require(event_elapsed_time, "cuEventElapsedTime", cuda::event_version);
}

Driver::Driver() : api_(std::make_unique<Api>()) {
  // Never closed again: the driver keeps threads and exit handlers of its own.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ATTUNE_NO_DEVICE, fmt::format("no NVIDIA driver: cannot open libcuda.so.1 ({}); install the driver, or "
                                              "put its folder in LD_LIBRARY_PATH",
                                              reason != nullptr ? reason : "no reason given"));
  }
  api_->get_proc_address = reinterpret_cast<cuda::GetProcAddress*>(dlsym(library, "cuGetProcAddress_v2"));
  if (api_->get_proc_address == nullptr) {
    throw Error(ATTUNE_NO_DEVICE,
                "the NVIDIA driver has no cuGetProcAddress_v2: it is older than CUDA 12.0; Attune needs driver 525.60 "
                "or newer");
  }
  cuda::Init* init = nullptr;
  cuda::DriverGetVersion* get_version = nullptr;
  api_->require(init, "cuInit", cuda::init_version);
  api_->require(get_version, "cuDriverGetVersion", cuda::driver_get_version_version);
  api_->resolve();
  api_->check(init(0), "cuInit", ATTUNE_NO_DEVICE);
  api_->check(get_version(&api_->version), "cuDriverGetVersion");
}

Driver::~Driver() {
  for (const auto& [ordinal, context] : api_->retained) {
    cuda::DeviceOrdinal device = 0;
    if (api_->device_get(&device, ordinal) == cuda::success) api_->primary_release(device);
  }
}

std::string Driver::version() const { return cuda_version_text(api_->version); }

int Driver::device_count() const {
  int count = 0;
  api_->check(api_->device_get_count(&count), "cuDeviceGetCount");
  return count;
}

Device Driver::device(int ordinal) const {
  cuda::DeviceOrdinal handle = 0;
  api_->check(api_->device_get(&handle, ordinal), "cuDeviceGet");
  std::array<char, 256> name{};
  api_->check(api_->device_get_name(name.data(), static_cast<int>(name.size()) - 1, handle), "cuDeviceGetName");
  Device device;
  device.ordinal = ordinal;
  device.name = name.data();
  device.capability = 10 * api_->attribute(cuda::device_capability_major, handle) +
                      api_->attribute(cuda::device_capability_minor, handle);
  device.multiprocessors = api_->attribute(cuda::device_multiprocessor_count, handle);
  device.shared_per_block = api_->attribute(cuda::device_shared_per_block_optin, handle);
  device.shared_per_sm = api_->attribute(cuda::device_shared_per_multiprocessor, handle);
  device.l2_bytes = api_->attribute(cuda::device_l2_cache_size, handle);
  return device;
}

std::optional<int> Driver::current_device() const {
  cuda::DeviceOrdinal device = 0;
  const cuda::Result result = api_->ctx_get_device(&device);
  if (result == cuda::error_invalid_context) return std::nullopt;
  api_->check(result, "cuCtxGetDevice");
  return device;
}

void* Driver::current_context() const {
  cuda::Handle context = nullptr;
  api_->check(api_->ctx_get_current(&context), "cuCtxGetCurrent");
  return context;
}

void Driver::use_context(void* context) const { api_->check(api_->ctx_set_current(context), "cuCtxSetCurrent"); }

void Driver::make_current(int ordinal) const {
  const std::lock_guard lock(api_->retained_mutex);
  auto held = std::ranges::find(api_->retained, ordinal, &std::pair<int, cuda::Handle>::first);
  if (held == api_->retained.end()) {
    cuda::DeviceOrdinal device = 0;
    cuda::Handle context = nullptr;
    api_->check(api_->device_get(&device, ordinal), "cuDeviceGet");
    api_->check(api_->primary_retain(&context, device), "cuDevicePrimaryCtxRetain");
    held = api_->retained.insert(api_->retained.end(), {ordinal, context});
  }
  api_->check(api_->ctx_set_current(held->second), "cuCtxSetCurrent");
}

KernelHandle Driver::load(std::string_view image, const std::string& name, int shared_bytes, int ordinal) const {
  const RelaxedCapture relaxed(api_->exchange_capture_mode);
  KernelHandle kernel;
  api_->check(api_->library_load_data(&kernel.library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              "cuLibraryLoadData");
  try {
    cuda::DeviceOrdinal device = 0;
    api_->check(api_->device_get(&device, ordinal), "cuDeviceGet");
    api_->check(api_->library_get_kernel(&kernel.function, kernel.library, name.c_str()), "cuLibraryGetKernel");
    api_->check(api_->kernel_set_attribute(cuda::function_max_dynamic_shared, shared_bytes, kernel.function, device),
                "cuKernelSetAttribute");
    api_->warm(kernel.function);
  } catch (...) {
    unload(kernel);
    throw;
  }
  return kernel;
}

void Driver::warm(KernelHandle kernel) const {
  const RelaxedCapture relaxed(api_->exchange_capture_mode);
  api_->warm(kernel.function);
}

void Driver::unload(KernelHandle kernel) const noexcept {
  // A driver that is already shut down (process exit) has unloaded it itself.
  if (kernel.library != nullptr) api_->library_unload(kernel.library);
}

void Driver::launch(KernelHandle kernel, const Grid& grid, int threads, int shared_bytes, void* stream,
                    const void* params, LaunchOrder order) const {
  // The driver copies the parameters before it returns and does not write to them.
  std::array<void*, 1> arguments = {const_cast<void*>(params)};
  std::array<cuda::LaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (order == LaunchOrder::overlapping) {
    attributes[count].id = cuda::launch_programmatic_stream_serialization;
    attributes[count++].value.allowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[count].id = cuda::launch_cluster_dimension;
    std::ranges::copy(std::array{1U, grid.cluster, 1U}, attributes[count++].value.cluster);
  }
  if (count > 0) {
    const cuda::LaunchConfig config{.grid = {grid.x, grid.y, grid.z},
                                    .block = {static_cast<unsigned>(threads), 1, 1},
                                    .shared_bytes = static_cast<unsigned>(shared_bytes),
                                    .stream = stream,
                                    .attributes = attributes.data(),
                                    .attribute_count = count};
    api_->check(api_->launch_kernel_ex(&config, kernel.function, arguments.data(), nullptr), "cuLaunchKernelEx");
    return;
  }
  const cuda::Result result =
      api_->launch_kernel(kernel.function, grid.x, grid.y, grid.z, static_cast<unsigned>(threads), 1, 1,
                          static_cast<unsigned>(shared_bytes), stream, arguments.data(), nullptr);
  api_->check(result, "cuLaunchKernel");
}

bool Driver::is_capturing(void* stream) const {
  int status = cuda::capture_status_none;
  api_->check(api_->stream_is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != cuda::capture_status_none;
}

void Driver::synchronize(void* stream) const { api_->check(api_->stream_synchronize(stream), "cuStreamSynchronize"); }

AttuneTensorMap Driver::encode(const TensorDescription& tensor) const {
  constexpr std::array<std::uint32_t, 5> every_element{1, 1, 1, 1, 1};
  alignas(128) AttuneTensorMap map;  // as cuda.h has it from CUDA 13 on
  const cuda::Result result = api_->tensor_map_encode_tiled(
      map.opaque, tensor.dtype == Dtype::fp16 ? cuda::tensor_map_float16 : cuda::tensor_map_bfloat16, tensor.rank,
      const_cast<void*>(tensor.base), tensor.extents.data(), tensor.strides.data(), tensor.box.data(),
      every_element.data(), cuda::tensor_map_interleave_none, cuda::tensor_map_swizzle_128B,
      cuda::tensor_map_l2_promotion_128B, cuda::tensor_map_fill_zeros);
  api_->check(result, "cuTensorMapEncodeTiled");
  return map;
}

void* Driver::allocate(std::size_t bytes) const {
  cuda::DevicePointer pointer = 0;
  api_->check(api_->mem_alloc(&pointer, bytes), "cuMemAlloc");
  return std::bit_cast<void*>(pointer);
}

void Driver::free(void* pointer) const noexcept {
  if (pointer != nullptr) api_->mem_free(device_address(pointer));
}

void Driver::clear(void* pointer, std::size_t bytes, void* stream) const {
  api_->check(api_->memset_d8_async(device_address(pointer), 0, bytes, stream), "cuMemsetD8Async");
}

void Driver::copy_to_device(void* to, const void* from, std::size_t bytes) const {
  if (bytes != 0) api_->check(api_->memcpy_htod(device_address(to), from, bytes), "cuMemcpyHtoD");
}

void Driver::copy_to_host(void* to, const void* from, std::size_t bytes) const {
  if (bytes != 0) api_->check(api_->memcpy_dtoh(to, device_address(from), bytes), "cuMemcpyDtoH");
}

void Driver::synchronize() const { api_->check(api_->ctx_synchronize(), "cuCtxSynchronize"); }

void* Driver::create_event() const {
  cuda::Handle event = nullptr;
  api_->check(api_->event_create(&event, 0), "cuEventCreate");
  return event;
}

void Driver::destroy_event(void* event) const noexcept {
  if (event != nullptr) api_->event_destroy(event);
}

void Driver::record(void* event, void* stream) const {
  api_->check(api_->event_record(event, stream), "cuEventRecord");
}

double Driver::elapsed_ms(void* start, void* stop) const {
  float milliseconds = 0;
  api_->check(api_->event_synchronize(stop), "cuEventSynchronize");
  api_->check(api_->event_elapsed_time(&milliseconds, start, stop), "cuEventElapsedTime");
  return milliseconds;
}

}  // namespace attune
