// The registries of this process, one for each device that kernels run on.
#pragma once

#include <atomic>
#include <thread>

#include "attune/attune.h"

namespace attune::python {

/// The GPU's registry or the emulator's, made on first use with the compile policy that $ATTUNE_COMPILE names. It is
/// never destroyed: work that it launched may still run when the process ends. Throws Error.
attune_registry* registry_of(bool emulator);

/// The same where it was made already, else null.
attune_registry* opened_registry(bool emulator);

/// A call of the C ABI that runs without the GIL: one that finish() waits for, as a thread that still compiles or
/// emulates must not outlive what the process's end destroys.
class RunningCall {
 public:
  /// `stop` is set where the call need not come to its end any more; null: it always does. Throws Error after finish(),
  /// but not to the thread that called it.
  explicit RunningCall(std::atomic<bool>* stop = nullptr, std::thread::id caller = std::this_thread::get_id());
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  std::atomic<bool>* stop_;
};

/// Whether finish() was called, by another thread: what this one still asks for is for nobody.
bool is_over();

/// At the interpreter's end: stops or waits for the calls that other threads still run, and attune_registry_finish() of
/// the registries that are open. Throws Error.
void finish();

}  // namespace attune::python
