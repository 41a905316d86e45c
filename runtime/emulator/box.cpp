#include "runtime/emulator/box.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace attune::emulator {
namespace {

/// Whether this coordinate of the box's `i`-th element is within the tensor.
bool inside(const Box& box, unsigned dimension, unsigned i) {
  const long long at = static_cast<long long>(box.at[dimension]) + i;
  return at >= 0 && at < static_cast<long long>(box.map.extents[dimension]);
}

}  // namespace

bool is_outside(const Box& box) {
  for (unsigned d = 0; d < box.at.size(); ++d) {
    const long long end = static_cast<long long>(box.at[d]) + box.map.box[d];
    if (end <= 0 || box.at[d] >= static_cast<long long>(box.map.extents[d])) return true;
  }
  return false;
}

void for_each_row(const Box& box, const std::function<void(const BoxRow&)>& visit) {
  const TensorMap& map = box.map;
  const long long begin = std::max(0, box.at[0]);
  const long long end = std::min<long long>(map.extents[0], static_cast<long long>(box.at[0]) + map.box[0]);
  if (begin >= end) return;
  const auto base = reinterpret_cast<std::uintptr_t>(map.base);
  for (unsigned row = 0; row < map.rows(); ++row) {
    std::uintptr_t address = base + static_cast<std::uintptr_t>(begin) * TensorMap::element_bytes;
    bool exists = true;
    for (unsigned d = 1, rest = row; d < map.box.size(); rest /= map.box[d++]) {
      const unsigned i = rest % map.box[d];
      exists = exists && inside(box, d, i);
      address += (static_cast<std::uintptr_t>(box.at[d]) + i) * map.strides[d - 1];
    }
    if (!exists) continue;
    const auto skipped = static_cast<unsigned>(begin - box.at[0]);
    visit({.elements = reinterpret_cast<const std::byte*>(address),
           .bytes = static_cast<unsigned>(end - begin) * TensorMap::element_bytes,
           .offset = row * map.row_bytes() + skipped * TensorMap::element_bytes});
  }
}

void for_each_piece(const Box& box, const BoxRow& row, const std::function<void(const BoxPiece&)>& visit) {
  const unsigned end = row.offset + row.bytes;
  for (unsigned offset = row.offset; offset < end;) {
    const bool whole = offset % chunk_bytes == 0 && end - offset >= chunk_bytes;
    const unsigned bytes = whole ? chunk_bytes : TensorMap::element_bytes;
    visit({.address = swizzle_128(box.address + offset), .bytes = bytes});
    offset += bytes;
  }
}

void load(const Box& box, SharedMemory& shared) {
  std::vector<std::byte> bytes(box.map.box_bytes());
  for_each_row(box, [&](const BoxRow& row) { std::memcpy(&bytes[row.offset], row.elements, row.bytes); });
  for (unsigned offset = 0; offset < bytes.size(); offset += chunk_bytes) {
    std::memcpy(shared.at(swizzle_128(box.address + offset)), &bytes[offset], chunk_bytes);
  }
}

void store(const Box& box, SharedMemory& shared) {
  for_each_row(box, [&](const BoxRow& row) {
    auto* to = const_cast<std::byte*>(row.elements);  // a map serves reads as well as writes
    for_each_piece(box, row, [&](const BoxPiece& piece) {
      std::memcpy(to, shared.at(piece.address), piece.bytes);
      to += piece.bytes;
    });
  });
}

}  // namespace attune::emulator
