// How far a command has come that takes its time, for a person who waits.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace attune::cli {

/// "[########............]"
std::string bar(long long done, long long total);

/// "21/51 kernels compiled, about 4.20 min left"
std::string count_text(std::string_view what, long long done, long long total, double seconds_left);

/// The last line of a terminal, drawn over again and again, below lines that stay. Where the stream is no terminal
/// nothing is drawn.
class DrawnLine {
 public:
  explicit DrawnLine(std::FILE* stream);
  ~DrawnLine() { erase(); }
  DrawnLine(const DrawnLine&) = delete;
  DrawnLine& operator=(const DrawnLine&) = delete;

  [[nodiscard]] bool on_terminal() const { return terminal_; }
  void draw(const std::string& text);
  void erase();

 private:
  std::FILE* stream_;
  bool terminal_;
  bool drawn_ = false;
};

/// Counts pieces of work that are done: on a terminal by a bar, elsewhere line by line, in either case with an estimate
/// of the time left. What ends within two seconds says nothing. Thread-safe.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// `what` is done to `total` pieces: "kernels compiled".
  Progress(std::FILE* stream, std::string what, long long total, std::function<Clock::time_point()> now = Clock::now);

  /// One more is done.
  void add();

  /// Prints text whose last line ends, on stdout, in the bar's place; the bar comes again below it.
  void print(const std::string& text);

 private:
  void show();  ///< as soon as one is done

  const std::string what_;
  const long long total_;
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  std::FILE* stream_;
  DrawnLine line_;
  long long done_ = 0;
  const Clock::time_point start_;
  std::optional<Clock::time_point> shown_;
};

}  // namespace attune::cli
