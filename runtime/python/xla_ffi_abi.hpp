// The part of XLA's foreign function interface that Attune implements: types and constants as its C API publishes them
// (major version 0, whose minor versions only add), so that the module compiles where no JAX is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attune::xla {

struct Error;             // XLA_FFI_Error
struct ExecutionContext;  // XLA_FFI_ExecutionContext
struct Future;            // XLA_FFI_Future

using ErrorCode = int;  // XLA_FFI_Error_Code
inline constexpr ErrorCode error_invalid_argument = 3;
inline constexpr ErrorCode error_resource_exhausted = 8;
inline constexpr ErrorCode error_failed_precondition = 9;
inline constexpr ErrorCode error_unimplemented = 12;
inline constexpr ErrorCode error_internal = 13;

using DataType = int;  // XLA_FFI_DataType
inline constexpr DataType type_pred = 1;
inline constexpr DataType type_s32 = 4;
inline constexpr DataType type_f16 = 10;
inline constexpr DataType type_f32 = 11;
inline constexpr DataType type_bf16 = 16;

struct Extension {  // XLA_FFI_Extension_Base
  std::size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int extension_metadata = 1;

struct ApiVersion {  // XLA_FFI_Api_Version
  std::size_t struct_size;
  Extension* extensions;
  int major_version;
  int minor_version;
};
inline constexpr int major_version = 0;
inline constexpr int first_minor_version = 1;

struct Metadata {  // XLA_FFI_Metadata, up to the field that all versions have
  std::size_t struct_size;
  ApiVersion api_version;
  std::uint32_t traits;
};

struct MetadataExtension {  // XLA_FFI_Metadata_Extension
  Extension base;
  Metadata* metadata;
};

struct Buffer {  // XLA_FFI_Buffer
  std::size_t struct_size;
  Extension* extensions;
  DataType dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct Scalar {  // XLA_FFI_Scalar
  DataType dtype;
  void* value;
};

struct ByteSpan {  // XLA_FFI_ByteSpan
  const char* data;
  std::size_t size;
};

struct Buffers {  // XLA_FFI_Args and XLA_FFI_Rets
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  void** values;
};
inline constexpr int argument_buffer = 1;

struct Attributes {  // XLA_FFI_Attrs, ascending by name
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  ByteSpan** names;
  void** values;
};
inline constexpr int attribute_scalar = 3;  // a Scalar
inline constexpr int attribute_text = 4;    // a ByteSpan

struct ErrorCreateArgs {  // XLA_FFI_Error_Create_Args
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

struct StreamGetArgs {  // XLA_FFI_Stream_Get_Args
  std::size_t struct_size;
  Extension* extensions;
  ExecutionContext* context;
  void* stream;  // out
};

struct ErrorDestroyArgs {  // XLA_FFI_Error_Destroy_Args
  std::size_t struct_size;
  Extension* extensions;
  Error* error;
};

struct MemoryAllocateArgs {  // XLA_FFI_DeviceMemory_Allocate_Args
  std::size_t struct_size;
  Extension* extensions;
  ExecutionContext* context;
  std::size_t size;
  std::size_t alignment;
  void* data;  // out
};

struct MemoryFreeArgs {  // XLA_FFI_DeviceMemory_Free_Args
  std::size_t struct_size;
  Extension* extensions;
  ExecutionContext* context;
  std::size_t size;
  void* data;
};

struct Api {  // XLA_FFI_Api, up to the last function that is called
  std::size_t struct_size;
  Extension* extensions;
  ApiVersion api_version;
  const void* internal_api;
  Error* (*error_create)(ErrorCreateArgs*);
  void* error_get_message;
  void (*error_destroy)(ErrorDestroyArgs*);
  void* handler_register;
  Error* (*stream_get)(StreamGetArgs*);
  void* type_register;
  void* execution_context_get;
  void* state_set;
  void* state_get;
  Error* (*memory_allocate)(MemoryAllocateArgs*);
  Error* (*memory_free)(MemoryFreeArgs*);
};

struct CallFrame {  // XLA_FFI_CallFrame
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  ExecutionContext* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  // out
};

}  // namespace attune::xla
