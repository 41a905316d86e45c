#include "runtime/background.hpp"

#include <utility>

namespace attune {

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
