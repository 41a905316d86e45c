// The part of DLPack's C exchange API that Attune calls: types and constants as its header publishes them
// (version 1.3), so that no framework's headers are needed.
#pragma once

#include <cstdint>

namespace attune::dlpack {

inline constexpr std::uint32_t major_version = 1;
inline constexpr const char* exchange_attribute = "__dlpack_c_exchange_api__";  // of a tensor type
inline constexpr const char* exchange_capsule = "dlpack_exchange_api";

inline constexpr std::int32_t device_cuda = 2;
inline constexpr std::uint8_t code_int = 0;
inline constexpr std::uint8_t code_float = 2;
inline constexpr std::uint8_t code_bfloat = 4;

struct Device {  // DLDevice
  std::int32_t type;
  std::int32_t id;
};

struct DataType {  // DLDataType
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {  // DLTensor
  void* data;
  Device device;
  std::int32_t rank;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements
  std::uint64_t byte_offset;
};

struct ExchangeHeader {  // DLPackExchangeAPIHeader
  std::uint32_t major_version;
  std::uint32_t minor_version;
  ExchangeHeader* previous;
};

struct Exchange {  // DLPackExchangeAPI
  ExchangeHeader header;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object;
  void* managed_tensor_to_py_object;
  /// Describes an object without owning it; -1 with a Python exception set where it cannot. May be null.
  int (*tensor_from_py_object)(void* object, Tensor* out);
  void* current_work_stream;
};

}  // namespace attune::dlpack
