// An experiment of the mutation test that is a whole call, of whose launches one has the kernel with the bug.
#pragma once

#include <memory>
#include <string>

#include "generator/variant.hpp"
#include "runtime/call/problem_view.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/lab/memory.hpp"
#include "tests/emulator/experiment.hpp"

namespace attune::mutation_tests {

class PlanExperiment : public Experiment, private EmulatorExecutor {
 public:
  struct Options {
    unsigned group = 0;        ///< heads whose tiles run together; 0: as planned
    bool count_banks = false;  ///< and compare them with the unmutated run
  };

 protected:
  /// `before` is what the call finds, `others` compiles the other launches' kernels.
  PlanExperiment(const Variant& variant, const Device& device, Memory before, const Options& options,
                 std::shared_ptr<HostKernels> others);

  /// Serves a part of the call: with the kernel that has the bug if the variant is of its operation, else one of this
  /// family; -1: the first of the operation.
  void serve(const ProblemView& part, int family = -1);

  /// The memory that the call is about.
  Memory& memory() { return memory_; }

  virtual void call(const Backend& backend) = 0;

  /// What is wrong with the memory after the call, or nothing.
  [[nodiscard]] virtual std::string wrong(const Memory& after) const = 0;

  [[nodiscard]] virtual std::string text() const = 0;

 private:
  Seen launch(const emulator::Kernel& kernel) override;
  [[nodiscard]] std::string complaint() const override;
  void run(const Plan& plan, void* stream) override;
  void launch_step(const Step& step, bool is_own);

  Options options_;
  ServingKernel own_;
  std::shared_ptr<HostKernels> others_;
  FixedKernels kernels_;
  const emulator::Kernel* kernel_ = nullptr;
  Memory memory_;
  Memory first_;   ///< as the call finds it
  Memory before_;  ///< as the launch with the bug finds it, once one was made
  std::string fault_;
  bool leaves_turns_ = false;
  long long wavefronts_ = 0;
};

}  // namespace attune::mutation_tests
