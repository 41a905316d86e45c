// Independent pieces of work on a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace attune {

/// Runs task(0) .. task(count - 1) on `threads` threads (0: all cores), the caller's among them. After a task has
/// thrown, no further one starts and the first exception comes back to the caller.
inline void parallel_for(long long count, int threads, const std::function<void(long long)>& task) {
  const int wanted = threads > 0 ? threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::atomic<long long> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    try {
      for (long long i = next++; i < count; i = next++) task(i);
    } catch (...) {
      next = count;
      const std::scoped_lock lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    for (long long i = 1; i < std::min<long long>(wanted, count); ++i) pool.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace attune
