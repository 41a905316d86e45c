// The kernels of probe.cu, probe_handover.cu, probe_cluster.cu and probe_async.cu, run one at a time.
#pragma once

#include <string>
#include <vector>

#include "runtime/emulator/emulator.hpp"

namespace attune::emulator_tests {

/// A file of small kernels, compiled once for the process.
class Probe {
 public:
  static const Probe& instance();  ///< probe.cu
  static const Probe& handover();  ///< probe_handover.cu
  static const Probe& cluster();   ///< probe_cluster.cu
  static const Probe& async();     ///< probe_async.cu

  struct Options {
    unsigned blocks = 1;    ///< along x
    unsigned blocks_y = 1;  ///< not of probe_async.cu, and neither is `cluster`
    unsigned cluster = 1;   ///< Grid::cluster
    std::uint64_t seed = 1;
    int jobs = 0;
    bool count_banks = false;
  };
  struct Outcome {
    emulator::Report report;
    std::vector<float> out;
    std::vector<float> stored;  ///< of probe_async.cu, through tensor maps; NaN where nothing was written
  };
  /// Runs the kernel of this name in Which. Those of probe_async.cu have 512 threads, 60 KB of shared memory and an
  /// input of element() values behind tensor maps; they write 32 floats for each thread, and a tensor of the input's
  /// shape through tensor maps. The others have 64 threads, 4 KB of shared memory and an input of 256 chunks of 16
  /// bytes, each filled with its number as four words, of which every ninth does not belong to the buffer; they write
  /// 64 floats for each block.
  [[nodiscard]] Outcome run(const std::string& which, const Options& options) const;
  [[nodiscard]] Outcome run(const std::string& which) const { return run(which, Options{}); }

  /// The input of probe_async.cu, of 2 heads, 100 rows and 64 columns; 0 outside.
  static float element(int head, int row, int column);

  /// Runs the kernel, which must be without a fault. Returns what it wrote.
  [[nodiscard]] std::vector<float> check_clean(const std::string& which) const;
  [[nodiscard]] std::vector<float> check_stored(const std::string& which, std::uint64_t seed) const;

  /// Where in `stored` this element is.
  static std::size_t place_of(int head, int row, int column);

  /// Runs the kernel, which must be stopped with a message that holds all of the words; "@name" stands for the line
  /// marked so.
  void check_fault(const std::string& which, const std::vector<std::string>& words, const Options& options) const;
  void check_fault(const std::string& which, const std::vector<std::string>& words) const {
    check_fault(which, words, Options{});
  }

  /// "line 17": the line that ends with `// @name`.
  [[nodiscard]] std::string line(const std::string& name) const;

 private:
  Probe(const std::string& name, const std::vector<std::string>& headers);

  [[nodiscard]] int number_of(const std::string& which) const;
  [[nodiscard]] Outcome run_plain(int which, const Options& options) const;
  [[nodiscard]] Outcome run_async(int which, const Options& options) const;

  std::string name_;
  std::string text_;
  std::vector<std::string> names_;
  emulator::Kernel kernel_;
};

}  // namespace attune::emulator_tests
