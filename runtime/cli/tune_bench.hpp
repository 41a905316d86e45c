// One GPU of the tuner's laboratory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cli/device_trial.hpp"
#include "runtime/cli/tune_lab.hpp"

namespace attune::cli {

/// The kernel that merges what a decode kernel leaves.
Variant merging_variant(const Variant& decode, const Device& device);

/// How the results of two kernels for one problem differ; empty when as little as two right ones may. A row of O is
/// compared by its root mean square: where it cancels, rounding of the weights is as large as where it does not.
std::string differences(const Problem& shape, const Outputs& outputs, const Outputs& trusted);

/// Copies of the problem together exceed the L2, and launches walk through them, so that each finds it cold. Launches
/// of a round are queued before any is waited for, behind one that is not timed.
class GpuBench final : public tune::Bench {
 public:
  GpuBench(GpuLab& lab, int ordinal);

  std::string check(const Variant& variant) override;
  void open(const tune::AnyProblem& problem, std::span<const Variant> candidates) override;
  std::vector<double> time(int round, std::span<const int> order) override;
  std::string compare(int candidate, int trusted) override;

 private:
  /// A candidate and how it is launched, planned before anything is timed.
  struct Contestant {
    LoadedKernel kernel;
    std::optional<Plan> prefill;
    std::optional<DecodePlan> decode;
  };

  [[nodiscard]] LoadedKernel load(const Variant& variant) const;
  void open_prefill(const Problem& problem);
  void open_decode(const DecodeProblem& problem);
  void launch(const Contestant& contestant, std::size_t copy) const;
  [[nodiscard]] Outputs result_of(const Contestant& contestant) const;

  GpuLab* lab_;
  Gpu gpu_;
  tune::AnyProblem problem_;
  std::vector<Contestant> contestants_;
  std::optional<LoadedKernel> merge_;
  std::map<std::string, DeviceProblem> small_;  ///< what check() launches, by text
  std::vector<DeviceProblem> problems_;         ///< copies, of prefill
  std::vector<DeviceTrial> trials_;             ///< of decode
  std::vector<DeviceEvent> events_;
  std::size_t turn_ = 0;
};

}  // namespace attune::cli
