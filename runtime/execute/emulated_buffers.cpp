#include "runtime/execute/emulated_buffers.hpp"

namespace attune {

void EmulatedBuffers::add_tensor(const char* name, const AttuneTensor& tensor, const std::array<long long, 4>& extents,
                                 Use use) {
  if (tensor.data == nullptr) return;
  buffers_.push_back({.name = name,
                      .data = tensor.data,
                      .element_bytes = element_bytes_,
                      .extents = extents,
                      .strides = {tensor.stride_batch, tensor.stride_seq, tensor.stride_head},
                      .writable = use == Use::written});
}

void EmulatedBuffers::add_angles(const void* cos, const void* sin, int rotations, int rotary_dim) {
  add_bytes("rotary_cos", cos, element_bytes_, {1, 1, rotations, rotary_dim / 2}, Use::read);
  add_bytes("rotary_sin", sin, element_bytes_, {1, 1, rotations, rotary_dim / 2}, Use::read);
}

void EmulatedBuffers::add_bytes(const char* name, const void* data, int element_bytes,
                                const std::array<long long, 4>& extents, Use use) {
  if (data == nullptr) return;
  buffers_.push_back({.name = name,
                      .data = const_cast<void*>(data),
                      .element_bytes = element_bytes,
                      .extents = extents,
                      .strides = {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3]},
                      .writable = use == Use::written});
}

}  // namespace attune
