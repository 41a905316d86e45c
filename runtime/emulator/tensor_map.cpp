#include "runtime/emulator/tensor_map.hpp"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "runtime/base/error.hpp"

namespace attune::emulator {
namespace {

constexpr std::uint64_t signature = 0x70616d65'6e757474;  // no encoded map of a driver starts like this

struct Encoded {
  std::uint64_t signature;
  TensorMap map;
};
static_assert(sizeof(Encoded) <= sizeof(AttuneTensorMap::opaque));

std::string problem_of(const TensorMap& map) {
  constexpr std::uint64_t alignment = 16;
  constexpr std::uint64_t longest_stride = 1ULL << 40;
  constexpr std::uint64_t largest_extent = 1ULL << 32;
  constexpr std::uint32_t largest_box = 256;
  constexpr unsigned longest_row = 128;
  const auto base = reinterpret_cast<std::uintptr_t>(map.base);
  if (base == 0 || base % alignment != 0) return fmt::format("base {:#x} is null or no multiple of 16 bytes", base);
  if (map.rank < 1 || map.rank > map.extents.size()) return fmt::format("rank {} is not in 1 to 5", map.rank);
  for (const std::uint64_t extent : map.extents) {
    if (extent == 0 || extent > largest_extent) return fmt::format("extent {} is not in 1 to 2^32", extent);
  }
  for (const std::uint64_t stride : map.strides) {
    if (stride % alignment != 0 || stride >= longest_stride) {
      return fmt::format("stride {} is no multiple of 16 bytes below 2^40", stride);
    }
  }
  for (const std::uint32_t size : map.box) {
    if (size == 0 || size > largest_box) return fmt::format("box size {} is not in 1 to 256", size);
  }
  if (map.row_bytes() % alignment != 0 || map.row_bytes() > longest_row) {
    return fmt::format("a box's row of {} bytes is no multiple of 16 up to 128", map.row_bytes());
  }
  return {};
}

}  // namespace

AttuneTensorMap emulated_map(const TensorMap& map) {
  const std::string problem = problem_of(map);
  if (!problem.empty()) throw Error(ATTUNE_INTERNAL_ERROR, "tensor map: " + problem);
  const Encoded encoded{signature, map};
  AttuneTensorMap result{};
  std::memcpy(result.opaque, &encoded, sizeof(encoded));
  return result;
}

std::optional<TensorMap> read_map(const void* opaque) {
  Encoded encoded{};
  std::memcpy(&encoded, opaque, sizeof(encoded));
  return encoded.signature == signature ? std::optional(encoded.map) : std::nullopt;
}

}  // namespace attune::emulator
