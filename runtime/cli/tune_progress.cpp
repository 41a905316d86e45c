#include "runtime/cli/tune_progress.hpp"

#include <fmt/format.h>

#include "runtime/base/text.hpp"

namespace attune::cli {

void TuneProgress::show(const tune::Status& status) {
  constexpr auto pause = std::chrono::milliseconds(100);
  const bool news = status.last != said_;
  if (news) {
    line_.erase();
    fmt::print(stream_, "{}\n", status.last);
    said_ = status.last;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!news && now - last_ < pause) return;
  last_ = now;
  line_.draw(progress_line(status));
}

std::string progress_line(const tune::Status& status) {
  return fmt::format("{} {}/{} problems, {}/{} compiled, {} rejected, {} left", bar(status.finished, status.problems),
                     status.finished, status.problems, status.built, status.to_build, status.rejected,
                     seconds_text(status.left));
}

InterruptWatch::InterruptWatch() {
  // Threads that start from here on inherit it, so that the signal waits for the one that asks.
  sigset_t interrupt{};
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  waiter_ = std::jthread([this, interrupt](const std::stop_token& stop) {
    constexpr timespec patience{.tv_sec = 0, .tv_nsec = 100'000'000};
    // timeout(1) and batch systems signal the process and its group: what follows at once is the same wish.
    constexpr std::chrono::seconds one_wish{1};
    std::chrono::steady_clock::time_point noted;
    while (!stop.stop_requested()) {
      if (interrupted_ && std::chrono::steady_clock::now() - noted > one_wish) {
        pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);  // the next one meets this thread, and ends the process
        nanosleep(&patience, nullptr);
      } else if (sigtimedwait(&interrupt, nullptr, &patience) == SIGINT && !interrupted_) {
        noted = std::chrono::steady_clock::now();
        interrupted_ = true;
      }
    }
  });
}

InterruptWatch::~InterruptWatch() {
  waiter_.request_stop();
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace attune::cli
