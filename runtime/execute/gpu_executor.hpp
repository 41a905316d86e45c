// Plans on a GPU.
#pragma once

#include <string>
#include <string_view>

#include "runtime/call/backend.hpp"
#include "runtime/execute/launch_numbers.hpp"
#include "runtime/gpu/driver.hpp"

namespace attune {

/// A kernel in a GPU's memory; unloaded when this goes.
struct LoadedKernel : ServingKernel {
  /// `image` is a cubin or a fatbin. Throws Error.
  LoadedKernel(const Driver& owner, const Variant& of, const Device& where, std::string_view image,
               const std::string& name);
  ~LoadedKernel();
  LoadedKernel(LoadedKernel&& other) noexcept;
  LoadedKernel& operator=(LoadedKernel&&) = delete;
  LoadedKernel(const LoadedKernel&) = delete;

  const Driver& driver;
  KernelHandle handle;
};

/// Runs plans of LoadedKernels in the current context. Thread-safe.
class GpuExecutor : public Executor {
 public:
  /// The driver outlives it.
  explicit GpuExecutor(const Driver& driver) : driver_(driver) {}

  void run(const Plan& plan, void* stream) override;
  void ask(const char* asker, FunctionRef<Step(void* place)> step_at, void* result, std::size_t bytes,
           void* stream) override;
  void read(void* to, const void* from, std::size_t bytes) const override { driver_.copy_to_host(to, from, bytes); }
  bool is_capturing(void* stream) const override { return driver_.is_capturing(stream); }

  /// This thread's last maps are kept, as calls on the same tensors repeat.
  AttuneTensorMap encode(const TensorDescription& tensor) const override;

  std::uint64_t launch_number() override { return launches_.next(); }

 private:
  void launch(const Step& step, void* stream) const;

  const Driver& driver_;
  LaunchNumbers launches_;
};

}  // namespace attune
