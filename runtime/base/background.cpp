#include "runtime/base/background.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace attune {
namespace {

/// Leaves the processor to whoever serves calls: a batch thread that wakes up displaces nobody, and where there are
/// more threads than processors this one gets a tenth of another's share. Neither needs a privilege.
void yield_to_others() {
  constexpr int niceness = 10;
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &none);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
}

}  // namespace

BackgroundThread::BackgroundThread() : thread_([this] { work(); }) {}

BackgroundThread::~BackgroundThread() { stop(); }

bool BackgroundThread::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

void BackgroundThread::stop() {
  std::deque<Job> dropped;  // outlives the lock
  std::unique_lock lock(mutex_);
  stopped_ = true;
  dropped.swap(jobs_);
  changed_.notify_all();
  changed_.wait(lock, [this] { return done_; });
}

void BackgroundThread::work() {
  yield_to_others();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !jobs_.empty(); });
    if (stopped_) break;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
  done_ = true;
  changed_.notify_all();
}

}  // namespace attune
