#include "runtime/lab/fixed_kernels.hpp"

namespace attune {

emulator::Report emulate(KernelFinder& kernels, const EmulatedRun& how, FunctionRef<void(const Backend&)> call) {
  EmulatorExecutor executor(how);
  try {
    call(Backend{kernels, executor, nullptr});
  } catch (const Error& error) {
    if (error.status() != ATTUNE_KERNEL_FAULT) throw;
  }
  return executor.report();
}

}  // namespace attune
