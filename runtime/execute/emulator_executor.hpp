// Plans on the emulator: the same launches and parameters as on a GPU, over the caller's host memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/call/backend.hpp"
#include "runtime/emulator/emulator.hpp"

namespace attune {

/// A kernel that the host's compiler made.
struct EmulatedKernel : ServingKernel {
  emulator::Kernel kernel;
};

/// Throws Error{ATTUNE_COMPILE_ERROR} when the bytes are no kernel.
EmulatedKernel emulated_kernel(const Variant& variant, std::string_view shared_object, const std::string& name);

/// The operands as the emulator is told of them; those that are null are left out.
std::vector<emulator::Buffer> buffers_of(Operands operands);

/// How to run a call, besides what it computes.
struct EmulatedRun {
  std::uint64_t seed = 1;    ///< of the schedule
  int jobs = 0;              ///< blocks at a time; 0: one for each core
  bool count_banks = false;  ///< fill Report::sites
};

/// Runs plans of EmulatedKernels, one at a time.
class EmulatorExecutor : public Executor {
 public:
  explicit EmulatorExecutor(const EmulatedRun& how = {}) : how_(how) {}

  /// Throws Error{ATTUNE_KERNEL_FAULT} after a launch in which the emulator found something.
  void run(const Plan& plan, void* stream) override;
  void ask(const char* asker, FunctionRef<Step(void* place)> step_at, void* result, std::size_t bytes,
           void* stream) override;
  void read(void* to, const void* from, std::size_t bytes) const override;
  bool is_capturing(void* /*stream*/) const override { return false; }
  [[nodiscard]] AttuneTensorMap encode(const TensorDescription& tensor) const override;
  std::uint64_t launch_number() override;

  /// Of the last launch.
  [[nodiscard]] const emulator::Report& report() const { return report_; }

 private:
  void launch(const Step& step);

  EmulatedRun how_;
  emulator::Report report_;
};

}  // namespace attune
