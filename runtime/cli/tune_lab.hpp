// The tuner's laboratory on real hardware: NVRTC with its cache, and the GPUs of this machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cache/cache.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/lab/trial.hpp"
#include "runtime/tune/lab.hpp"

namespace attune::cli {

/// Inputs of a small trial and what the reference says of it, which all variants of a kind share.
struct KnownTrial {
  Memory inputs;
  Expected expected;
};

class GpuLab final : public tune::Lab {
 public:
  /// For some GPUs by ordinal, which are all of the kind of the first. Throws Error{ATTUNE_NO_DEVICE} or
  /// Error{ATTUNE_NOT_COMPILED} where there is none or no compiler, Error{ATTUNE_INVALID_ARGUMENT} where kinds differ.
  GpuLab(std::vector<int> ordinals, std::uint64_t seed);

  tune::BuildReport build(const Variant& variant) override;
  [[nodiscard]] int gpus() const override { return static_cast<int>(ordinals_.size()); }
  std::unique_ptr<tune::Bench> bench(int gpu) override;
  [[nodiscard]] double now() const override;

  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] std::string driver_version() const { return driver_version_; }
  [[nodiscard]] const Compiler& compiler() const { return compiler_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  /// What build() has kept of a variant.
  [[nodiscard]] const std::string& image(const Variant& variant) const;

  /// Computed once, by whoever asks first; the others wait.
  const KnownTrial& known(const Trial& trial);

 private:
  struct Slot {
    std::once_flag once;
    KnownTrial known;
  };

  /// Compiles or finds in the cache, and keeps the image. Throws Error.
  tune::BuildReport build_one(const Variant& variant);

  std::vector<int> ordinals_;
  std::uint64_t seed_;
  Device device_;
  std::string driver_version_;
  Compiler compiler_;
  Cache cache_;
  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> images_;  ///< by name of the variant
  std::map<std::string, Slot> trials_;         ///< by text of the problem and its lengths
};

}  // namespace attune::cli
