#include "runtime/execute/emulator_executor.hpp"

#include <cstddef>
#include <cstring>

#include "runtime/base/error.hpp"
#include "runtime/emulator/tensor_map.hpp"

namespace attune {

EmulatedKernel emulated_kernel(const Variant& variant, std::string_view shared_object, const std::string& name) {
  return {{variant, emulator::device()}, emulator::Kernel(shared_object, name)};
}

std::vector<emulator::Buffer> buffers_of(Operands operands) {
  std::vector<emulator::Buffer> buffers;
  operands([&](const Operand& operand) {
    if (operand.data == nullptr) return;
    emulator::Buffer buffer{.name = operand.name,
                            .data = const_cast<void*>(operand.data),
                            .element_bytes = operand.element_bytes,
                            .writable = operand.access != Access::read};
    for (std::size_t i = 0; i < buffer.extents.size(); ++i) buffer.extents[i] = operand.extents[i];
    // A tensor's dimension of one element may come with any stride.
    for (std::size_t i = 0; i < buffer.strides.size(); ++i) {
      buffer.strides[i] = operand.kind == Operand::Kind::array || operand.extents[i] > 1 ? operand.strides[i] : 0;
    }
    if (operand.access == Access::update) {  // what is read is there before, and so a buffer of its own
      buffers.push_back(buffer);
      buffers.back().writable = false;
    }
    buffers.push_back(std::move(buffer));
  });
  return buffers;
}

void EmulatorExecutor::launch(const Step& step) {
  report_ = static_cast<const EmulatedKernel&>(*step.kernel)
                .kernel.run({.grid = step.grid,
                             .threads = step.threads,
                             .shared_bytes = step.shared_bytes,
                             .params = step.params,
                             .memory = buffers_of(step.operands),
                             .seed = how_.seed,
                             .jobs = how_.jobs,
                             .count_banks = how_.count_banks});
  if (!report_.ok()) throw Error(ATTUNE_KERNEL_FAULT, report_.fault);
}

void EmulatorExecutor::run(const Plan& plan, void* /*stream*/) {
  for (std::size_t i = 0; i < plan.size(); ++i) launch(plan[i]);
}

void EmulatorExecutor::ask(const char* /*asker*/, FunctionRef<Step(void* place)> step_at, void* result,
                           std::size_t bytes, void* /*stream*/) {
  const std::size_t aligned = (bytes + vector_bytes - 1) / vector_bytes;
  struct alignas(vector_bytes) Vector {
    std::byte bytes[vector_bytes];
  };
  std::vector<Vector> place(aligned);
  launch(step_at(place.data()));
  std::memcpy(result, place.data(), bytes);
}

void EmulatorExecutor::read(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }

AttuneTensorMap EmulatorExecutor::encode(const TensorDescription& tensor) const {
  return emulator::emulated_map({.base = tensor.base,
                                 .rank = tensor.rank,
                                 .extents = tensor.extents,
                                 .strides = tensor.strides,
                                 .box = tensor.box});
}

std::uint64_t EmulatorExecutor::launch_number() {
  constexpr std::uint64_t any = 0x9e3779b97f4a7c15U;
  return any;
}

}  // namespace attune
