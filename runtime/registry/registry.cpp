#include "runtime/registry/registry.hpp"

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/base/counters.hpp"
#include "runtime/execute/emulator_executor.hpp"
#include "runtime/execute/gpu_executor.hpp"
#include "runtime/registry/emulated_kernels.hpp"
#include "runtime/registry/gpu_kernels.hpp"

namespace attune {

struct Registry::State {
  /// A GPU's kernels, and what launches them.
  struct Gpu {
    GpuKernels kernels;
    GpuExecutor executor{kernels.driver()};
  };

  explicit State(RegistryOptions options)
      : policy(options.policy),
        emulator_seed(options.emulator_seed),
        log(std::move(options.log)),
        ready(options.ready ? std::move(*options.ready) : ReadyKernels(options.bundles, warnings())),
        cache(std::move(options.cache_root), warnings()),
        recorder(open_recorder(options.record, warnings())) {
    if (options.device == ATTUNE_DEVICE_EMULATOR) {
      emulated.emplace(policy, ready, cache, counters, log);
    } else {
      tuned.emplace(options.tuned ? std::move(*options.tuned) : default_tuned_tables(ready, warnings()));
    }
  }

  [[nodiscard]] LineLog warnings() const {
    return [this](const std::string& line) { log(ATTUNE_LOG_WARNING, line); };
  }

  Counters counters;
  const attune_compile_policy policy;
  const std::uint64_t emulator_seed;
  const Log log;
  const ReadyKernels ready;
  std::optional<TunedDevices> tuned;  ///< none for the emulator: nobody times its kernels
  const Cache cache;
  const std::unique_ptr<Recorder> recorder;  ///< null: nothing is recorded

  /// In place of a driver, and of everything below.
  std::optional<EmulatedKernels> emulated;

  std::atomic<Gpu*> opened = nullptr;  ///< null before first need
  std::mutex opening;
  std::unique_ptr<Gpu> gpu_owner;

  Gpu& gpu();

  Kernels& kernels() {
    if (emulated) return *emulated;
    return gpu().kernels;
  }

  void record(const auto& problem, long long calls) {
    if (recorder != nullptr) recorder->note(problem, calls);
  }

  /// Calls `function` with the backend for a stream.
  void with_backend(void* stream, const auto& function) {
    if (emulated) {
      EmulatorExecutor executor({.seed = emulator_seed});
      function(Backend{*emulated, executor, stream});
    } else {
      Gpu& opened = gpu();
      function(Backend{opened.kernels, opened.executor, stream});
    }
  }
};

Registry::State::Gpu& Registry::State::gpu() {
  if (Gpu* const known = opened.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(opening);
  if (gpu_owner == nullptr) gpu_owner.reset(new Gpu{{policy, ready, *tuned, cache, counters, log}});
  opened.store(gpu_owner.get(), std::memory_order_release);
  return *gpu_owner;
}

Registry::Registry(RegistryOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Registry::~Registry() = default;

void Registry::prepare(AnyArgs args) {
  std::visit(
      [this](const auto* call) {
        const auto problem = check_arguments(*call);
        state_->record(problem, 0);
        Kernels& kernels = state_->kernels();
        const auto prepare_kernel = [&](const ProblemView& one, Needed needed) -> const ServingKernel& {
          return kernels.prepare(one, needed);
        };
        attune::prepare(problem, prepare_kernel);
        if (!checks_tables(*call)) return;
        state_->record(CheckProblem{}, 0);
        prepare_kernel(CheckProblem{}, Needed::yes);
      },
      args.pointer);
}

void Registry::run(AnyArgs args, void* stream) {
  std::visit(
      [this, stream](const auto* call) {
        const auto problem = check_arguments(*call);
        if (is_idle(*call, problem)) return;
        state_->record(problem, 1);
        state_->with_backend(stream, [&](const Backend& backend) {
          if constexpr (requires { run_table_check(*call, problem, backend); }) {
            if (checks_tables(*call)) run_table_check(*call, problem, backend);
          }
          attune::run(*call, problem, backend);
        });
      },
      args.pointer);
}

ServingNames Registry::serving(AnyArgs args) {
  return std::visit(
      [this](const auto* call) {
        const auto problem = check_arguments(*call);
        return state_->kernels().serving(problem);
      },
      args.pointer);
}

std::size_t Registry::workspace_bytes(AnyArgs args) {
  return std::visit(
      [this](const auto* call) {
        const auto most = [this](const ProblemView& problem, auto bytes, Needed needed) {
          return state_->kernels().most_bytes(problem, bytes, needed);
        };
        return attune::workspace_bytes(check_shapes(*call), most);
      },
      args.pointer);
}

std::function<void()> Registry::share_context() {
  if (state_->emulated) return [] {};
  const Driver& driver = state_->gpu().kernels.driver();
  void* const context = driver.current_context();
  return [&driver, context] { driver.use_context(context); };
}

void Registry::finish() {
  if (state_->recorder != nullptr) state_->recorder->write_all();
  if (State::Gpu* gpu = state_->opened.load(std::memory_order_acquire)) gpu->kernels.stop_background();
}

attune_counters Registry::counters() const { return state_->counters.snapshot(); }

}  // namespace attune
