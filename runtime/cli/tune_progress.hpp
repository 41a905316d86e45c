// A tuning run as a person watches it, and stops it.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>

#include "runtime/cli/progress.hpp"
#include "runtime/tune/tuner.hpp"

namespace attune::cli {

/// On a terminal a bar that is drawn over; there and elsewhere a line for each problem that is done.
class TuneProgress {
 public:
  explicit TuneProgress(std::FILE* stream) : stream_(stream), line_(stream) {}

  void show(const tune::Status& status);

 private:
  std::FILE* stream_;
  DrawnLine line_;
  std::string said_;
  std::chrono::steady_clock::time_point last_;
};

/// "[#####.....] 21/51 problems, 300/412 compiled, 3 rejected, 4.2 min left"
std::string progress_line(const tune::Status& status);

/// While it lives the first Ctrl-C is only noted; one more, a second or more later, ends the process as ever. Threads
/// that were there before may still be ended by the first.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  [[nodiscard]] bool interrupted() const { return interrupted_; }

 private:
  sigset_t before_{};
  std::atomic<bool> interrupted_{false};
  std::jthread waiter_;
};

}  // namespace attune::cli
