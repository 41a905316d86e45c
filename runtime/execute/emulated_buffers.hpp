// A call's memory as the emulator is told of it.
#pragma once

#include <array>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/emulator/emulator.hpp"
#include "templates/params.h"

namespace attune {

/// What a kernel may touch. Arguments that are null are left out.
class EmulatedBuffers {
 public:
  enum class Use { read, written };

  /// Of a call with tensors of this type.
  explicit EmulatedBuffers(Dtype dtype) : element_bytes_(bytes_of(dtype)) {}

  /// batch x rows x heads x head_dim
  void add_tensor(const char* name, const AttuneTensor& tensor, const std::array<long long, 4>& extents, Use use);

  /// A contiguous array.
  template <class Element>
  void add_array(const char* name, const Element* data, const std::array<long long, 4>& extents, Use use) {
    add_bytes(name, data, sizeof(Element), extents, use);
  }

  /// Cosines and sines of a rotation.
  void add_angles(const void* cos, const void* sin, int rotations, int rotary_dim);

  [[nodiscard]] std::vector<emulator::Buffer> take() && { return std::move(buffers_); }

 private:
  void add_bytes(const char* name, const void* data, int element_bytes, const std::array<long long, 4>& extents,
                 Use use);

  int element_bytes_;
  std::vector<emulator::Buffer> buffers_;
};

}  // namespace attune
