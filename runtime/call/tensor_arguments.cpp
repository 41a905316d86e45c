#include "runtime/call/tensor_arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/base/add_line.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/field_checks.hpp"

namespace attune {
namespace {

constexpr std::uintptr_t vector_bytes = 16;  // of one cp.async copy
constexpr std::int64_t stride_step = 8;      // elements: the same 16 bytes

// A scale of 0 would turn a masked score's -inf into NaN; with this one every finite score still becomes 0.
constexpr float smallest_scale = 1e-30F;

// An infinite factor would turn a score of 0 into NaN.
constexpr float largest_cap_scale = 1e30F;

void check_stride(std::vector<std::string>& found, const char* tensor, const char* dimension, std::int64_t stride,
                  std::int64_t extent, Access access) {
  if (extent <= 1) return;  // never used
  if (stride < 0 || stride % stride_step != 0) {
    add_line(found, "{}.stride_{} is {}; it must be a multiple of {} elements, 0 or more", tensor, dimension, stride,
             stride_step);
  } else if (access == Access::write && stride == 0) {
    add_line(found, "{}.stride_{} is 0; rows that are written must not share memory", tensor, dimension);
  }
}

/// Whether the offset of the last element, in bytes, fits 63 bits.
bool offsets_fit(const attune_tensor& tensor, const Extents& extents) {
  std::int64_t last = extents.head_dim;
  const auto extend = [&last](std::int64_t stride, std::int64_t extent) {
    std::int64_t span = 0;
    return extent <= 1 ||
           (!__builtin_mul_overflow(stride, extent - 1, &span) && !__builtin_add_overflow(last, span, &last));
  };
  return extend(tensor.stride_batch, extents.batch) && extend(tensor.stride_seq, extents.seq) &&
         extend(tensor.stride_head, extents.heads) &&
         last <= std::numeric_limits<std::int64_t>::max() / bytes_of(extents.dtype);
}

}  // namespace

void check_tensor(std::vector<std::string>& found, const char* name, const attune_tensor& tensor,
                  const Extents& extents, Access access) {
  if (extents.empty()) return;  // neither read nor written
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (tensor.data == nullptr) {
    add_line(found, "{}.data is null; it must point to memory of the device (the host's for the emulator)", name);
  } else if (address % vector_bytes != 0) {
    add_line(found, "{}.data is {:#x}; it must be a multiple of {} bytes", name, address, vector_bytes);
  }
  const std::size_t before = found.size();
  check_stride(found, name, "batch", tensor.stride_batch, extents.batch, access);
  check_stride(found, name, "seq", tensor.stride_seq, extents.seq, access);
  check_stride(found, name, "head", tensor.stride_head, extents.heads, access);
  if (found.size() == before && !offsets_fit(tensor, extents)) {
    add_line(found, "{}: strides {}, {} and {} reach beyond 2^63 bytes", name, tensor.stride_batch, tensor.stride_seq,
             tensor.stride_head);
  }
}

void check_alignment(std::vector<std::string>& found, const char* name, const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % bytes != 0) {
    add_line(found, "{} is {:#x}; it must be a multiple of {} bytes", name, address, bytes);
  }
}

void check_table(std::vector<std::string>& found, const std::int32_t* block_table, int batch, int pages,
                 int table_width) {
  if (block_table != nullptr) return;
  if (table_width > 1) {
    add_line(found, "block_table is null; it must name the pages where table_width is {}", table_width);
  } else if (pages < batch) {
    add_line(found, "pages is {}; without a block_table it must be at least batch, which is {}", pages, batch);
  }
}

void check_angles(std::vector<std::string>& found, const char* name, const void* angles) {
  if (angles == nullptr) {
    add_line(found,
             "{} is null; it must point to memory of the device (the host's for the emulator) where keys are rotated",
             name);
  }
  check_alignment(found, name, angles, vector_bytes);
}

void check_struct_size(const char* type, std::size_t given, std::size_t needed) {
  if (given >= needed) return;
  throw Error(ATTUNE_INVALID_ARGUMENT,
              fmt::format("{}.struct_size is {}; it must be sizeof({}), at least {}", type, given, type, needed));
}

void throw_if_any(const std::vector<std::string>& found) {
  if (!found.empty()) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
}

void check_softmax_scale(std::vector<std::string>& found, float softmax_scale) {
  if (softmax_scale >= 0 && softmax_scale <= largest_scale) return;
  add_line(found, "softmax_scale is {}; it must be from 0 to {}", softmax_scale, largest_scale);
}

ScoreScales scales_of(float softmax_scale, float softcap) {
  const auto log2_of = [](float scale) { return std::max(scale * std::numbers::log2e_v<float>, smallest_scale); };
  const float scale_log2 = log2_of(softmax_scale);
  if (softcap == 0) return {.scale_log2 = scale_log2, .cap_scale = 0};
  return {.scale_log2 = log2_of(softcap), .cap_scale = std::min(2 * scale_log2 / softcap, largest_cap_scale)};
}

AttuneTensor kernel_tensor(const attune_tensor& tensor, const Extents& extents) {
  const auto used = [](std::int64_t stride, std::int64_t extent) { return extent > 1 ? stride : 0; };
  return {.data = tensor.data,
          .stride_batch = used(tensor.stride_batch, extents.batch),
          .stride_seq = used(tensor.stride_seq, extents.seq),
          .stride_head = used(tensor.stride_head, extents.heads)};
}

}  // namespace attune
