#include "runtime/call/operand.hpp"

#include <limits>

#include "runtime/base/add_line.hpp"

namespace attune {
namespace {

constexpr std::int64_t stride_step = 8;  // elements: the 16 bytes of a copy instruction
constexpr std::array dimensions{"batch", "seq", "head"};

void check_stride(std::vector<std::string>& found, const Operand& operand, std::size_t i) {
  if (operand.extents[i] <= 1) return;  // never used
  const std::int64_t stride = operand.strides[i];
  if (stride < 0 || stride % stride_step != 0) {
    add_line(found, "{}.stride_{} is {}; it must be a multiple of {} elements, 0 or more", operand.name, dimensions[i],
             stride, stride_step);
  } else if (operand.access != Access::read && stride == 0) {
    add_line(found, "{}.stride_{} is 0; rows that are written must not share memory", operand.name, dimensions[i]);
  }
}

/// Whether the offset of the last element, in bytes, fits 63 bits.
bool offsets_fit(const Operand& operand) {
  std::int64_t last = operand.extents.back();
  for (std::size_t i = 0; i < operand.strides.size(); ++i) {
    std::int64_t span = 0;
    if (operand.extents[i] > 1 && (__builtin_mul_overflow(operand.strides[i], operand.extents[i] - 1, &span) ||
                                   __builtin_add_overflow(last, span, &last))) {
      return false;
    }
  }
  return last <= std::numeric_limits<std::int64_t>::max() / operand.element_bytes;
}

void check_tensor(std::vector<std::string>& found, const Operand& operand) {
  if (operand.extents[0] == 0 || operand.extents[1] == 0) return;  // neither read nor written
  const auto address = reinterpret_cast<std::uintptr_t>(operand.data);
  if (operand.data == nullptr) {
    add_line(found, "{}.data is null; it must point to memory of the device (the host's for the emulator)",
             operand.name);
  } else if (address % vector_bytes != 0) {
    add_line(found, "{}.data is {:#x}; it must be a multiple of {} bytes", operand.name, address, vector_bytes);
  }
  const std::size_t before = found.size();
  for (std::size_t i = 0; i < operand.strides.size(); ++i) check_stride(found, operand, i);
  if (found.size() == before && !offsets_fit(operand)) {
    add_line(found, "{}: strides {}, {} and {} reach beyond 2^63 bytes", operand.name, operand.strides[0],
             operand.strides[1], operand.strides[2]);
  }
}

}  // namespace

void check_operand(std::vector<std::string>& found, const Operand& operand) {
  if (operand.kind == Operand::Kind::tensor) return check_tensor(found, operand);
  if (operand.data == nullptr && operand.needed != nullptr) {
    add_line(found, "{} is null; it must point to memory of the device (the host's for the emulator){}", operand.name,
             operand.needed);
  }
  check_alignment(found, operand.name, operand.data, static_cast<std::size_t>(operand.alignment));
}

void check_alignment(std::vector<std::string>& found, const char* name, const void* pointer, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % bytes != 0) {
    add_line(found, "{} is {:#x}; it must be a multiple of {} bytes", name, address, bytes);
  }
}

}  // namespace attune
