#include "runtime/registry/registry.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "generator/check.hpp"
#include "runtime/base/counters.hpp"
#include "runtime/base/error.hpp"
#include "runtime/execute/emulated.hpp"
#include "runtime/operations/check/table_check.hpp"
#include "runtime/operations/chunk_plan.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/merge/arguments.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/launch.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/store/arguments.hpp"
#include "runtime/registry/gpu_kernels.hpp"
#include "runtime/registry/launch_numbers.hpp"

namespace attune {
namespace {

/// The problem of the launch that begins with this sequence.
DecodeProblem launched_of(DecodeProblem problem, long long begin) {
  problem.batch = static_cast<int>(std::min<long long>(problem.batch - begin, most_launched_sequences));
  return problem;
}

}  // namespace

struct Registry::State {
  explicit State(RegistryOptions options)
      : policy(options.policy),
        log(std::move(options.log)),
        ready(options.ready ? std::move(*options.ready) : ReadyKernels(options.bundles, warnings())),
        cache(std::move(options.cache_root), warnings()),
        recorder(open_recorder(options.record, warnings())) {
    if (options.device == ATTUNE_DEVICE_EMULATOR) {
      emulated.emplace(policy, ready, cache, counters, options.emulator_seed);
    } else {
      tuned.emplace(options.tuned ? std::move(*options.tuned) : default_tuned_tables(ready, warnings()));
    }
  }

  [[nodiscard]] LineLog warnings() const {
    return [this](const std::string& line) { log(ATTUNE_LOG_WARNING, line); };
  }

  const attune_compile_policy policy;
  const Log log;
  const ReadyKernels ready;
  std::optional<TunedDevices> tuned;  ///< none for the emulator: nobody times its kernels
  const Cache cache;
  Counters counters;
  const std::unique_ptr<Recorder> recorder;  ///< null: nothing is recorded
  LaunchNumbers launches;

  /// In place of a driver, and of everything below.
  std::optional<EmulatedKernels> emulated;

  std::atomic<GpuKernels*> opened = nullptr;  ///< null before first need
  std::mutex opening;
  std::unique_ptr<GpuKernels> gpu_owner;

  GpuKernels& gpu();

  // Of operations that are one launch of a thread for each 16 bytes.
  template <class Args>
  void prepare_chunks(const Args& args);
  template <class AnyProblem, class Params>
  void launch_chunks(const AnyProblem& problem, const Params& params, void* stream);

  ServingNames serving(const auto& problem) {
    if (emulated) return {.now = emulated->serving(problem), .coming = {}};
    const KernelTable::Row* row = gpu().find_row(problem);
    if (row == nullptr) return {};
    return {.now = row->kernel->variant.name(), .coming = row->coming == nullptr ? "" : row->coming->name()};
  }

  void record(const auto& problem, long long calls = 1) {
    if (recorder != nullptr) recorder->note(problem, calls);
  }

  /// A checked call of no more sequences than a launch takes.
  void decode(const attune_decode_args& args, const DecodeProblem& problem, void* stream);
  [[nodiscard]] std::size_t decode_workspace(const DecodeProblem& problem);

