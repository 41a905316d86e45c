#include "runtime/python/registries.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/environment.hpp"
#include "runtime/base/error.hpp"
#include "runtime/python/errors.hpp"

namespace attune::python {
namespace {

attune_compile_policy policy_of_environment() {
  constexpr std::array<std::pair<std::string_view, attune_compile_policy>, 4> policies{{
      {"missing", ATTUNE_COMPILE_MISSING},
      {"frozen", ATTUNE_COMPILE_FROZEN},
      {"exact", ATTUNE_COMPILE_EXACT},
      {"background", ATTUNE_COMPILE_BACKGROUND},
  }};
  const std::string word = environment("ATTUNE_COMPILE");
  if (word.empty()) return ATTUNE_COMPILE_MISSING;
  for (const auto& [name, policy] : policies) {
    if (word == name) return policy;
  }
  throw Error(ATTUNE_INVALID_ARGUMENT, "the environment variable ATTUNE_COMPILE is \"" + word +
                                           "\"; it must be missing, frozen, exact or background");
}

attune_registry* open_registry(attune_device device) {
  attune_options options{};
  options.struct_size = sizeof(options);
  options.compile_policy = policy_of_environment();
  options.device = device;
  options.emulator_seed = 1;
  attune_registry* registry = nullptr;
  check(attune_registry_create(&options, &registry));
  return registry;
}

/// The registries that are open: of the GPUs, of the emulator.
std::array<std::atomic<attune_registry*>, 2>& opened() {
  static std::array<std::atomic<attune_registry*>, 2> registries{};
  return registries;
}

/// The calls that run now.
struct RunningCalls {
  const pid_t process = getpid();  ///< a process that was forked from it has none of its threads
  std::mutex mutex;                ///< guards what follows
  std::condition_variable fewer;
  int count = 0;
  std::list<std::atomic<bool>*> stops;
  std::optional<std::thread::id> finisher;  ///< the thread that called finish()
};

/// Never destroyed: threads may outlive what is.
RunningCalls& running_calls() {
  static auto* const calls = new RunningCalls();
  return *calls;
}

}  // namespace

attune_registry* registry_of(bool emulator) {
  if (emulator) {
    static attune_registry* const registry = opened()[1] = open_registry(ATTUNE_DEVICE_EMULATOR);
    return registry;
  }
  static attune_registry* const registry = opened()[0] = open_registry(ATTUNE_DEVICE_CUDA);
  return registry;
}

attune_registry* opened_registry(bool emulator) { return opened()[emulator ? 1 : 0]; }

RunningCall::RunningCall(std::atomic<bool>* stop, std::thread::id caller) : stop_(stop) {
  RunningCalls& calls = running_calls();
  const std::lock_guard lock(calls.mutex);
  if (calls.finisher && *calls.finisher != caller) {
    throw Error(ATTUNE_INTERNAL_ERROR, "the interpreter is ending; no other thread's call begins any more");
  }
  ++calls.count;
  if (stop_ != nullptr) calls.stops.push_back(stop_);
}

RunningCall::~RunningCall() {
  RunningCalls& calls = running_calls();
  const std::lock_guard lock(calls.mutex);
  --calls.count;
  if (stop_ != nullptr) calls.stops.remove(stop_);
  calls.fewer.notify_all();
}

bool is_over() {
  RunningCalls& calls = running_calls();
  const std::lock_guard lock(calls.mutex);
  return calls.finisher && *calls.finisher != std::this_thread::get_id();
}

void finish() {
  RunningCalls& calls = running_calls();
  {
    std::unique_lock lock(calls.mutex);
    calls.finisher = std::this_thread::get_id();
    for (std::atomic<bool>* stop : calls.stops) *stop = true;
    calls.fewer.wait(lock, [&] { return calls.count == 0 || calls.process != getpid(); });
  }
  for (attune_registry* registry : opened()) {
    if (registry != nullptr) check(attune_registry_finish(registry));
  }
}

}  // namespace attune::python
