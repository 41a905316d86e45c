#include "runtime/emulator/bulk_copies.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace attune::emulator {
namespace {

constexpr std::uint64_t longest_flight = 400;  // ticks, as for cp.async
constexpr unsigned chunk_bytes = 16;           // moved as one by the swizzle

/// Whether this coordinate of the box's `i`-th element is within the tensor.
bool inside(const BulkCopy& copy, unsigned dimension, unsigned i) {
  const long long at = static_cast<long long>(copy.at[dimension]) + i;
  return at >= 0 && at < static_cast<long long>(copy.map.extents[dimension]);
}

}  // namespace

void for_each_row(const BulkCopy& copy, const std::function<void(const BoxRow&)>& visit) {
  const TensorMap& map = copy.map;
  const long long begin = std::max(0, copy.at[0]);
  const long long end = std::min<long long>(map.extents[0], static_cast<long long>(copy.at[0]) + map.box[0]);
  if (begin >= end) return;
  const auto* const base = static_cast<const std::byte*>(map.base);
  for (unsigned row = 0; row < map.rows(); ++row) {
    const std::array<unsigned, 3> i{row % map.box[1], row / map.box[1] % map.box[2], row / map.box[1] / map.box[2]};
    long long offset = begin * TensorMap::element_bytes;
    bool exists = true;
    for (unsigned d = 0; d < i.size(); ++d) {
      exists = exists && inside(copy, d + 1, i[d]);
      offset += (static_cast<long long>(copy.at[d + 1]) + i[d]) * static_cast<long long>(map.strides[d]);
    }
    if (!exists) continue;
    const auto skipped = static_cast<unsigned>(begin - copy.at[0]);
    visit({.source = base + offset,
           .bytes = static_cast<unsigned>(end - begin) * TensorMap::element_bytes,
           .offset = row * map.row_bytes() + skipped * TensorMap::element_bytes});
  }
}

void carry_out(const BulkCopy& copy, SharedMemory& shared) {
  std::vector<std::byte> box(copy.map.box_bytes());
  for_each_row(copy, [&](const BoxRow& row) { std::memcpy(&box[row.offset], row.source, row.bytes); });
  for (unsigned offset = 0; offset < box.size(); offset += chunk_bytes) {
    std::memcpy(shared.at(swizzle_128(copy.address + offset)), &box[offset], chunk_bytes);
  }
}

void BulkCopies::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  flights_.clear();
}

void BulkCopies::issue(const BulkCopy& copy) {
  const bool late = random_.below(2) == 0;
  flights_.push_back(
      {copy, late ? std::numeric_limits<std::uint64_t>::max() : now_ + 1 + random_.below(longest_flight)});
}

std::optional<BulkCopy> BulkCopies::take(std::vector<Flight>::iterator flight) {
  const BulkCopy copy = flight->copy;
  flights_.erase(flight);
  return copy;
}

std::optional<BulkCopy> BulkCopies::due() {
  const auto found = std::ranges::find_if(flights_, [&](const Flight& flight) { return flight.due <= now_; });
  return found == flights_.end() ? std::nullopt : take(found);
}

std::optional<BulkCopy> BulkCopies::any() {
  if (flights_.empty()) return std::nullopt;
  return take(flights_.begin() + static_cast<std::ptrdiff_t>(random_.below(flights_.size())));
}

}  // namespace attune::emulator
