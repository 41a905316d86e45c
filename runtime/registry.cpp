#include "runtime/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "generator/check.hpp"
#include "runtime/arguments.hpp"
#include "runtime/choice.hpp"
#include "runtime/chunk_plan.hpp"
#include "runtime/decode_arguments.hpp"
#include "runtime/decode_plan.hpp"
#include "runtime/driver.hpp"
#include "runtime/emulated.hpp"
#include "runtime/error.hpp"
#include "runtime/launch.hpp"
#include "runtime/merge_arguments.hpp"
#include "runtime/plan.hpp"
#include "runtime/store_arguments.hpp"
#include "runtime/table_check.hpp"

namespace attune {
namespace {

/// A kernel in memory, and the device it was loaded for.
struct Loaded {
  Variant variant;
  KernelHandle kernel;
  Device device;
};

/// What decides which kernel serves a call, in 64 bits.
template <class AnyProblem>
std::uint64_t key_of(const AnyProblem& problem, int ordinal) {
  return static_cast<std::uint64_t>(ordinal) << AnyProblem::key_bits | problem.key();
}

/// Which kernel serves which key; never changed once it is published.
struct Table {
  struct Row {
    std::uint64_t key;
    const Loaded* loaded;
  };
  std::vector<Row> rows;  ///< ascending by key

  [[nodiscard]] const Loaded* find(std::uint64_t key) const {
    const auto row = std::ranges::lower_bound(rows, key, {}, &Row::key);
    return row != rows.end() && row->key == key ? row->loaded : nullptr;
  }

  [[nodiscard]] Table with(Row row) const {
    Table result = *this;
    result.rows.insert(std::ranges::lower_bound(result.rows, row.key, {}, &Row::key), row);
    return result;
  }
};

}  // namespace

struct Registry::State {
  explicit State(RegistryOptions options)
      : policy(options.policy),
        ready(options.bundles),
        cache(std::move(options.cache_root)),
        recorder(open_recorder(options.record)) {
    if (options.device == ATTUNE_DEVICE_EMULATOR) emulated.emplace(policy, ready, cache, options.emulator_seed);
  }

