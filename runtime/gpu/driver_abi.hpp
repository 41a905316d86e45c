// The part of the CUDA driver API that Attune calls: types, constants and signatures as its reference
// publishes them (CUDA 13.0), so that the library compiles where no toolkit is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune::cuda {

using Result = int;                        // CUresult
using DeviceOrdinal = int;                 // CUdevice
using DevicePointer = unsigned long long;  // CUdeviceptr
using Attribute = int;                     // CUdevice_attribute and CUfunction_attribute

inline constexpr Result success = 0;
inline constexpr Result error_deinitialized = 4;
inline constexpr Result error_no_device = 100;
inline constexpr Result error_invalid_context = 201;
inline constexpr Result error_no_binary_for_gpu = 209;
inline constexpr Result error_unsupported_ptx_version = 222;

inline constexpr Attribute device_multiprocessor_count = 16;
inline constexpr Attribute device_l2_cache_size = 38;
inline constexpr Attribute device_capability_major = 75;
inline constexpr Attribute device_capability_minor = 76;
inline constexpr Attribute device_shared_per_multiprocessor = 81;
inline constexpr Attribute device_shared_per_block_optin = 97;

inline constexpr Attribute function_num_regs = 4;
inline constexpr Attribute function_max_dynamic_shared = 8;

inline constexpr int capture_mode_relaxed = 2;
inline constexpr int capture_status_none = 0;

// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
inline constexpr int tensor_map_float16 = 6;
inline constexpr int tensor_map_bfloat16 = 9;
inline constexpr int tensor_map_interleave_none = 0;
inline constexpr int tensor_map_swizzle_128B = 3;
inline constexpr int tensor_map_l2_promotion_128B = 2;
inline constexpr int tensor_map_fill_zeros = 0;

// Handles are opaque pointers; CUkernel and CUfunction, CUlibrary, CUstream, CUevent and CUcontext alike.
using Handle = void*;

/// CUlaunchAttribute with the attributes that are used.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    char space[64];
    unsigned int cluster[3];  ///< clusterDim
    int allowed;              ///< programmaticStreamSerializationAllowed
  } value;
};
inline constexpr int launch_cluster_dimension = 4;
inline constexpr int launch_programmatic_stream_serialization = 6;

/// CUlaunchConfig
struct LaunchConfig {
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
  Handle stream;
  LaunchAttribute* attributes;
  unsigned int attribute_count;
};

// cuGetProcAddress_v2 is the one symbol taken by name: the others come from it, each in the version of its
// ABI that is declared here.
using GetProcAddress = Result(const char*, void**, int, unsigned long long, int*);

using Init = Result(unsigned int);
using DriverGetVersion = Result(int*);
using GetErrorText = Result(Result, const char**);  // cuGetErrorName, cuGetErrorString
using DeviceGetCount = Result(int*);
using DeviceGet = Result(DeviceOrdinal*, int);
using DeviceGetName = Result(char*, int, DeviceOrdinal);
using DeviceGetAttribute = Result(int*, Attribute, DeviceOrdinal);
using PrimaryRetain = Result(Handle*, DeviceOrdinal);
using PrimaryRelease = Result(DeviceOrdinal);
using CtxSetCurrent = Result(Handle);
using CtxGetCurrent = Result(Handle*);
using CtxGetDevice = Result(DeviceOrdinal*);
using CtxSynchronize = Result();
using StreamSynchronize = Result(Handle);
using StreamIsCapturing = Result(Handle, int*);
using ExchangeCaptureMode = Result(int*);
using LibraryLoadData = Result(Handle*, const void*, int*, void**, unsigned int, int*, void**, unsigned int);
using LibraryUnload = Result(Handle);
using LibraryGetKernel = Result(Handle*, Handle, const char*);
using KernelGetFunction = Result(Handle*, Handle);
using KernelSetAttribute = Result(Attribute, int, Handle, DeviceOrdinal);
using FuncGetAttribute = Result(int*, Attribute, Handle);
using FuncLoad = Result(Handle);
using LaunchKernel = Result(Handle, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                            unsigned int, Handle, void**, void**);
using LaunchKernelEx = Result(const LaunchConfig*, Handle, void**, void**);
using TensorMapEncodeTiled = Result(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                                    const std::uint32_t*, const std::uint32_t*, int, int, int, int);
using MemAlloc = Result(DevicePointer*, std::size_t);
using MemFree = Result(DevicePointer);
using MemsetD8Async = Result(DevicePointer, unsigned char, std::size_t, Handle stream);
using MemcpyHtoD = Result(DevicePointer, const void*, std::size_t);
using MemcpyDtoH = Result(void*, DevicePointer, std::size_t);
using EventCreate = Result(Handle*, unsigned int);
using EventRecord = Result(Handle, Handle);
using EventSynchronize = Result(Handle);
using EventDestroy = Result(Handle);
using EventElapsedTime = Result(float*, Handle, Handle);

// The versions of CUDA in which those ABIs appeared (the suffix of PFN_* in cudaTypedefs.h).
inline constexpr int init_version = 2000;
inline constexpr int driver_get_version_version = 2020;
inline constexpr int error_text_version = 6000;
inline constexpr int device_version = 2000;
inline constexpr int primary_retain_version = 7000;
inline constexpr int primary_release_version = 11000;
inline constexpr int ctx_set_current_version = 4000;
inline constexpr int ctx_get_current_version = 4000;
inline constexpr int ctx_version = 2000;
inline constexpr int stream_version = 2000;
inline constexpr int stream_is_capturing_version = 10000;
inline constexpr int exchange_capture_mode_version = 10010;
inline constexpr int library_version = 12000;
inline constexpr int func_get_attribute_version = 2020;
inline constexpr int func_load_version = 12040;
inline constexpr int launch_kernel_version = 4000;
inline constexpr int launch_kernel_ex_version = 11060;
inline constexpr int tensor_map_version = 12000;
inline constexpr int memory_version = 3020;
inline constexpr int event_version = 2000;
inline constexpr int event_destroy_version = 4000;

}  // namespace attune::cuda
