// Boxes of a tensor as the copy engine moves them (PTX ISA, "cp.async.bulk.tensor"): one side strided in global memory,
// the other dense and swizzled in shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include "runtime/emulator/shared_memory.hpp"
#include "runtime/emulator/tensor_map.hpp"

namespace attune::emulator {

struct Box {
  TensorMap map;
  std::array<int, 5> at{};  ///< its first element, innermost dimension first
  unsigned address = 0;     ///< in shared memory
};

/// A part of a row of a box that lies within the tensor.
struct BoxRow {
  const std::byte* elements = nullptr;  ///< in global memory
  unsigned bytes = 0;
  unsigned offset = 0;  ///< in the box, before the swizzle
};

/// Whether no element of the box is within the tensor.
bool is_outside(const Box& box);

/// Every row of the box that is not wholly outside the tensor, in order.
void for_each_row(const Box& box, const std::function<void(const BoxRow&)>& visit);

/// Bytes that the swizzle leaves together.
struct BoxPiece {
  unsigned address = 0;  ///< in shared memory
  unsigned bytes = 0;    ///< 16, or those of one element
};

/// The pieces of a row, in order.
void for_each_piece(const Box& box, const BoxRow& row, const std::function<void(const BoxPiece&)>& visit);

/// Reads the box from the tensor, zeros where it leaves it, and writes it to shared memory.
void load(const Box& box, SharedMemory& shared);

/// Writes those elements of the box that lie within the tensor.
void store(const Box& box, SharedMemory& shared);

}  // namespace attune::emulator