  // Of calls that ask for a check of their tables.
  template <class Args>
  void prepare_check(const Args& args);
  template <class Args, class AnyProblem>
  void check(const Args& args, const AnyProblem& problem, void* stream);
};

GpuKernels& Registry::State::gpu() {
  if (GpuKernels* kernels = opened.load(std::memory_order_acquire)) return *kernels;
  const std::lock_guard lock(opening);
  if (gpu_owner == nullptr) gpu_owner = std::make_unique<GpuKernels>(policy, ready, *tuned, cache, counters, log);
  opened.store(gpu_owner.get(), std::memory_order_release);
  return *gpu_owner;
}

Registry::Registry(RegistryOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Registry::~Registry() = default;

void Registry::prepare(const attune_prefill_args& args) {
  const Problem problem = check_arguments(args);
  state_->record(problem, 0);
  if (state_->emulated) return state_->emulated->prepare(problem);
  state_->gpu().prepare(problem);
}

void Registry::prefill(const attune_prefill_args& args, void* stream) {
  const Problem problem = check_arguments(args);
  if (is_empty(problem)) return;
  state_->record(problem);
  if (state_->emulated) return state_->emulated->prefill(args, problem);
  GpuKernels& gpu = state_->gpu();
  const LoadedKernel& loaded = gpu.kernel_for(problem);
  launch(gpu.driver(), loaded.handle, plan(loaded.variant, problem, loaded.device), make_params(args, problem),
         workspace_of(args, state_->launches.next()), stream);
}

template <class Args>
void Registry::State::prepare_check(const Args& args) {
  if (!checks_tables(args)) return;
  record(CheckProblem{}, 0);
  if (emulated) return emulated->prepare(CheckProblem{});
  gpu().prepare(CheckProblem{});
}

template <class Args, class AnyProblem>
void Registry::State::check(const Args& args, const AnyProblem& problem, void* stream) {
  if (!checks_tables(args)) return;
  record(CheckProblem{});
  AttuneCheckParams params = check_params(args, problem);
  if (emulated) return emulated->check(params);
  const LoadedKernel& loaded = gpu().kernel_for(CheckProblem{});
  const Driver& opened = gpu().driver();
  if (opened.is_capturing(stream)) {
    throw Error(ATTUNE_INVALID_ARGUMENT,
                "check_tables is 1, but the stream is being captured; what a check finds cannot be waited for there");
  }
  const auto release = [&opened](AttuneTableFault* fault) { opened.free(fault); };
  const std::unique_ptr<AttuneTableFault, decltype(release)> found(
      static_cast<AttuneTableFault*>(opened.allocate(sizeof(AttuneTableFault))), release);
  params.fault = found.get();
  const Resources needs = resources(loaded.variant);
  opened.launch(loaded.handle, {.x = 1, .y = 1, .z = 1}, needs.threads, needs.shared_bytes, stream, &params);
  opened.synchronize(stream);
  AttuneTableFault fault{};
  opened.copy_to_host(&fault, found.get(), sizeof(fault));
  throw_fault(params, fault,
              [&](void* to, const void* from, std::size_t bytes) { opened.copy_to_host(to, from, bytes); });
}

void Registry::prepare(const attune_decode_args& args) {
  const DecodeProblem checked = check_arguments(args);
  state_->record(checked, 0);
  state_->prepare_check(args);
  const DecodeProblem problem = launched_of(checked, 0);
  if (state_->emulated) return state_->emulated->prepare(problem);
  GpuKernels& gpu = state_->gpu();
  const LoadedKernel& loaded = gpu.prepare(problem);
  const DecodePlan planned = plan(loaded.variant, problem, loaded.device);
  if (planned.combines()) gpu.prepare(problem.merge());
  if (problem.appends()) gpu.prepare(problem.store());
}

void Registry::decode(const attune_decode_args& args, void* stream) {
  const DecodeProblem problem = check_arguments(args);
  if (problem.batch > 0) state_->check(args, problem, stream);
  if (is_empty(problem)) return store_kv(store_args(args, problem), stream);
  state_->record(problem);
  if (problem.batch <= most_launched_sequences) return state_->decode(args, problem, stream);
  for (long long begin = 0; begin < problem.batch; begin += most_launched_sequences) {
    const attune_decode_args part = part_of(args, problem, begin, launched_of(problem, begin).batch);
    state_->decode(part, check_arguments(part), stream);
  }
}

void Registry::State::decode(const attune_decode_args& args, const DecodeProblem& problem, void* stream) {
  if (emulated) return emulated->decode(args, problem);
  GpuKernels& gpu = this->gpu();
  const Driver& driver = gpu.driver();
  const LoadedKernel& loaded = gpu.kernel_for(problem);
  const DecodePlan planned = plan(loaded.variant, problem, loaded.device);
  check_workspace(args, planned);
  // Found before the first launch: what fails must not leave half of the work behind.
  const LoadedKernel* merge = planned.combines() ? &gpu.kernel_for(problem.merge()) : nullptr;
  const StoreProblem new_keys = problem.store();
  const LoadedKernel* store = is_empty(new_keys) ? nullptr : &gpu.kernel_for(new_keys);
  const AttuneDecodeParams params = make_params(args, problem, planned);
  const auto behind = loaded.device.capability >= 90 ? LaunchOrder::overlapping : LaunchOrder::after;
  if (store != nullptr) {
    const ChunkPlan chunks = plan(store->variant, new_keys);
    const AttuneStoreParams store_params = make_params(store_args(args, problem), new_keys);
    driver.launch(store->handle, chunks.grid, chunks.threads, 0, stream, &store_params);
  }
  driver.launch(loaded.handle, planned.grid, planned.threads, planned.shared_bytes, stream, &params,
                store != nullptr ? behind : LaunchOrder::after);
  if (merge == nullptr) return;
  const Resources needs = resources(merge->variant);
  driver.launch(merge->handle, planned.combine_grid, needs.threads, needs.shared_bytes, stream, &params, behind);
}

template <class Args>
void Registry::State::prepare_chunks(const Args& args) {
  const auto problem = check_arguments(args);
  record(problem, 0);
  if (emulated) return emulated->prepare(problem);
  gpu().prepare(problem);
}

template <class AnyProblem, class Params>
void Registry::State::launch_chunks(const AnyProblem& problem, const Params& params, void* stream) {
  const LoadedKernel& loaded = gpu().kernel_for(problem);
  const ChunkPlan planned = plan(loaded.variant, problem);
  gpu().driver().launch(loaded.handle, planned.grid, planned.threads, 0, stream, &params);
}

void Registry::prepare(const attune_store_kv_args& args) {
  state_->prepare_chunks(args);
  state_->prepare_check(args);
}

void Registry::store_kv(const attune_store_kv_args& args, void* stream) {
  const StoreProblem problem = check_arguments(args);
  if (is_empty(problem)) return;
  state_->record(problem);
  state_->check(args, problem, stream);
  if (state_->emulated) return state_->emulated->store_kv(args, problem);
  state_->launch_chunks(problem, make_params(args, problem), stream);
}

void Registry::prepare(const attune_merge_states_args& args) { state_->prepare_chunks(args); }

void Registry::merge_states(const attune_merge_states_args& args, void* stream) {
  const MergeProblem problem = check_arguments(args);
  if (is_empty(problem)) return;
  state_->record(problem);
  if (state_->emulated) return state_->emulated->merge_states(args, problem);
  state_->launch_chunks(problem, make_params(args, problem), stream);
}

ServingNames Registry::serving(const attune_prefill_args& args) { return state_->serving(check_arguments(args)); }
ServingNames Registry::serving(const attune_decode_args& args) { return state_->serving(check_arguments(args)); }
ServingNames Registry::serving(const attune_store_kv_args& args) { return state_->serving(check_arguments(args)); }
ServingNames Registry::serving(const attune_merge_states_args& args) { return state_->serving(check_arguments(args)); }

std::size_t Registry::prefill_workspace(const attune_prefill_args& args) {
  const Problem problem = check_shapes(args);
  if (is_empty(problem)) return 0;
  if (state_->emulated) return state_->emulated->prefill_workspace(problem);
  const KernelTable::Row& row = state_->gpu().row_for(problem);
  const Device& device = row.kernel->device;
  const std::size_t now = plan(row.kernel->variant, problem, device).workspace_bytes;
  return row.coming == nullptr ? now : std::max(now, plan(*row.coming, problem, device).workspace_bytes);
}

std::size_t Registry::decode_workspace(const attune_decode_args& args) {
  const DecodeProblem problem = check_shapes(args);
  if (is_empty(problem) || problem.splits == 1) return 0;
  std::size_t most = 0;  // launches come one behind the other
  for (long long begin = 0; begin < problem.batch; begin += most_launched_sequences) {
    most = std::max(most, state_->decode_workspace(launched_of(problem, begin)));
  }
  return most;
}

std::size_t Registry::State::decode_workspace(const DecodeProblem& problem) {
  if (problem.splits > 1) return workspace_bytes(problem, static_cast<long long>(problem.batch) * problem.splits);
  if (emulated) return emulated->decode_plan(problem).workspace_bytes;
  const KernelTable::Row& row = gpu().row_for(problem);
  const Device& device = row.kernel->device;
  const std::size_t now = plan(row.kernel->variant, problem, device).workspace_bytes;
  return row.coming == nullptr ? now : std::max(now, plan(*row.coming, problem, device).workspace_bytes);
}

std::function<void()> Registry::share_context() {
  if (state_->emulated) return [] {};
  const Driver& driver = state_->gpu().driver();
  void* const context = driver.current_context();
  return [&driver, context] { driver.use_context(context); };
}

void Registry::finish() {
  if (state_->recorder != nullptr) state_->recorder->write_all();
  if (GpuKernels* gpu = state_->opened.load(std::memory_order_acquire)) gpu->stop_background();
}

attune_counters Registry::counters() const { return state_->counters.snapshot(); }

}  // namespace attune
