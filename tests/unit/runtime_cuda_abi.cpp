// The library declares the part of the CUDA APIs that it calls itself; where the toolkit's headers are, this
// file holds those declarations against them.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "runtime/compiler/nvrtc_abi.hpp"
#include "runtime/gpu/driver_abi.hpp"
#include "templates/tensor_params.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#include <nvrtc.h>
#define ATTUNE_TEST_HAS_CUDA_HEADERS
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#include "/usr/local/cuda/include/nvrtc.h"
#define ATTUNE_TEST_HAS_CUDA_HEADERS
#endif
#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#define ATTUNE_TEST_HAS_CUDA_TYPEDEFS
#endif

namespace {

#ifdef ATTUNE_TEST_HAS_CUDA_HEADERS

/// Whether both are passed the same way: pointers alike, integers and enums of one size, floats of one size.
template <class Ours, class Theirs>
constexpr bool same_passing() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else {
    return sizeof(Ours) == sizeof(Theirs) && std::is_floating_point_v<Ours> == std::is_floating_point_v<Theirs>;
  }
}

template <class Ours, class Theirs>
struct SameAbi : std::false_type {};

template <class OurResult, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) == sizeof...(Theirs)) struct SameAbi<OurResult(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<same_passing<OurResult, TheirResult>() && (same_passing<Ours, Theirs>() && ...)> {
};

namespace cuda = attune::cuda;
namespace nvrtc = attune::nvrtc;

static_assert(cuda::success == CUDA_SUCCESS);
static_assert(cuda::error_no_device == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::error_invalid_context == CUDA_ERROR_INVALID_CONTEXT);
static_assert(cuda::error_no_binary_for_gpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(cuda::error_unsupported_ptx_version == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
static_assert(cuda::device_multiprocessor_count == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(cuda::device_l2_cache_size == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(cuda::device_capability_major == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::device_capability_minor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::device_shared_per_multiprocessor == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
static_assert(cuda::device_shared_per_block_optin == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(cuda::function_num_regs == CU_FUNC_ATTRIBUTE_NUM_REGS);
static_assert(cuda::function_max_dynamic_shared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(cuda::capture_mode_relaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(std::is_same_v<cuda::DevicePointer, CUdeviceptr>);
static_assert(std::is_same_v<cuda::DeviceOrdinal, CUdevice>);
static_assert(sizeof(cuda::Result) == sizeof(CUresult) && sizeof(cuda::Attribute) == sizeof(CUdevice_attribute));

// Where cuda.h shows a newer ABI than the one declared, only the versioned types below can tell.
static_assert(SameAbi<cuda::Init, decltype(&cuInit)>::value);
static_assert(SameAbi<cuda::DriverGetVersion, decltype(&cuDriverGetVersion)>::value);
static_assert(SameAbi<cuda::GetErrorText, decltype(&cuGetErrorName)>::value);
static_assert(SameAbi<cuda::GetErrorText, decltype(&cuGetErrorString)>::value);
static_assert(SameAbi<cuda::DeviceGetCount, decltype(&cuDeviceGetCount)>::value);
static_assert(SameAbi<cuda::DeviceGet, decltype(&cuDeviceGet)>::value);
static_assert(SameAbi<cuda::DeviceGetName, decltype(&cuDeviceGetName)>::value);
static_assert(SameAbi<cuda::DeviceGetAttribute, decltype(&cuDeviceGetAttribute)>::value);
static_assert(SameAbi<cuda::PrimaryRetain, decltype(&cuDevicePrimaryCtxRetain)>::value);
static_assert(SameAbi<cuda::PrimaryRelease, decltype(&cuDevicePrimaryCtxRelease)>::value);
static_assert(SameAbi<cuda::CtxSetCurrent, decltype(&cuCtxSetCurrent)>::value);
static_assert(SameAbi<cuda::ExchangeCaptureMode, decltype(&cuThreadExchangeStreamCaptureMode)>::value);
static_assert(SameAbi<cuda::LibraryLoadData, decltype(&cuLibraryLoadData)>::value);
static_assert(SameAbi<cuda::LibraryUnload, decltype(&cuLibraryUnload)>::value);
static_assert(SameAbi<cuda::LibraryGetKernel, decltype(&cuLibraryGetKernel)>::value);
static_assert(SameAbi<cuda::KernelGetFunction, decltype(&cuKernelGetFunction)>::value);
static_assert(SameAbi<cuda::KernelSetAttribute, decltype(&cuKernelSetAttribute)>::value);
static_assert(SameAbi<cuda::FuncGetAttribute, decltype(&cuFuncGetAttribute)>::value);
static_assert(SameAbi<cuda::FuncLoad, decltype(&cuFuncLoad)>::value);
static_assert(SameAbi<cuda::LaunchKernel, decltype(&cuLaunchKernel)>::value);
static_assert(SameAbi<cuda::LaunchKernelEx, decltype(&cuLaunchKernelEx)>::value);
static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(cuda::LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(cuda::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cuda::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cuda::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cuda::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(cuda::LaunchAttribute::value) == sizeof(CUlaunchAttributeValue));
static_assert(offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed) == 0);
static_assert(sizeof(CUlaunchAttributeValue::programmaticStreamSerializationAllowed) == sizeof(int));
static_assert(offsetof(CUlaunchAttributeValue, clusterDim) == 0);
static_assert(sizeof(CUlaunchAttributeValue::clusterDim) == sizeof(cuda::LaunchAttribute::value.cluster));
static_assert(cuda::launch_cluster_dimension == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(cuda::launch_programmatic_stream_serialization == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
static_assert(SameAbi<cuda::TensorMapEncodeTiled, decltype(&cuTensorMapEncodeTiled)>::value);
static_assert(cuda::tensor_map_float16 == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
static_assert(cuda::tensor_map_bfloat16 == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
static_assert(cuda::tensor_map_interleave_none == CU_TENSOR_MAP_INTERLEAVE_NONE);
static_assert(cuda::tensor_map_swizzle_128B == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(cuda::tensor_map_l2_promotion_128B == CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
static_assert(cuda::tensor_map_fill_zeros == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(AttuneTensorMap) == sizeof(CUtensorMap));
static_assert(cuda::tensor_map_version == 12000);
static_assert(SameAbi<cuda::MemAlloc, decltype(&cuMemAlloc)>::value);
static_assert(SameAbi<cuda::MemFree, decltype(&cuMemFree)>::value);
static_assert(SameAbi<cuda::MemcpyHtoD, decltype(&cuMemcpyHtoD)>::value);
static_assert(SameAbi<cuda::MemcpyDtoH, decltype(&cuMemcpyDtoH)>::value);
static_assert(SameAbi<cuda::EventCreate, decltype(&cuEventCreate)>::value);
static_assert(SameAbi<cuda::EventRecord, decltype(&cuEventRecord)>::value);
static_assert(SameAbi<cuda::EventSynchronize, decltype(&cuEventSynchronize)>::value);
static_assert(SameAbi<cuda::EventDestroy, decltype(&cuEventDestroy)>::value);

static_assert(nvrtc::success == NVRTC_SUCCESS);
static_assert(nvrtc::error_compilation == NVRTC_ERROR_COMPILATION);
static_assert(SameAbi<nvrtc::Version, decltype(&nvrtcVersion)>::value);
static_assert(SameAbi<nvrtc::GetErrorString, decltype(&nvrtcGetErrorString)>::value);
static_assert(SameAbi<nvrtc::CreateProgram, decltype(&nvrtcCreateProgram)>::value);
static_assert(SameAbi<nvrtc::DestroyProgram, decltype(&nvrtcDestroyProgram)>::value);
static_assert(SameAbi<nvrtc::CompileProgram, decltype(&nvrtcCompileProgram)>::value);
static_assert(SameAbi<nvrtc::GetSize, decltype(&nvrtcGetProgramLogSize)>::value);
static_assert(SameAbi<nvrtc::GetText, decltype(&nvrtcGetProgramLog)>::value);
static_assert(SameAbi<nvrtc::GetSize, decltype(&nvrtcGetCUBINSize)>::value);
static_assert(SameAbi<nvrtc::GetText, decltype(&nvrtcGetCUBIN)>::value);
static_assert(SameAbi<nvrtc::GetSize, decltype(&nvrtcGetPTXSize)>::value);
static_assert(SameAbi<nvrtc::GetText, decltype(&nvrtcGetPTX)>::value);

#ifdef ATTUNE_TEST_HAS_CUDA_TYPEDEFS
// The very ABI that each version constant asks cuGetProcAddress for.
static_assert(SameAbi<cuda::Init, PFN_cuInit_v2000>::value && cuda::init_version == 2000);
static_assert(SameAbi<cuda::DriverGetVersion, PFN_cuDriverGetVersion_v2020>::value &&
              cuda::driver_get_version_version == 2020);
static_assert(SameAbi<cuda::GetErrorText, PFN_cuGetErrorName_v6000>::value && cuda::error_text_version == 6000);
static_assert(SameAbi<cuda::GetErrorText, PFN_cuGetErrorString_v6000>::value && cuda::error_text_version == 6000);
static_assert(SameAbi<cuda::DeviceGetCount, PFN_cuDeviceGetCount_v2000>::value && cuda::device_version == 2000);
static_assert(SameAbi<cuda::DeviceGet, PFN_cuDeviceGet_v2000>::value && cuda::device_version == 2000);
static_assert(SameAbi<cuda::DeviceGetName, PFN_cuDeviceGetName_v2000>::value && cuda::device_version == 2000);
static_assert(SameAbi<cuda::DeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000>::value && cuda::device_version == 2000);
static_assert(SameAbi<cuda::PrimaryRetain, PFN_cuDevicePrimaryCtxRetain_v7000>::value &&
              cuda::primary_retain_version == 7000);
static_assert(SameAbi<cuda::PrimaryRelease, PFN_cuDevicePrimaryCtxRelease_v11000>::value &&
              cuda::primary_release_version == 11000);
static_assert(SameAbi<cuda::CtxSetCurrent, PFN_cuCtxSetCurrent_v4000>::value && cuda::ctx_set_current_version == 4000);
static_assert(SameAbi<cuda::CtxGetCurrent, PFN_cuCtxGetCurrent_v4000>::value && cuda::ctx_get_current_version == 4000);
static_assert(SameAbi<cuda::CtxGetDevice, PFN_cuCtxGetDevice_v2000>::value && cuda::ctx_version == 2000);
static_assert(SameAbi<cuda::CtxSynchronize, PFN_cuCtxSynchronize_v2000>::value && cuda::ctx_version == 2000);
static_assert(SameAbi<cuda::ExchangeCaptureMode, PFN_cuThreadExchangeStreamCaptureMode_v10010>::value &&
              cuda::exchange_capture_mode_version == 10010);
static_assert(SameAbi<cuda::LibraryLoadData, PFN_cuLibraryLoadData_v12000>::value && cuda::library_version == 12000);
static_assert(SameAbi<cuda::LibraryUnload, PFN_cuLibraryUnload_v12000>::value && cuda::library_version == 12000);
static_assert(SameAbi<cuda::LibraryGetKernel, PFN_cuLibraryGetKernel_v12000>::value && cuda::library_version == 12000);
static_assert(SameAbi<cuda::KernelGetFunction, PFN_cuKernelGetFunction_v12000>::value &&
              cuda::library_version == 12000);
static_assert(SameAbi<cuda::KernelSetAttribute, PFN_cuKernelSetAttribute_v12000>::value &&
              cuda::library_version == 12000);
static_assert(SameAbi<cuda::FuncGetAttribute, PFN_cuFuncGetAttribute_v2020>::value &&
              cuda::func_get_attribute_version == 2020);
static_assert(SameAbi<cuda::FuncLoad, PFN_cuFuncLoad_v12040>::value && cuda::func_load_version == 12040);
static_assert(SameAbi<cuda::LaunchKernel, PFN_cuLaunchKernel_v4000>::value && cuda::launch_kernel_version == 4000);
static_assert(SameAbi<cuda::LaunchKernelEx, PFN_cuLaunchKernelEx_v11060>::value &&
              cuda::launch_kernel_ex_version == 11060);
static_assert(SameAbi<cuda::TensorMapEncodeTiled, PFN_cuTensorMapEncodeTiled_v12000>::value);
static_assert(SameAbi<cuda::MemAlloc, PFN_cuMemAlloc_v3020>::value && cuda::memory_version == 3020);
static_assert(SameAbi<cuda::MemFree, PFN_cuMemFree_v3020>::value && cuda::memory_version == 3020);
static_assert(SameAbi<cuda::MemcpyHtoD, PFN_cuMemcpyHtoD_v3020>::value && cuda::memory_version == 3020);
static_assert(SameAbi<cuda::MemcpyDtoH, PFN_cuMemcpyDtoH_v3020>::value && cuda::memory_version == 3020);
static_assert(SameAbi<cuda::EventCreate, PFN_cuEventCreate_v2000>::value && cuda::event_version == 2000);
static_assert(SameAbi<cuda::EventRecord, PFN_cuEventRecord_v2000>::value && cuda::event_version == 2000);
static_assert(SameAbi<cuda::EventSynchronize, PFN_cuEventSynchronize_v2000>::value && cuda::event_version == 2000);
static_assert(SameAbi<cuda::EventDestroy, PFN_cuEventDestroy_v4000>::value && cuda::event_destroy_version == 4000);
static_assert(SameAbi<cuda::EventElapsedTime, PFN_cuEventElapsedTime_v2000>::value && cuda::event_version == 2000);
static_assert(SameAbi<cuda::GetProcAddress, PFN_cuGetProcAddress_v12000>::value);
#endif

// A check that cannot fail checks nothing.
static_assert(!SameAbi<cuda::Init, decltype(&cuDriverGetVersion)>::value);
static_assert(!SameAbi<cuda::MemAlloc, decltype(&cuMemFree)>::value);

constexpr bool has_headers = true;
#else
constexpr bool has_headers = false;
#endif

}  // namespace

TEST_CASE("the declared CUDA ABI is the toolkit's") {
  // The assertions above are made by the compiler; without the headers there is nothing to compare with.
  if (!has_headers) MESSAGE("skipped: no CUDA headers");
}
