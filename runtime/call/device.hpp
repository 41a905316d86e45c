// What a launch has to know about a GPU.
#pragma once

#include <compare>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.hpp"

namespace attune {

struct Device {
  int ordinal = 0;
  std::string name;
  int capability = 0;  ///< 10 * major + minor
  int multiprocessors = 0;
  int shared_per_block = 0;  ///< opt-in maximum, bytes
  int shared_per_sm = 0;
  long long l2_bytes = 0;
};

/// The table's entry for a GPU; for one newer than the table, its own limits.
Arch arch_of(const Device& device);

/// A GPU that need not be here, as plans depend on it: by its data sheet, and as drivers name it.
struct KnownGpu {
  std::string_view word;  ///< what a person calls it: "h200"
  std::string_view name;
  int capability = 0;
  int multiprocessors = 0;
  int l2_megabytes = 0;
  int teraflops = 0;             ///< of dense products of 16-bit elements with sums in fp32
  int gigabytes_per_second = 0;  ///< of its memory
};

/// What a person who has no GPU here most likely means.
inline constexpr std::string_view usual_gpu = "h200";

/// All of them. The first of each compute capability stands for its architecture.
std::span<const KnownGpu> known_gpus();

/// What is known of a GPU: the one of its name, else the one that stands for its architecture, else the usual one.
const KnownGpu& most_like(const Device& device);

/// The GPU of a word ("h200"), or the one that stands for an architecture ("sm_90"); nothing for others.
std::optional<Device> find_gpu_device(std::string_view word);

/// The words that find_gpu_device() takes: those of GPUs, then architectures.
std::vector<std::string> gpu_words();

/// The GPU that stands for an architecture of the table, for planning.
Device device_of(const Arch& arch);

/// The thread blocks of a launch; they start with x running fastest, then y.
struct Grid {
  /// What it may have along x, and along y and z (CUDA programming guide 13, "Compute Capabilities").
  static constexpr long long max_x = std::numeric_limits<int>::max();
  static constexpr long long max_yz = 65535;

  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
  unsigned cluster = 1;  ///< blocks of a cluster, neighbours along y, of which they are a divisor

  auto operator<=>(const Grid&) const = default;
  [[nodiscard]] unsigned long long blocks() const { return static_cast<unsigned long long>(x) * y * z; }
};

}  // namespace attune