  ~State() {
    for (const auto& loaded : kernels) driver_owner->unload(loaded->kernel);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const attune_compile_policy policy;
  const ReadyKernels ready;
  const Cache cache;
  const std::unique_ptr<Recorder> recorder;  ///< null: nothing is recorded

  /// In place of a driver, and of everything below.
  std::optional<EmulatedKernels> emulated;

  // Read without the lock; what they point to lives until the registry goes.
  std::atomic<const Driver*> driver = nullptr;
  std::array<std::atomic<const Table*>, operation_count> published{};

  // Everything below is changed under the lock only.
  std::mutex mutex;
  std::unique_ptr<Driver> driver_owner;
  std::unique_ptr<Compiler> compiler;
  std::map<int, Device> devices;
  std::vector<std::unique_ptr<Loaded>> kernels;
  std::vector<std::unique_ptr<const Table>> tables;  ///< the published ones, and those that may still be read

  const Driver& open_driver();
  template <class AnyProblem>
  const Loaded& kernel_for(const AnyProblem& problem, const Driver& driver);
  template <class AnyProblem>
  const Loaded& load(const AnyProblem& problem, const Driver& driver, int ordinal);
  template <class AnyProblem>
  const Loaded& load_best(const AnyProblem& problem, const Driver& driver, const Device& device);
  const Loaded* load_embedded(const EmbeddedKernel& embedded, const Driver& driver, const Device& device);
  const Loaded& load_generated(const Variant& variant, const Driver& driver, const Device& device);
  const Loaded* already_loaded(const Variant& variant, int ordinal) const;
  const Loaded& keep(const Variant& variant, KernelHandle kernel, const Device& device);
  const Compiler& open_compiler();

  // Of operations that are one launch of a thread for each 16 bytes.
  template <class Args>
  void prepare_chunks(const Args& args);
  template <class AnyProblem, class Params>
  void launch_chunks(const AnyProblem& problem, const Params& params, void* stream);

  void record(const auto& problem, long long calls = 1) {
    if (recorder != nullptr) recorder->note(problem, calls);
  }

  // Of calls that ask for a check of their tables.
  template <class Args>
  void prepare_check(const Args& args);
  template <class Args, class AnyProblem>
  void check(const Args& args, const AnyProblem& problem, void* stream);

  template <class AnyProblem>
  [[nodiscard]] std::atomic<const Table*>& table_of() {
    return published[static_cast<std::size_t>(AnyProblem::operation)];
  }
};

const Driver& Registry::State::open_driver() {
  if (const Driver* opened = driver.load(std::memory_order_acquire)) return *opened;
  const std::lock_guard lock(mutex);
  if (driver_owner == nullptr) driver_owner = std::make_unique<Driver>();
  driver.store(driver_owner.get(), std::memory_order_release);
  return *driver_owner;
}

const Compiler& Registry::State::open_compiler() {
  if (compiler == nullptr) compiler = std::make_unique<Compiler>();
  return *compiler;
}

template <class AnyProblem>
const Loaded& Registry::State::kernel_for(const AnyProblem& problem, const Driver& opened) {
  const std::optional<int> ordinal = opened.current_device();
  if (!ordinal) {
    throw Error(ATTUNE_NO_DEVICE,
                "no CUDA context is current on this thread; call cudaSetDevice (and, before CUDA 12, cudaFree(0)) or "
                "cuCtxSetCurrent first");
  }
  const std::uint64_t key = key_of(problem, *ordinal);
  const Table* table = table_of<AnyProblem>().load(std::memory_order_acquire);
  const Loaded* found = table != nullptr ? table->find(key) : nullptr;
  return found != nullptr ? *found : load(problem, opened, *ordinal);
}

template <class AnyProblem>
const Loaded& Registry::State::load(const AnyProblem& problem, const Driver& opened, int ordinal) {
  const std::lock_guard lock(mutex);
  const std::uint64_t key = key_of(problem, ordinal);
  const Table* table = table_of<AnyProblem>().load(std::memory_order_relaxed);
  if (table != nullptr) {
    if (const Loaded* found = table->find(key)) return *found;  // another thread was first
  }
  if (!devices.contains(ordinal)) devices.emplace(ordinal, opened.device(ordinal));
  const Device& device = devices.at(ordinal);

  const Loaded* loaded = &load_best(problem, opened, device);
  const Table::Row row{key, loaded};
  tables.push_back(std::make_unique<const Table>(table != nullptr ? table->with(row) : Table{{row}}));
  table_of<AnyProblem>().store(tables.back().get(), std::memory_order_release);
  return *loaded;
}

const Loaded* Registry::State::already_loaded(const Variant& variant, int ordinal) const {
  const auto same = [&](const auto& loaded) { return loaded->variant == variant && loaded->device.ordinal == ordinal; };
  const auto found = std::ranges::find_if(kernels, same);
  return found == kernels.end() ? nullptr : found->get();
}

const Loaded& Registry::State::keep(const Variant& variant, KernelHandle kernel, const Device& device) {
  try {
    kernels.push_back(std::make_unique<Loaded>(Loaded{variant, kernel, device}));
  } catch (...) {
    driver_owner->unload(kernel);
    throw;
  }
  return *kernels.back();
}

/// Embedded or generated, as the policy says.
template <class AnyProblem>
const Loaded& Registry::State::load_best(const AnyProblem& problem, const Driver& opened, const Device& device) {
  const ReadyChoice choice = choose_ready(ready, problem, device, policy);
  const EmbeddedKernel* best = choice.kernel;
  if (choice.preferred) {
    if (const Loaded* loaded = load_embedded(*best, opened, device)) return *loaded;
    best = nullptr;
  }
  try {
    return load_generated(variant_to_generate(problem, device, policy), opened, device);
  } catch (const Error& error) {
    if (error.status() != ATTUNE_NOT_COMPILED) throw;
    // No compiler here: a kernel that pads head_dim gives the same numbers.
    if (best != nullptr) {
      if (const Loaded* loaded = load_embedded(*best, opened, device)) return *loaded;
    }
    throw Error(ATTUNE_NOT_COMPILED,
                fmt::format("none of the {} embedded kernels serves {} on {}; {}",
                            ready.variants(AnyProblem::operation).size(), problem.text(), device.name, error.what()));
  }
}

/// Null when the image has no code for this GPU.
const Loaded* Registry::State::load_embedded(const EmbeddedKernel& embedded, const Driver& opened,
                                             const Device& device) {
  if (const Loaded* loaded = already_loaded(embedded.variant, device.ordinal)) return loaded;
  try {
    const int shared_bytes = resources(embedded.variant).shared_bytes;
    const KernelHandle kernel = opened.load(embedded.fatbin, std::string(embedded.name), shared_bytes, device.ordinal);
    return &keep(embedded.variant, kernel, device);
  } catch (const Error& error) {
    if (error.status() != ATTUNE_UNSUPPORTED) throw;
    return nullptr;
  }
}

/// A kernel of exactly this variant: generated, then from the disk or from NVRTC.
const Loaded& Registry::State::load_generated(const Variant& variant, const Driver& opened, const Device& device) {
  if (const Loaded* loaded = already_loaded(variant, device.ordinal)) return *loaded;
  const Source source = generate(variant);
  const Compiler& nvrtc = open_compiler();
  const CacheKey key = cache_key(source, device.capability, nvrtc.identity());
  const Compiled compiled = cache.find_or_build(key, source, [&] { return nvrtc.compile(source, device.capability); });
  const KernelHandle kernel = opened.load(compiled.image, source.name, resources(variant).shared_bytes, device.ordinal);
  return keep(variant, kernel, device);
}

Registry::Registry(RegistryOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Registry::~Registry() = default;

void Registry::prepare(const attune_prefill_args& args) {
  const Problem problem = check_arguments(args);
  state_->record(problem, 0);
  if (state_->emulated) return state_->emulated->prepare(problem);
  const Driver& driver = state_->open_driver();
  // Loaded in another context of this device before: this context still has to get its code.
  driver.warm(state_->kernel_for(problem, driver).kernel);
}

void Registry::prefill(const attune_prefill_args& args, void* stream) {
  const Problem problem = check_arguments(args);
  if (is_empty(problem)) return;
  state_->record(problem);
  if (state_->emulated) return state_->emulated->prefill(args, problem);
  const Driver& driver = state_->open_driver();
  const Loaded& loaded = state_->kernel_for(problem, driver);
  launch(driver, loaded.kernel, plan(loaded.variant, problem, loaded.device), make_params(args, problem), stream);
}

template <class Args>
void Registry::State::prepare_check(const Args& args) {
  if (!checks_tables(args)) return;
  record(CheckProblem{}, 0);
  if (emulated) return emulated->prepare(CheckProblem{});
  const Driver& opened = open_driver();
  opened.warm(kernel_for(CheckProblem{}, opened).kernel);
}

template <class Args, class AnyProblem>
void Registry::State::check(const Args& args, const AnyProblem& problem, void* stream) {
  if (!checks_tables(args)) return;
  record(CheckProblem{});
  AttuneCheckParams params = check_params(args, problem);
  if (emulated) return emulated->check(params);
  const Driver& opened = open_driver();
  const Loaded& loaded = kernel_for(CheckProblem{}, opened);
  if (opened.is_capturing(stream)) {
    throw Error(ATTUNE_INVALID_ARGUMENT,
                "check_tables is 1, but the stream is being captured; what a check finds cannot be waited for there");
  }
  const auto release = [&opened](AttuneTableFault* fault) { opened.free(fault); };
  const std::unique_ptr<AttuneTableFault, decltype(release)> found(
      static_cast<AttuneTableFault*>(opened.allocate(sizeof(AttuneTableFault))), release);
  params.fault = found.get();
  const Resources needs = resources(loaded.variant);
  opened.launch(loaded.kernel, {.x = 1, .y = 1, .z = 1}, needs.threads, needs.shared_bytes, stream, &params);
  opened.synchronize(stream);
  AttuneTableFault fault{};
  opened.copy_to_host(&fault, found.get(), sizeof(fault));
  throw_fault(params, fault,
              [&](void* to, const void* from, std::size_t bytes) { opened.copy_to_host(to, from, bytes); });
}

void Registry::prepare(const attune_decode_args& args) {
  const DecodeProblem problem = check_arguments(args);
  state_->record(problem, 0);
  state_->prepare_check(args);
  if (state_->emulated) return state_->emulated->prepare(problem);
  const Driver& driver = state_->open_driver();
  const Loaded& loaded = state_->kernel_for(problem, driver);
  driver.warm(loaded.kernel);
  const DecodePlan planned = plan(loaded.variant, problem, loaded.device);
  if (planned.combines()) driver.warm(state_->kernel_for(problem.merge(), driver).kernel);
  if (problem.appends()) driver.warm(state_->kernel_for(problem.store(), driver).kernel);
}

void Registry::decode(const attune_decode_args& args, void* stream) {
  const DecodeProblem problem = check_arguments(args);
  if (problem.batch > 0) state_->check(args, problem, stream);
  if (is_empty(problem)) return store_kv(store_args(args, problem), stream);
  state_->record(problem);
  if (state_->emulated) return state_->emulated->decode(args, problem);
  const Driver& driver = state_->open_driver();
  const Loaded& loaded = state_->kernel_for(problem, driver);
  const DecodePlan planned = plan(loaded.variant, problem, loaded.device);
  check_workspace(args, planned);
  // Found before the first launch: what fails must not leave half of the work behind.
  const Loaded* merge = planned.combines() ? &state_->kernel_for(problem.merge(), driver) : nullptr;
  const StoreProblem new_keys = problem.store();
  const Loaded* store = is_empty(new_keys) ? nullptr : &state_->kernel_for(new_keys, driver);
  const AttuneDecodeParams params = make_params(args, problem, planned);
  const auto behind = loaded.device.capability >= 90 ? LaunchOrder::overlapping : LaunchOrder::after;
  if (store != nullptr) {
    const ChunkPlan chunks = plan(store->variant, new_keys);
    const AttuneStoreParams store_params = make_params(store_args(args, problem), new_keys);
    driver.launch(store->kernel, chunks.grid, chunks.threads, 0, stream, &store_params);
  }
  driver.launch(loaded.kernel, planned.grid, planned.threads, planned.shared_bytes, stream, &params,
                store != nullptr ? behind : LaunchOrder::after);
  if (merge == nullptr) return;
  const Resources needs = resources(merge->variant);
  driver.launch(merge->kernel, planned.combine_grid, needs.threads, needs.shared_bytes, stream, &params, behind);
}

template <class Args>
void Registry::State::prepare_chunks(const Args& args) {
  const auto problem = check_arguments(args);
  record(problem, 0);
  if (emulated) return emulated->prepare(problem);
  const Driver& opened = open_driver();
  opened.warm(kernel_for(problem, opened).kernel);
}

template <class AnyProblem, class Params>
void Registry::State::launch_chunks(const AnyProblem& problem, const Params& params, void* stream) {
  const Driver& opened = open_driver();
  const Loaded& loaded = kernel_for(problem, opened);
  const ChunkPlan planned = plan(loaded.variant, problem);
  opened.launch(loaded.kernel, planned.grid, planned.threads, 0, stream, &params);
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

std::size_t Registry::decode_workspace(const attune_decode_args& args) {
  const DecodeProblem problem = check_shapes(args);
  if (is_empty(problem) || problem.splits == 1) return 0;
  if (problem.splits > 1) return workspace_bytes(problem, static_cast<long long>(problem.batch) * problem.splits);
  if (state_->emulated) return state_->emulated->decode_plan(problem).workspace_bytes;
  const Loaded& loaded = state_->kernel_for(problem, state_->open_driver());
  return plan(loaded.variant, problem, loaded.device).workspace_bytes;
}

}  // namespace attune
