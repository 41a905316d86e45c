// The kernels of probe.cu, run one at a time.
#pragma once

#include <string>
#include <vector>

#include "runtime/emulator/emulator.hpp"

namespace attune::emulator_tests {

/// Compiled once for the process.
class Probe {
 public:
  static const Probe& instance();

  struct Options {
    unsigned blocks = 1;
    std::uint64_t seed = 1;
    int jobs = 0;
    bool count_banks = false;
  };
  struct Outcome {
    emulator::Report report;
    std::vector<float> out;  ///< 64 for each block
  };
  /// Runs the kernel of this name in Which with 64 threads and 4 KB of shared memory. The input is 256 chunks of 16
  /// bytes, each filled with its number as four words, of which every eighth does not belong to the buffer.
  [[nodiscard]] Outcome run(const std::string& which, const Options& options) const;
  [[nodiscard]] Outcome run(const std::string& which) const { return run(which, Options{}); }

  /// "line 17": the line that ends with `// @name`.
  [[nodiscard]] std::string line(const std::string& name) const;

 private:
  Probe();

  std::string text_;
  std::vector<std::string> names_;
  emulator::Kernel kernel_;
};

}  // namespace attune::emulator_tests
