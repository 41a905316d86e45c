// Starting processes that share a cache folder, and what they leave behind.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.hpp"

namespace attune::process_tests {

/// A folder for a cache and for what its users tell, that goes with everything in it.
class Workplace {
 public:
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] std::filesystem::path root() const { return folder() / "cache"; }
  [[nodiscard]] std::filesystem::path tally() const { return folder() / "tally"; }
  [[nodiscard]] std::filesystem::path messages() const { return folder() / "messages"; }

  /// One for each build: which kernel, and in which process.
  struct Build {
    int kernel;
    pid_t process;
  };
  [[nodiscard]] std::vector<Build> builds() const;

  /// Everything that the processes said.
  [[nodiscard]] std::string said() const;

  /// Names that begin with a dot in the folders of architectures, with this in them.
  [[nodiscard]] std::vector<std::string> hidden(const std::string& part) const;

 private:
  ScratchFolder folder_;
};

/// What processes that were started wait for.
class Gate {
 public:
  Gate();
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  [[nodiscard]] int input() const { return ends_[0]; }
  void open();

 private:
  int ends_[2];
};

/// Starts the worker with these arguments and environment settings ("NAME=value") on top of the test's own; it begins
/// when the gate opens.
pid_t start_worker(const Workplace& place, const Gate& gate, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& settings = {});

/// Waits for the end of a process; its exit code, or minus its signal.
int wait_for(pid_t process);

}  // namespace attune::process_tests
