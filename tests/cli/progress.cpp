// What a person who waits sees: bars on a terminal, lines elsewhere, and the time left.
#include "runtime/cli/progress.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/cli/tool.hpp"

using namespace attune;
using namespace attune::testing;

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string text_of(std::FILE* file) {
  std::fflush(file);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  return text;
}

/// A terminal: what is written to one end is read at the other.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE(master_ >= 0);
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    stream_.reset(std::fopen(::ptsname(master_), "w"));
    REQUIRE(stream_ != nullptr);
  }
  ~Terminal() { ::close(master_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] std::FILE* stream() const { return stream_.get(); }

  /// All that was written so far, which must be something.
  [[nodiscard]] std::string read() const {
    std::fflush(stream_.get());
    std::array<char, 4096> text{};
    const ssize_t count = ::read(master_, text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(count > 0 ? count : 0)};
  }

 private:
  int master_;
  File stream_;
};

/// A clock that goes when it is told to.
struct Clock {
  cli::Progress::Clock::time_point time{};
  void pass(double seconds) {
    time += std::chrono::duration_cast<cli::Progress::Clock::duration>(std::chrono::duration<double>(seconds));
  }
};

}  // namespace

TEST_CASE("a bar is as full as the work is done, and the count says what of and how long") {
  CHECK(cli::bar(0, 8) == "[....................]");
  CHECK(cli::bar(3, 8) == "[#######.............]");
  CHECK(cli::bar(8, 8) == "[####################]");
  CHECK(cli::bar(0, 0) == "[....................]");
  CHECK(cli::count_text("kernels compiled", 3, 8, 12.5) == "3/8 kernels compiled, about 12.5 s left");
}

TEST_CASE("what is done within two seconds says nothing, what takes longer a line now and then") {
  const File file(std::tmpfile());
  Clock clock;
  {
    cli::Progress quick(file.get(), "kernels compiled", 4, [&] { return clock.time; });
    for (int i = 0; i < 4; ++i) {
      clock.pass(0.4);
      quick.add();
    }
  }
  CHECK(text_of(file.get()).empty());
  cli::Progress slow(file.get(), "kernels compiled", 10, [&] { return clock.time; });
  for (int i = 0; i < 10; ++i) {
    clock.pass(1);
    slow.add();
  }
  CHECK(text_of(file.get()) ==
        "1/10 kernels compiled, about 9.00 s left\n"
        "3/10 kernels compiled, about 7.00 s left\n"
        "5/10 kernels compiled, about 5.00 s left\n"
        "7/10 kernels compiled, about 3.00 s left\n"
        "9/10 kernels compiled, about 1.00 s left\n");
}

TEST_CASE("on a terminal a bar is drawn over, and taken away in the end") {
  const Terminal terminal;
  Clock clock;
  {
    cli::Progress progress(terminal.stream(), "problems tried", 4, [&] { return clock.time; });
    clock.pass(1);
    progress.add();
    CHECK(terminal.read() == "\r[#####...............] 1/4 problems tried, about 3.00 s left\x1b[K");
    clock.pass(0.01);
    progress.add();  // too soon after the last for an eye
    clock.pass(1);
    progress.add();
    CHECK(terminal.read() == "\r[###############.....] 3/4 problems tried, about 670 ms left\x1b[K");
  }
  CHECK(terminal.read() == "\r\x1b[K");
}

TEST_CASE("run prints the first kernel's row long before the last is compiled, and says on stderr how far it is") {
  using Seconds = std::chrono::duration<double>;
  const TemporaryFolder folder;
  const std::string spec =
      folder.file("some.yaml", "template: prefill_sm80\nhead_dim: [64, 128]\ncausal: [false, true]\n");
  const std::string said = (folder.path() / "said").string();
  const std::string command = ATTUNE_TOOL " run " + spec + " --device none --jobs 1 2>" + said;
  const auto start = std::chrono::steady_clock::now();
  std::FILE* const output = ::popen(command.c_str(), "r");
  REQUIRE(output != nullptr);
  std::array<char, 1024> line{};
  double first_row = 0;
  int rows = 0;
  double last_row = 0;
  while (std::fgets(line.data(), line.size(), output) != nullptr) {
    if (!std::string(line.data()).starts_with("prefill_sm80_")) continue;
    last_row = Seconds(std::chrono::steady_clock::now() - start).count();
    if (rows++ == 0) first_row = last_row;
  }
  const int status = ::pclose(output);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return;  // no NVRTC here
  CHECK(status == 0);
  CHECK(rows == 8);
  CHECK(first_row < last_row / 2);
  std::ifstream file(said);
  const std::string err{std::istreambuf_iterator<char>(file), {}};
  CHECK_MESSAGE(contains(err, "/8 kernels compiled, about "), err);
}
