// A thread that does one job after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace attune {

class BackgroundThread {
 public:
  /// A job is done or, where the thread was stopped before its turn came, dropped. It must not throw.
  using Job = std::function<void()>;

  BackgroundThread();
  ~BackgroundThread();
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  /// False, and nothing else, once it has been stopped.
  bool add(Job job);

  /// Drops the jobs that wait and returns when the one in hand is done. May be called again, and by several threads.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool stopped_ = false;
  bool done_ = false;    ///< the thread takes no further job, and has ended the one in hand
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace attune
