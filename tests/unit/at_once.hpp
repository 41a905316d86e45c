// Many threads that do something at once, for ThreadSanitizer to look at.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace attune::testing {

inline constexpr int thread_count = 8;

/// Runs `body(thread)` on that many threads, which begin together; what was thrown, one text for each thread that did.
inline std::vector<std::string> at_once(const std::function<void(int)>& body) {
  std::vector<std::string> thrown(thread_count);
  std::barrier start(thread_count);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < thread_count; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        try {
          body(i);
        } catch (const std::exception& error) {
          thrown[static_cast<std::size_t>(i)] = error.what();
        }
      });
    }
  }
  std::erase(thrown, "");
  return thrown;
}

}  // namespace attune::testing
