#include "runtime/emulator/matrix_descriptor.hpp"

#include <fmt/format.h>

#include "runtime/emulator/tensor_map.hpp"

namespace attune::emulator {
namespace {

constexpr unsigned row_bytes = 128;  // as far as the swizzle moves a chunk
constexpr unsigned k_bytes = product_depth * 2;
constexpr unsigned row_elements = row_bytes / 2;

struct Fields {
  unsigned start, leading, stride, base_offset, swizzle;
  bool others;  ///< a bit without a meaning is set
};

Fields fields_of(std::uint64_t bits) {
  const auto bytes = [&](unsigned first) { return static_cast<unsigned>(bits >> first & 0x3fff) * chunk_bytes; };
  constexpr std::uint64_t known = 0x3fffU | 0x3fffULL << 16 | 0x3fffULL << 32 | 7ULL << 49 | 3ULL << 62;
  return {.start = bytes(0),
          .leading = bytes(16),
          .stride = bytes(32),
          .base_offset = static_cast<unsigned>(bits >> 49 & 7),
          .swizzle = static_cast<unsigned>(bits >> 62),
          .others = (bits & ~known) != 0};
}

}  // namespace

std::optional<std::string> descriptor_problem(std::uint64_t bits, Major major, unsigned extent) {
  const Fields fields = fields_of(bits);
  const auto problem = [&](std::string what) { return fmt::format("matrix descriptor {:#018x}: {}", bits, what); };
  if (fields.others) return problem("bits that have no meaning are set");
  if (fields.swizzle != 1) return problem("of the swizzle modes, only that of 128 bytes is emulated");
  if (fields.base_offset != 0) return problem("a base offset is not emulated");
  const unsigned inside = fields.start % swizzle_atom;
  if (major == Major::k ? inside % k_bytes != 0 || inside >= row_bytes : inside != 0) {
    return problem(
        fmt::format("starts at {:#x}, {} bytes past the last multiple of {}", fields.start, inside, swizzle_atom));
  }
  if (fields.stride % swizzle_atom != 0) {
    return problem(fmt::format("a stride of {} bytes leaves the swizzle's pattern", fields.stride));
  }
  if (major == Major::mn && extent > row_elements && fields.leading % swizzle_atom != 0) {
    return problem(fmt::format("a leading offset of {} bytes leaves the swizzle's pattern", fields.leading));
  }
  return std::nullopt;
}

std::vector<unsigned> chunk_addresses(std::uint64_t bits, Major major, unsigned extent) {
  const Fields fields = fields_of(bits);
  std::vector<unsigned> addresses;
  const auto rows = major == Major::k ? extent : product_depth;
  const auto chunks = major == Major::k ? k_bytes / chunk_bytes : extent * 2 / chunk_bytes;
  constexpr unsigned chunks_of_row = row_bytes / chunk_bytes;
  addresses.reserve(static_cast<std::size_t>(rows) * chunks);
  for (unsigned row = 0; row < rows; ++row) {
    const unsigned begin = fields.start + row / 8 * fields.stride + row % 8 * row_bytes;
    for (unsigned c = 0; c < chunks; ++c) {
      addresses.push_back(swizzle_128(begin + c / chunks_of_row * fields.leading + c % chunks_of_row * chunk_bytes));
    }
  }
  return addresses;
}

}  // namespace attune::emulator
