// The GIL where the C ABI takes its time.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace attune::python {

/// While it lives, other Python threads run.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}

  /// Once the interpreter has ended, CPython before 3.14 ends a thread that asks for the GIL by unwinding its stack: a
  /// daemon thread that is still in a call. That would leave this destructor, and so end the process by
  /// std::terminate. Such a thread stays here instead, as in 3.14, until the process is over.
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace attune::python
