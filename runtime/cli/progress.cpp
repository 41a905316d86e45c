#include "runtime/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "runtime/base/text.hpp"

namespace attune::cli {
namespace {

constexpr std::chrono::seconds worth_saying{2};
constexpr std::chrono::seconds enough_to_guess{1};  // from, how long the rest will take
constexpr std::chrono::milliseconds between_bars{100};
constexpr std::chrono::seconds between_lines{2};

}  // namespace

std::string bar(long long done, long long total) {
  constexpr long long width = 20;
  const long long filled = total > 0 ? width * done / total : 0;
  return fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", width - filled);
}

std::string count_text(std::string_view what, long long done, long long total, double seconds_left) {
  return fmt::format("{}/{} {}, about {} left", done, total, what, seconds_text(seconds_left));
}

DrawnLine::DrawnLine(std::FILE* stream) : stream_(stream), terminal_(::isatty(::fileno(stream)) == 1) {}

void DrawnLine::draw(const std::string& text) {
  if (!terminal_) return;
  fmt::print(stream_, "\r{}\x1b[K", text);
  std::fflush(stream_);
  drawn_ = true;
}

void DrawnLine::erase() {
  if (!drawn_) return;
  fmt::print(stream_, "\r\x1b[K");
  std::fflush(stream_);
  drawn_ = false;
}

Progress::Progress(std::FILE* stream, std::string what, long long total, std::function<Clock::time_point()> now)
    : what_(std::move(what)), total_(total), now_(std::move(now)), stream_(stream), line_(stream), start_(now_()) {}

void Progress::add() {
  const std::lock_guard lock(mutex_);
  ++done_;
  show();
}

void Progress::print(const std::string& text) {
  const std::lock_guard lock(mutex_);
  const bool redraw = shown_.has_value();
  line_.erase();
  fmt::print("{}", text);
  std::fflush(stdout);
  if (!redraw || !line_.on_terminal()) return;
  shown_.reset();
  show();
}

void Progress::show() {
  const Clock::time_point now = now_();
  const std::chrono::duration<double> passed = now - start_;
  if (passed < enough_to_guess) return;
  const double left = passed.count() * static_cast<double>(total_ - done_) / static_cast<double>(done_);
  if (passed.count() + left <= std::chrono::duration<double>(worth_saying).count()) return;
  const Clock::duration pause = line_.on_terminal() ? Clock::duration(between_bars) : Clock::duration(between_lines);
  if (shown_ && now - *shown_ < pause) return;
  shown_ = now;
  const std::string text = count_text(what_, done_, total_, left);
  if (line_.on_terminal()) {
    line_.draw(bar(done_, total_) + " " + text);
  } else {
    fmt::print(stream_, "{}\n", text);
    std::fflush(stream_);
  }
}

}  // namespace attune::cli
